/* A module that emits NVTX ranges, for tests.
 *
 * With REAL_HEADERS it uses NVIDIA's nvtx3; without, a few lines that work
 * like those headers: the first call finds the tool.  Loaded with ctypes.PyDLL
 * it calls with the GIL, with ctypes.CDLL without it. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#ifdef REAL_HEADERS

#include <nvtx3/nvToolsExt.h>

typedef nvtxEventAttributes_t event_type;
#define VERSION NVTX_VERSION
#define MESSAGE_TYPE messageType

#else

#include "gpu/nvtx_abi.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef fp_nvtx_event event_type;
#define VERSION FP_NVTX_VERSION
#define MESSAGE_TYPE message_type
#define unicode wide

static fp_nvtx_function functions[FP_NVTX_MODULES][FP_NVTX_MAX_FUNCTIONS];
static fp_nvtx_function *entries[FP_NVTX_MODULES][FP_NVTX_MAX_FUNCTIONS + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int
get_module(int module, fp_nvtx_table *table, unsigned *count)
{
    if (module != FP_NVTX_CORE && module != FP_NVTX_CORE2) {
        return 0;
    }
    for (int i = 1; i < FP_NVTX_MAX_FUNCTIONS; i++) {
        entries[module][i] = &functions[module][i];
    }
    *table = entries[module];
    *count = FP_NVTX_MAX_FUNCTIONS;
    return 1;
}

static const void *
get_export(uint32_t id)
{
    static const fp_nvtx_callbacks callbacks = {sizeof(callbacks), get_module};
    return id == FP_NVTX_EXPORT_CALLBACKS ? &callbacks : NULL;
}

static void
find_tool(void)
{
    const char *path = getenv(FP_NVTX_PATH_VARIABLE);
    void *library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
    fp_nvtx_init init = NULL;
    if (library != NULL) {
        *(void **)&init = dlsym(library, FP_NVTX_INIT_SYMBOL);
    }
    if (init != NULL && init(get_export) == 0) {
        dlclose(library);
    }
}

static fp_nvtx_function
function(int module, int id)
{
    pthread_once(&once, find_tool);
    return functions[module][id];
}

#define CALL(module, id, missing, type, ...) \
    (function(module, id) == NULL \
         ? missing \
         : ((type)function(module, id))(__VA_ARGS__))

#define nvtxRangePushA(text) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_A, -2, int (*)(const char *), text)
#define nvtxRangePushW(text) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_W, -2, int (*)(const wchar_t *), \
         text)
#define nvtxRangePushEx(e) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_EX, -2, \
         int (*)(const event_type *), e)
#define nvtxRangePop() CALL(FP_NVTX_CORE, FP_NVTX_RANGE_POP, -2, int (*)(void))
#define nvtxRangeStartA(text) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_START_A, 0, uint64_t (*)(const char *), \
         text)
#define nvtxRangeStartW(text) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_START_W, 0, \
         uint64_t (*)(const wchar_t *), text)
#define nvtxRangeStartEx(e) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_START_EX, 0, \
         uint64_t (*)(const event_type *), e)
#define nvtxRangeEnd(id) \
    CALL(FP_NVTX_CORE, FP_NVTX_RANGE_END, (void)0, void (*)(uint64_t), id)
#define nvtxDomainCreateA(text) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_A, NULL, \
         void *(*)(const char *), text)
#define nvtxDomainCreateW(text) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_W, NULL, \
         void *(*)(const wchar_t *), text)
#define nvtxDomainDestroy(domain) (void)(domain)
#define nvtxDomainRegisterStringA(domain, text) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_REGISTER_STRING_A, NULL, \
         void *(*)(void *, const char *), domain, text)
#define nvtxDomainRegisterStringW(domain, text) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_REGISTER_STRING_W, NULL, \
         void *(*)(void *, const wchar_t *), domain, text)
#define nvtxDomainRangePushEx(domain, e) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_PUSH_EX, -2, \
         int (*)(void *, const event_type *), domain, e)
#define nvtxDomainRangePop(domain) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_POP, -2, int (*)(void *), domain)
#define nvtxDomainRangeStartEx(domain, e) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_START_EX, 0, \
         uint64_t (*)(void *, const event_type *), domain, e)
#define nvtxDomainRangeEnd(domain, id) \
    CALL(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_END, (void)0, \
         void (*)(void *, uint64_t), domain, id)

#endif

enum { NONE, ASCII, WIDE, REGISTERED, TOO_SMALL };

static event_type
make_event(int kind, const void *text)
{
    event_type e = {0};
    e.version = VERSION;
    e.size = (uint16_t)(kind == TOO_SMALL ? 16 : sizeof(e));
    e.MESSAGE_TYPE = kind == TOO_SMALL ? ASCII : kind;
    if (kind == WIDE) {
        e.message.unicode = text;
    }
    else if (kind == REGISTERED) {
        e.message.registered = (void *)(uintptr_t)text;
    }
    else {
        e.message.ascii = text;
    }
    return e;
}

int
push_a(const char *text)
{
    return nvtxRangePushA(text);
}

int
push_w(const wchar_t *text)
{
    return nvtxRangePushW(text);
}

int
push_ex(int kind, const void *text)
{
    event_type e = make_event(kind, text);
    return nvtxRangePushEx(&e);
}

int
pop(void)
{
    return nvtxRangePop();
}

uint64_t
start_a(const char *text)
{
    return nvtxRangeStartA(text);
}

uint64_t
start_w(const wchar_t *text)
{
    return nvtxRangeStartW(text);
}

uint64_t
start_ex(int kind, const void *text)
{
    event_type e = make_event(kind, text);
    return nvtxRangeStartEx(&e);
}

void
end(uint64_t id)
{
    nvtxRangeEnd(id);
}

void *
domain_a(const char *name)
{
    return nvtxDomainCreateA(name);
}

void *
domain_w(const wchar_t *name)
{
    return nvtxDomainCreateW(name);
}

void
destroy(void *domain)
{
    nvtxDomainDestroy(domain);
}

void *
register_a(void *domain, const char *text)
{
    return nvtxDomainRegisterStringA(domain, text);
}

void *
register_w(void *domain, const wchar_t *text)
{
    return nvtxDomainRegisterStringW(domain, text);
}

int
domain_push(void *domain, int kind, const void *text)
{
    event_type e = make_event(kind, text);
    return nvtxDomainRangePushEx(domain, &e);
}

int
domain_pop(void *domain)
{
    return nvtxDomainRangePop(domain);
}

uint64_t
domain_start(void *domain, int kind, const void *text)
{
    event_type e = make_event(kind, text);
    return nvtxDomainRangeStartEx(domain, &e);
}

void
domain_end(void *domain, uint64_t id)
{
    nvtxDomainRangeEnd(domain, id);
}

static void *
ranges(void *count)
{
    for (int i = 0; i < *(int *)count; i++) {
        (void)nvtxRangePushA("native");
        (void)nvtxRangePop();
    }
    return NULL;
}

/* Emits [count] ranges in a thread unknown to Python. */
int
native_thread(int count)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, ranges, &count) != 0) {
        return -1;
    }
    return pthread_join(thread, NULL);
}
