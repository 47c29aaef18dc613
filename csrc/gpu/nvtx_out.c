#include "gpu/nvtx_out.h"

#include <dlfcn.h>
#include <string.h>

/* Number of functions of each module, one more than its last id. */
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
    /* C has no cast from an object's pointer to a function's. */
    memcpy(&init, &symbol, sizeof(init));
    return init;
}

/* -1: the tool listens to no ranges. */
static int
choose_functions(fp_nvtx_out *o)
{
    const fp_nvtx_function *core = o->function[FP_NVTX_CORE];
    const fp_nvtx_function *core2 = o->function[FP_NVTX_CORE2];
    o->push_ex = (int (*)(
        void *, const fp_nvtx_event *))core2[FP_NVTX_DOMAIN_RANGE_PUSH_EX];
    o->pop_ex = (int (*)(void *))core2[FP_NVTX_DOMAIN_RANGE_POP];
    if (o->push_ex != NULL && o->pop_ex != NULL) {
        void *(*create)(const char *) =
            (void *(*)(const char *))core2[FP_NVTX_DOMAIN_CREATE_A];
        o->domain = create != NULL ? create("fastprof") : NULL;
        return 0;
    }
    o->push_ex = NULL;
    o->push = (int (*)(const char *))core[FP_NVTX_RANGE_PUSH_A];
    o->pop = (int (*)(void))core[FP_NVTX_RANGE_POP];
    return o->push != NULL && o->pop != NULL ? 0 : -1;
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
        fp_why_set(why, "%.250s is no NVTX tool", path);
        return -1;
    }
    if (init == own) {
        fp_why_set(why, "NVTX ranges come to fastprof itself");
        return -1;
    }
    if (init(get_export) == 0) {
        fp_why_set(why, "the NVTX tool %.250s did not start", path);
        return -1;
    }
    if (choose_functions(o) < 0) {
        fp_why_set(why, "the NVTX tool %.250s takes no ranges", path);
        return -1;
    }
    return 0;
}

/* ---- ranges ---- */

static int
make_room(fp_nvtx_stack *s, const fp_alloc *a)
{
    if (s->length < s->capacity) {
        return 0;
    }
    uint32_t capacity = s->capacity != 0 ? s->capacity * 2 : 16;
    fp_nvtx_open *open =
        fp_alloc_grow(a, s->open, s->capacity, capacity, sizeof(*open));
    if (open == NULL) {
        return -1;
    }
    s->open = open;
    s->capacity = capacity;
    return 0;
}

static void
pop_one(const fp_nvtx_out *o, fp_nvtx_stack *s)
{
    s->length--;
    if (o->push_ex != NULL) {
        (void)o->pop_ex(o->domain);
    }
    else {
        (void)o->pop();
    }
}

void
fp_nvtx_out_push(const fp_nvtx_out *o, fp_nvtx_stack *s, const fp_alloc *a,
                 const char *name, fp_nvtx_open what)
{
    if (s->length > 0 && s->open[s->length - 1].epoch != what.epoch) {
        fp_nvtx_out_end(o, s); /* left over from a recording that is over */
    }
    if (make_room(s, a) < 0) {
        return;
    }
    s->open[s->length++] = what;
    if (o->push_ex == NULL) {
        (void)o->push(name);
        return;
    }
    const fp_nvtx_event event = {
        .version = FP_NVTX_VERSION,
        .size = sizeof(event),
        .message_type = FP_NVTX_MESSAGE_ASCII,
        .message.ascii = name,
    };
    (void)o->push_ex(o->domain, &event);
}

uint32_t
fp_nvtx_out_pop(const fp_nvtx_out *o, fp_nvtx_stack *s, fp_nvtx_open what)
{
    for (uint32_t i = s->length; i > 0; i--) {
        const fp_nvtx_open *open = &s->open[i - 1];
        if (open->id == what.id && open->owner == what.owner &&
            open->epoch == what.epoch) {
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
