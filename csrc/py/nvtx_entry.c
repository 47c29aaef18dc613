/* nvtx_entry: the functions that NVTX calls, and their registration. */
#include "py/nvtx_in.h"

typedef fp_nvtx_name *domain_handle;

static fp_nvtx_message
message_of(const fp_nvtx_event *e, char *buffer)
{
    fp_nvtx_message m = {0};
    if (e == NULL || e->size < sizeof(*e)) {
        return m;
    }
    if (e->message_type == FP_NVTX_MESSAGE_ASCII) {
        m.text = e->message.ascii;
    }
    else if (e->message_type == FP_NVTX_MESSAGE_REGISTERED) {
        /* A handle that this module returned. */
        m.registered = (fp_nvtx_name *)(uintptr_t)e->message.registered;
    }
    else if (e->message_type == FP_NVTX_MESSAGE_WIDE &&
             e->message.wide != NULL) {
        fp_nvtx_from_wide(buffer, e->message.wide);
        m.text = buffer;
    }
    return m;
}

static int
domain_range_push_ex(domain_handle domain, const fp_nvtx_event *event)
{
    char buffer[FP_NVTX_MAX_TEXT + 1];
    return fp_nvtx_in_push(domain, message_of(event, buffer));
}

static int
range_push_ex(const fp_nvtx_event *event)
{
    return domain_range_push_ex(NULL, event);
}

static int
range_push_a(const char *text)
{
    return fp_nvtx_in_push(NULL, (fp_nvtx_message){.text = text});
}

static int
range_push_w(const wchar_t *wide)
{
    const fp_nvtx_event event = {.size = sizeof(event),
                                 .message_type = FP_NVTX_MESSAGE_WIDE,
                                 .message.wide = wide};
    return domain_range_push_ex(NULL, &event);
}

static int
range_pop(void)
{
    return fp_nvtx_in_pop(NULL);
}

static uint64_t
domain_range_start_ex(domain_handle domain, const fp_nvtx_event *event)
{
    char buffer[FP_NVTX_MAX_TEXT + 1];
    return fp_nvtx_in_start(domain, message_of(event, buffer));
}

static uint64_t
range_start_ex(const fp_nvtx_event *event)
{
    return domain_range_start_ex(NULL, event);
}

static uint64_t
range_start_a(const char *text)
{
    return fp_nvtx_in_start(NULL, (fp_nvtx_message){.text = text});
}

static uint64_t
range_start_w(const wchar_t *wide)
{
    const fp_nvtx_event event = {.size = sizeof(event),
                                 .message_type = FP_NVTX_MESSAGE_WIDE,
                                 .message.wide = wide};
    return domain_range_start_ex(NULL, &event);
}

static void
domain_range_end(domain_handle domain, uint64_t number)
{
    (void)domain;
    fp_nvtx_in_end(number);
}

static fp_nvtx_name *
domain_register_string_a(domain_handle domain, const char *text)
{
    return fp_nvtx_name_of(FP_NVTX_IS_STRING, domain, text ? text : "");
}

static fp_nvtx_name *
domain_register_string_w(domain_handle domain, const wchar_t *wide)
{
    char buffer[FP_NVTX_MAX_TEXT + 1];
    fp_nvtx_from_wide(buffer, wide ? wide : L"");
    return fp_nvtx_name_of(FP_NVTX_IS_STRING, domain, buffer);
}

static fp_nvtx_name *
domain_create_a(const char *text)
{
    return fp_nvtx_name_of(FP_NVTX_IS_DOMAIN, NULL, text ? text : "");
}

static fp_nvtx_name *
domain_create_w(const wchar_t *wide)
{
    char buffer[FP_NVTX_MAX_TEXT + 1];
    fp_nvtx_from_wide(buffer, wide ? wide : L"");
    return fp_nvtx_name_of(FP_NVTX_IS_DOMAIN, NULL, buffer);
}

/* ---- attaching ---- */

/* The client ignores functions without an entry (marks, thread names, ...). */
#define ENTRY(module, id, function) \
    {module, id, (fp_nvtx_function)(void (*)(void))function}
static const struct {
    int module;
    unsigned id;
    fp_nvtx_function function;
} functions[] = {
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_START_EX, range_start_ex),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_START_A, range_start_a),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_START_W, range_start_w),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_END, fp_nvtx_in_end),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_EX, range_push_ex),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_A, range_push_a),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_W, range_push_w),
    ENTRY(FP_NVTX_CORE, FP_NVTX_RANGE_POP, range_pop),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_START_EX, domain_range_start_ex),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_END, domain_range_end),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_PUSH_EX, domain_range_push_ex),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_POP, fp_nvtx_in_pop),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_REGISTER_STRING_A,
          domain_register_string_a),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_REGISTER_STRING_W,
          domain_register_string_w),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_A, domain_create_a),
    ENTRY(FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_W, domain_create_w),
};
#undef ENTRY

/* An older client has fewer functions. */
static int
attach(const fp_nvtx_callbacks *callbacks)
{
    int attached = 0;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        fp_nvtx_table table = NULL;
        unsigned count = 0;
        if (callbacks->get_module(functions[i].module, &table, &count) &&
            table != NULL && functions[i].id < count &&
            table[functions[i].id] != NULL) {
            *table[functions[i].id] = functions[i].function;
            attached = 1;
        }
    }
    return attached;
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(fp_nvtx_get_export get_export)
{
    /* If a process loads this library without importing fastprof, NVTX must
     * get nothing, and no Python function may be called. */
    if (!fp_nvtx_in_may_attach() || get_export == NULL) {
        return 0;
    }
    const fp_nvtx_callbacks *callbacks = get_export(FP_NVTX_EXPORT_CALLBACKS);
    if (callbacks == NULL || callbacks->size < sizeof(*callbacks) ||
        callbacks->get_module == NULL) {
        return 0;
    }
    const fp_nvtx_version_info *version = get_export(FP_NVTX_EXPORT_VERSION);
    if (version != NULL && version->size >= sizeof(*version) &&
        version->set_tool_version != NULL) {
        version->set_tool_version(FP_NVTX_VERSION);
    }
    return attach(callbacks);
}
