/* fake_cupti: the functions that CUPTI exports, with its names and signatures.
 * Results and enums are int here, as in the binary interface. */
#include "fake_state.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* External correlation ids of the calling thread. */
static _Thread_local struct {
    uint64_t epoch;
    uint32_t depth[FAKE_EXTERNAL_KINDS];
    uint64_t id[FAKE_EXTERNAL_KINDS][FAKE_EXTERNAL_DEPTH];
} external;

/* The process in which the fake driver is known to be initialised. */
static _Atomic int ready_in;

/* Has the program, or the client, initialised the fake driver? */
static int
is_driver_ready(void)
{
    if (atomic_load(&ready_in) == (int)getpid()) {
        return 1;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == NULL) {
        return 0;
    }
    int (*is_ready)(void);
    *(void **)&is_ready = dlsym(driver, "fake_cuda_is_initialised");
    int ready = is_ready != NULL && is_ready();
    dlclose(driver);
    if (ready) {
        atomic_store(&ready_in, (int)getpid());
    }
    return ready;
}

/* Works with any interface of other clients. */
static int
is_common(fake_function f)
{
    return f == FAKE_FN_cuptiGetVersion || f == FAKE_FN_cuptiGetResultString ||
           f == FAKE_FN_cuptiGetErrorMessage ||
           f == FAKE_FN_cuptiGetTimestamp ||
           f == FAKE_FN_cuptiActivityGetNextRecord;
}

/* Is this a second copy of the library in this process, which sees nothing?
 * With FAKE_CUPTI_ONLY: any copy at another path. */
static int second_copy;

__attribute__((constructor)) static void
find_out_which_copy(void)
{
    const char *only = getenv("FAKE_CUPTI_ONLY");
    Dl_info me;
    second_copy = only != NULL && dladdr(&ready_in, &me) != 0 &&
                  strcmp(me.dli_fname, only) != 0;
}

/* Counts a call by the client.  Returns the result for the call, or 0 to
 * continue. */
static int
enter(fake_function f)
{
    pthread_mutex_lock(&fake.lock);
    fake_plan *plan = &fake.plan[f];
    plan->calls++;
    int code = plan->calls > plan->after ? plan->code : 0;
    int64_t slow_ms = plan->slow_ms;
    int needs_driver = fake.option.needs_driver != 0;
    int locked = fake.option.lock_callbacks != 0;
    int is_v2 = fake.uses_v2 && !is_common(f);
    pthread_mutex_unlock(&fake.lock);
    if (is_v2) {
        return FAKE_NOT_COMPATIBLE;
    }
    if (!is_common(f) && second_copy) {
        return FAKE_NOT_INITIALIZED;
    }
    if (slow_ms > 0) {
        fake_sleep_ns(slow_ms * 1000000);
    }
    if (needs_driver && !is_driver_ready()) {
        pthread_mutex_lock(&fake.lock);
        fake_count(FAKE_CTR_before_init, 1);
        pthread_mutex_unlock(&fake.lock);
        return FAKE_NOT_INITIALIZED;
    }
    if (locked) { /* waits for a running callback */
        pthread_mutex_lock(&fake.outer);
        pthread_mutex_unlock(&fake.outer);
    }
    return code;
}

