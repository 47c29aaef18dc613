#include "gpu/nvtx_out.h"

#include <dlfcn.h>
#include <string.h>

/* Function count of each module: its last id plus one. */
static const unsigned module_size[FP_NVTX_MODULES] = {0, 16, 9, 15, 7, 16, 7};

/* ---- attaching ---- */

int
fp_nvtx_out_module(fp_nvtx_out *o, int module, fp_nvtx_table *table,
                   unsigned *count)
{
    if (module < FP_NVTX_CORE || module >= FP_NVTX_MODULES) {
        return 0;
    }
    for (unsigned i = 1; i < module_size[module]; i++) {
        o->entry[module][i] = &o->function[module][i];
    }
    if (table != NULL) {
        *table = o->entry[module];
    }
    if (count != NULL) {
        *count = module_size[module];
    }
    return 1;
}

static fp_nvtx_init
find_init(void *library)
{
    void *symbol = dlsym(library, FP_NVTX_INIT_SYMBOL);
    fp_nvtx_init init = NULL;
    /* memcpy: C has no cast from an object pointer to a function pointer. */
    memcpy(&init, &symbol, sizeof(init));
    return init;
}

int
fp_nvtx_out_open(fp_nvtx_out *o, const char *path,
                 fp_nvtx_get_export get_export, fp_nvtx_init own, fp_why *why)
{
    memset(o, 0, sizeof(*o));
    o->library = fp_library_open(path, why);
    if (o->library == NULL) {
        return -1;
    }
    fp_nvtx_init init = find_init(o->library);
    if (init == NULL) {
        fp_why_set(why, "%.250s is not an NVTX tool", path);
        return -1;
    }
    if (init == own) {
        fp_why_set(why, "the NVTX tool is fastprof itself");
        return -1;
    }
    if (init(get_export) == 0) {
        fp_why_set(why, "the NVTX tool %.250s did not start", path);
        return -1;
    }
    return 0;
}

/* ---- ranges ---- */

static fp_nvtx_function
tool_function(const fp_nvtx_out *o, int module, int id)
{
    return __atomic_load_n(&o->function[module][id], __ATOMIC_ACQUIRE);
}

/* Begins a range.  Returns the module that took it; 0: the tool takes no
 * ranges. */
static uint32_t
begin(fp_nvtx_out *o, const char *name)
{
    fp_nvtx_function push =
        tool_function(o, FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_PUSH_EX);
    if (push == NULL) {
        push = tool_function(o, FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_A);
        if (push != NULL) {
            (void)((int (*)(const char *))push)(name);
        }
        return push != NULL ? FP_NVTX_CORE : 0;
    }
    fp_nvtx_function create =
        tool_function(o, FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_A);
    if (o->domain == NULL && create != NULL) {
        o->domain = ((void *(*)(const char *))create)("fastprof");
    }
    const fp_nvtx_event event = {
        .version = FP_NVTX_VERSION,
        .size = sizeof(event),
        .message_type = FP_NVTX_MESSAGE_ASCII,
        .message.ascii = name,
    };
    (void)((int (*)(void *, const fp_nvtx_event *))push)(o->domain, &event);
    return FP_NVTX_CORE2;
}

static void
pop_one(const fp_nvtx_out *o, fp_nvtx_stack *s)
{
    uint32_t module = s->open[--s->length].module;
    fp_nvtx_function pop;
    if (module == FP_NVTX_CORE2) {
        pop = tool_function(o, FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_POP);
        if (pop != NULL) {
            (void)((int (*)(void *))pop)(o->domain);
        }
    }
    else if (module == FP_NVTX_CORE) {
        pop = tool_function(o, FP_NVTX_CORE, FP_NVTX_RANGE_POP);
        if (pop != NULL) {
            (void)((int (*)(void))pop)();
        }
    }
}

void
fp_nvtx_out_push(fp_nvtx_out *o, fp_nvtx_stack *s, const fp_alloc *a,
                 const char *name, fp_nvtx_open what)
{
    if (s->length > 0 && s->open[s->length - 1].epoch != what.epoch) {
        fp_nvtx_out_end(o, s); /* left over from an earlier recording */
    }
    if (s->length == s->capacity &&
        fp_alloc_room(a, &s->open, &s->capacity, s->length + 1, 16,
                      sizeof(*s->open)) != FP_OK) {
        return;
    }
    what.module = begin(o, name);
    s->open[s->length++] = what;
}

uint32_t
fp_nvtx_out_pop(const fp_nvtx_out *o, fp_nvtx_stack *s, fp_nvtx_open what)
{
    for (uint32_t i = s->length; i > 0; i--) {
        const fp_nvtx_open *open = &s->open[i - 1];
        /* A thread may get its context while a section is open. */
        int same_task = open->owner == what.owner || open->owner == NULL;
        if (open->id == what.id && open->epoch == what.epoch && same_task) {
            uint32_t inner = s->length - i;
            while (s->length >= i) {
                pop_one(o, s);
            }
            return inner;
        }
    }
    return 0;
}

void
fp_nvtx_out_end(const fp_nvtx_out *o, fp_nvtx_stack *s)
{
    while (s->length > 0) {
        pop_one(o, s);
    }
}

void
fp_nvtx_stack_free(fp_nvtx_stack *s, const fp_alloc *a)
{
    fp_alloc_give(a, s->open, s->capacity, sizeof(*s->open));
    *s = (fp_nvtx_stack){0};
}