#define ENTER(name) \
    do { \
        int code_ = enter(FAKE_FN_##name); \
        if (code_ != FAKE_OK) { \
            return code_; \
        } \
    } while (0)

/* ---- about the library ---- */

FAKE_EXPORT int
cuptiGetVersion(uint32_t *version)
{
    ENTER(cuptiGetVersion);
    pthread_mutex_lock(&fake.lock);
    *version = fake_version_of((int)fake.option.release);
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

static const char *
result_name(int result)
{
    switch (result) {
    case FAKE_OK:
        return "CUPTI_SUCCESS";
    case FAKE_INVALID_PARAMETER:
        return "CUPTI_ERROR_INVALID_PARAMETER";
    case FAKE_MAX_LIMIT:
        return "CUPTI_ERROR_MAX_LIMIT_REACHED";
    case FAKE_NOT_COMPATIBLE:
        return "CUPTI_ERROR_NOT_COMPATIBLE";
    case FAKE_NOT_INITIALIZED:
        return "CUPTI_ERROR_NOT_INITIALIZED";
    case FAKE_INVALID_KIND:
        return "CUPTI_ERROR_INVALID_KIND";
    case FAKE_MULTIPLE_SUBSCRIBERS:
        return "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    case FAKE_UNKNOWN:
        return "CUPTI_ERROR_UNKNOWN";
    default:
        return NULL;
    }
}

FAKE_EXPORT int
cuptiGetResultString(int result, const char **text)
{
    ENTER(cuptiGetResultString);
    *text = result_name(result);
    return *text != NULL ? FAKE_OK : FAKE_INVALID_PARAMETER;
}

FAKE_EXPORT int
cuptiGetErrorMessage(int result, const char **text)
{
    ENTER(cuptiGetErrorMessage);
    *text = result_name(result);
    return *text != NULL ? FAKE_OK : FAKE_INVALID_PARAMETER;
}

FAKE_EXPORT int
cuptiGetLastError(void)
{
    ENTER(cuptiGetLastError);
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiFinalize(void)
{
    ENTER(cuptiFinalize);
    pthread_mutex_lock(&fake.lock);
    fake_count(FAKE_CTR_finalized, 1);
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiGetTimestamp(uint64_t *ns)
{
    ENTER(cuptiGetTimestamp);
    pthread_mutex_lock(&fake.lock);
    *ns =
        (uint64_t)(fake.option.clock_follows ? fake_now() : fake_device_now());
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityRegisterTimestampCallback(uint64_t (*f)(void))
{
    ENTER(cuptiActivityRegisterTimestampCallback);
    pthread_mutex_lock(&fake.lock);
    int refused = f == NULL || fake.option.clock_refused;
    if (!refused) {
        fake.stamp = f;
        fake_use_clock(FAKE_CLOCK_CLIENT);
    }
    pthread_mutex_unlock(&fake.lock);
    return refused ? FAKE_INVALID_PARAMETER : FAKE_OK;
}

void
fake_cupti_foreign_finalize(void)
{
    fake_finalize();
    pthread_mutex_lock(&fake.lock);
    fake.is_subscribed = 0;
    fake.callback = NULL;
    memset(fake.callback_on, 0, sizeof(fake.callback_on));
    memset(fake.kind_on, 0, sizeof(fake.kind_on));
    memset(fake.api_off, 0, sizeof(fake.api_off));
    pthread_mutex_unlock(&fake.lock);
}

/* ---- the subscriber ---- */

/* The target of the only handle. */
static char the_subscriber;

static int
subscribe(void **subscriber, fake_callback f, void *user)
{
    pthread_mutex_lock(&fake.lock);
    int taken = fake.is_subscribed || fake.holder[0] != 0;
    if (!taken) {
        fake.is_subscribed = 1;
        fake.callback = f;
        fake.callback_user = user;
        *subscriber = &the_subscriber;
    }
    pthread_mutex_unlock(&fake.lock);
    return taken ? FAKE_MULTIPLE_SUBSCRIBERS : FAKE_OK;
}

FAKE_EXPORT int
cuptiSubscribe(void **subscriber, fake_callback f, void *user)
{
    ENTER(cuptiSubscribe);
    return subscribe(subscriber, f, user);
}

typedef struct subscriber_params { /* CUpti_SubscriberParams */
    size_t struct_size;
    const char *name;
    char *old_name;
    size_t old_size;
} subscriber_params;

FAKE_EXPORT int
cuptiSubscribe_v2(void **subscriber, fake_callback f, void *user,
                  subscriber_params *params)
{
    ENTER(cuptiSubscribe_v2);
    int result = subscribe(subscriber, f, user);
    if (result != FAKE_OK && params != NULL && params->old_name != NULL &&
        params->old_size > 0) {
        pthread_mutex_lock(&fake.lock);
        strncpy(params->old_name, fake.holder, params->old_size - 1);
        params->old_name[params->old_size - 1] = 0;
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

FAKE_EXPORT int
cuptiUnsubscribe(void *subscriber)
{
    ENTER(cuptiUnsubscribe);
    pthread_mutex_lock(&fake.lock);
    int known = fake.is_subscribed && subscriber == &the_subscriber;
    if (known) {
        fake.is_subscribed = 0;
        fake.callback = NULL;
        memset(fake.callback_on, 0, sizeof(fake.callback_on));
        fake.correlation = (uint32_t)fake.option.correlation;
    }
    pthread_mutex_unlock(&fake.lock);
    return known ? FAKE_OK : FAKE_INVALID_PARAMETER;
}

void
fake_cupti_hold_subscriber(const char *name)
{
    pthread_mutex_lock(&fake.lock);
    memset(fake.holder, 0, sizeof(fake.holder));
    if (name != NULL) {
        strncpy(fake.holder, name, sizeof(fake.holder) - 1);
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Handles calls [first] to [last] that the release knows; the lock is held. */
static int
enable_callbacks(uint32_t enable, const void *subscriber, int domain,
                 uint32_t first, uint32_t last)
{
    int known = fake.is_subscribed && subscriber == &the_subscriber;
    if (!known || domain <= 0 || domain >= FAKE_DOMAINS) {
        return FAKE_INVALID_PARAMETER;
    }
    uint32_t cbids = fake_cbids_of((int)fake.option.release, domain);
    if (first >= cbids) {
        return FAKE_INVALID_PARAMETER;
    }
    for (uint32_t cbid = first; cbid <= last && cbid < cbids; cbid++) {
        fake.callback_on[domain][cbid] = enable != 0;
    }
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiEnableCallback(uint32_t enable, void *subscriber, int domain,
                    uint32_t cbid)
{
    ENTER(cuptiEnableCallback);
    pthread_mutex_lock(&fake.lock);
    int result = enable_callbacks(enable, subscriber, domain, cbid, cbid);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

FAKE_EXPORT int
cuptiEnableDomain(uint32_t enable, void *subscriber, int domain)
{
    ENTER(cuptiEnableDomain);
    pthread_mutex_lock(&fake.lock);
    int result =
        enable_callbacks(enable, subscriber, domain, 0, FAKE_CBIDS - 1);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

FAKE_EXPORT int
cuptiEnableAllDomains(uint32_t enable, void *subscriber)
{
    ENTER(cuptiEnableAllDomains);
    int result = FAKE_OK;
    pthread_mutex_lock(&fake.lock);
    for (int d = 1; d < FAKE_DOMAINS && result == FAKE_OK; d++) {
        result = enable_callbacks(enable, subscriber, d, 0, FAKE_CBIDS - 1);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- activities ---- */

FAKE_EXPORT int
cuptiActivityRegisterCallbacks(fake_request request, fake_complete complete)
{
    ENTER(cuptiActivityRegisterCallbacks);
    if (request == NULL || complete == NULL) {
        return FAKE_INVALID_PARAMETER;
    }
    fake_register(request, complete);
    return FAKE_OK;
}

static int
set_kind(int kind, int on)
{
    if (kind <= 0 || kind >= FAKE_KINDS) {
        return FAKE_INVALID_KIND;
    }
    pthread_mutex_lock(&fake.lock);
    fake.sessions += kind == FAKE_KERNEL && on && !fake.kind_on[kind];
    fake.kind_on[kind] = (uint8_t)on;
    if (!on && (kind == FAKE_RUNTIME || kind == FAKE_DRIVER)) {
        int domain =
            kind == FAKE_RUNTIME ? FAKE_DOMAIN_RUNTIME : FAKE_DOMAIN_DRIVER;
        memset(fake.api_off[domain], 0, sizeof(fake.api_off[domain]));
    }
    pthread_mutex_unlock(&fake.lock);
    if (!on) {
        fake_forget((uint32_t)kind);
    }
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityEnable(int kind)
{
    ENTER(cuptiActivityEnable);
    return set_kind(kind, 1);
}

FAKE_EXPORT int
cuptiActivityDisable(int kind)
{
    ENTER(cuptiActivityDisable);
    pthread_mutex_lock(&fake.lock);
    int hangs = kind == FAKE_KERNEL && fake.option.disable_hangs &&
                fake.device_used && fake.option.release < 13000;
    pthread_mutex_unlock(&fake.lock);
    while (hangs) {
        fake_sleep_ns(1000000000);
    }
    return set_kind(kind, 0);
}

void
fake_cupti_other_enable(int kind, int on)
{
    set_kind(kind, on);
}

/* As CUPTI 13.0 does on a GPU: a call can be left out of a kind that is on;
 * without the kind no call has a record. */
static int
set_api(int domain, uint32_t cbid, uint8_t enable)
{
    pthread_mutex_lock(&fake.lock);
    int known = cbid < fake_cbids_of((int)fake.option.release, domain);
    if (known) {
        fake.api_off[domain][cbid] = !enable;
    }
    pthread_mutex_unlock(&fake.lock);
    return known ? FAKE_OK : FAKE_INVALID_PARAMETER;
}

FAKE_EXPORT int
cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable)
{
    ENTER(cuptiActivityEnableRuntimeApi);
    return set_api(FAKE_DOMAIN_RUNTIME, cbid, enable);
}

FAKE_EXPORT int
cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable)
{
    ENTER(cuptiActivityEnableDriverApi);
    return set_api(FAKE_DOMAIN_DRIVER, cbid, enable);
}

FAKE_EXPORT int
cuptiActivityFlushAll(uint32_t flags)
{
    ENTER(cuptiActivityFlushAll);
    if (fake_in_callback()) {
        pthread_mutex_lock(&fake.lock);
        fake_count(FAKE_CTR_in_callback, 1);
        pthread_mutex_unlock(&fake.lock);
        return FAKE_INVALID_OPERATION;
    }
    fake_flush(flags);
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    ENTER(cuptiActivityFlushPeriod);
    fake_worker_start();
    pthread_mutex_lock(&fake.lock);
    fake.flush_period_ms = milliseconds;
    pthread_cond_signal(&fake.wake);
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    ENTER(cuptiActivityGetNextRecord);
    if (buffer == NULL || record == NULL) {
        return FAKE_INVALID_PARAMETER;
    }
    pthread_mutex_lock(&fake.lock);
    int release = (int)fake.option.release;
    pthread_mutex_unlock(&fake.lock);
    uint32_t kind;
    size_t at = 0;
    if (*record != NULL) {
        memcpy(&kind, *record, sizeof(kind));
        at =
            (size_t)(*record - buffer) + fake_cupti_record_size(release, kind);
    }
    if (at + sizeof(kind) > valid) {
        return FAKE_MAX_LIMIT;
    }
    memcpy(&kind, buffer + at, sizeof(kind));
    size_t size = fake_cupti_record_size(release, kind);
    if (size == 0) {
        return release < 12040 ? FAKE_UNKNOWN : FAKE_INVALID_KIND;
    }
    if (at + size > valid) {
        return FAKE_MAX_LIMIT;
    }
    *record = buffer + at;
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream,
                                  size_t *dropped)
{
    ENTER(cuptiActivityGetNumDroppedRecords);
    (void)context;
    (void)stream;
    pthread_mutex_lock(&fake.lock);
    *dropped = fake.dropped;
    fake.dropped = 0;
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

enum {
    FAKE_ATTRIBUTES = 16,
    FAKE_ATTRIBUTE_ZEROED = 5,
    FAKE_ATTRIBUTE_PER_THREAD = 9,
};

/* Two are bytes, the others sizes. */
static size_t
attribute_size(int attribute)
{
    int is_byte = attribute == FAKE_ATTRIBUTE_ZEROED ||
                  attribute == FAKE_ATTRIBUTE_PER_THREAD;
    return is_byte ? 1 : sizeof(uint64_t);
}

static int
check_attribute(int attribute, const size_t *size, const void *value)
{
    if (attribute < 0 || attribute >= FAKE_ATTRIBUTES || size == NULL ||
        value == NULL) {
        return FAKE_INVALID_PARAMETER;
    }
    return *size < attribute_size(attribute) ? FAKE_PARAMETER_SIZE : FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityGetAttribute(int attribute, size_t *size, void *value)
{
    ENTER(cuptiActivityGetAttribute);
    int result = check_attribute(attribute, size, value);
    if (result == FAKE_OK) {
        *size = attribute_size(attribute);
        pthread_mutex_lock(&fake.lock);
        memcpy(value, &fake.attribute[attribute], *size);
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

FAKE_EXPORT int
cuptiActivitySetAttribute(int attribute, size_t *size, void *value)
{
    ENTER(cuptiActivitySetAttribute);
    int result = check_attribute(attribute, size, value);
    if (result == FAKE_OK) {
        pthread_mutex_lock(&fake.lock);
        fake.attribute[attribute] = 0;
        memcpy(&fake.attribute[attribute], value, attribute_size(attribute));
        if (attribute == FAKE_ATTRIBUTE_PER_THREAD) {
            fake.option.per_thread = fake.attribute[attribute] != 0;
        }
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

FAKE_EXPORT int
cuptiSetThreadIdType(int type)
{
    ENTER(cuptiSetThreadIdType);
    if (type != 0 && type != 1) {
        return FAKE_INVALID_PARAMETER;
    }
    pthread_mutex_lock(&fake.lock);
    fake.thread_id_type = type;
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiGetThreadIdType(int *type)
{
    ENTER(cuptiGetThreadIdType);
    pthread_mutex_lock(&fake.lock);
    *type = fake.thread_id_type;
    pthread_mutex_unlock(&fake.lock);
    return FAKE_OK;
}

/* ---- external correlation ---- */

static void
fresh_externals(void)
{
    pthread_mutex_lock(&fake.lock);
    uint64_t epoch = fake.epoch;
    pthread_mutex_unlock(&fake.lock);
    if (external.epoch != epoch) {
        memset(external.depth, 0, sizeof(external.depth));
        external.epoch = epoch;
    }
}

FAKE_EXPORT int
cuptiActivityPushExternalCorrelationId(int kind, uint64_t id)
{
    ENTER(cuptiActivityPushExternalCorrelationId);
    if (kind <= 0 || kind >= FAKE_EXTERNAL_KINDS) {
        return FAKE_INVALID_PARAMETER;
    }
    fresh_externals();
    if (external.depth[kind] == FAKE_EXTERNAL_DEPTH) {
        return FAKE_OUT_OF_MEMORY;
    }
    external.id[kind][external.depth[kind]++] = id;
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last)
{
    ENTER(cuptiActivityPopExternalCorrelationId);
    if (kind <= 0 || kind >= FAKE_EXTERNAL_KINDS) {
        return FAKE_INVALID_PARAMETER;
    }
    fresh_externals();
    if (external.depth[kind] == 0) {
        return FAKE_QUEUE_EMPTY;
    }
    uint64_t id = external.id[kind][--external.depth[kind]];
    if (last != NULL) {
        *last = id;
    }
    return FAKE_OK;
}

size_t
fake_externals(fake_record *r, uint32_t correlation)
{
    size_t n = 0;
    fresh_externals();
    for (uint32_t kind = 0; kind < FAKE_EXTERNAL_KINDS; kind++) {
        if (external.depth[kind] > 0) {
            memset(&r[n], 0, sizeof(r[n]));
            r[n].kind = FAKE_EXTERNAL;
            r[n].type = kind;
            r[n].bytes = external.id[kind][external.depth[kind] - 1];
            r[n].correlation = correlation;
            n++;
        }
    }
    return n;
}

/* ---- graphs ---- */

FAKE_EXPORT int
cuptiGetGraphNodeId(void *node, uint64_t *id)
{
    ENTER(cuptiGetGraphNodeId);
    if (node == NULL || id == NULL) {
        return FAKE_INVALID_PARAMETER;
    }
    *id = ((const fake_node *)node)->id;
    return FAKE_OK;
}

static int
graph_id(const void *graph, uint32_t *id)
{
    if (graph == NULL || id == NULL) {
        return FAKE_INVALID_PARAMETER;
    }
    *id = ((const fake_graph *)graph)->id;
    return FAKE_OK;
}

FAKE_EXPORT int
cuptiGetGraphId(void *graph, uint32_t *id)
{
    ENTER(cuptiGetGraphId);
    return graph_id(graph, id);
}

FAKE_EXPORT int
cuptiGetGraphExecId(void *exec, uint32_t *id)
{
    ENTER(cuptiGetGraphExecId);
    return graph_id(exec, id);
}
