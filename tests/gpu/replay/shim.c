/* shim: a libcupti that forwards to the real one and logs API callbacks,
 * completed buffers and the names in them.
 *
 * Loaded with FASTPROF_CUPTI.  Environment:
 *   FASTPROF_SHIM_REAL  the libcupti to forward to
 *   FASTPROF_SHIM_LOG   file to write to
 *
 * The log is a row of entries: u32 type, u32 length, then the bytes. record.py
 * makes a replay file of it.  A function that the real library lacks is hidden
 * when this is compiled (-DcuptiX=hidden_cuptiX). */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {                    /* entries */
       ENTRY_TIME = 1,    /* u64 ns, from CUPTI */
       ENTRY_NAME = 2,    /* u64 address, then the text */
       ENTRY_CALL = 3,    /* logged_call */
       ENTRY_BUFFER = 4,  /* logged_buffer, then its bytes */
       ENTRY_STEP = 5,    /* u32 kind, u32 size, seen with the iterator */
       ENTRY_DROPPED = 6, /* u64 records */
       ENTRY_VERSION = 7, /* u32 */
};

enum { KERNEL = 10, KERNEL_NAME = 104, API_DOMAINS = 2, KINDS = 64 };

typedef struct logged_call {
    uint64_t at;
    uint32_t thread;
    uint32_t domain;
    uint32_t cbid;
    uint32_t site;
    uint32_t correlation;
    uint32_t unused;
} logged_call;

typedef struct logged_buffer {
    uint64_t at;
    uint64_t stream;
} logged_buffer;

typedef struct call_data { /* CUpti_CallbackData */
    int site;
    const void *until_correlation[7];
    uint32_t correlation;
} call_data;

_Static_assert(offsetof(call_data, correlation) == 64, "as in CUPTI");

typedef void (*callback)(void *user, int domain, uint32_t cbid,
                         const void *data);
typedef void (*request)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*complete)(void *context, uint32_t stream, uint8_t *buffer,
                         size_t size, size_t valid);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *logfile;     /* owned; under the lock, as what follows */
static const char **seen; /* owned; addresses of names in the log */
static size_t names, room;
static uint32_t step_of[KINDS];
static callback client_callback;
static complete client_complete;

static void *
real(const char *name)
{
    static void *library;
    if (library == NULL) {
        library = dlopen(getenv("FASTPROF_SHIM_REAL"), RTLD_NOW | RTLD_GLOBAL);
    }
    void *f = library != NULL ? dlsym(library, name) : NULL;
    if (f == NULL) {
        fprintf(stderr, "shim: no %s: %s\n", name, dlerror());
        abort(); /* record.py has checked this before */
    }
    return f;
}

#define REAL(name, ...) ((int (*)(__VA_ARGS__))(uintptr_t)real(#name))

static void
put(uint32_t type, const void *head, size_t head_bytes, const void *body,
    size_t body_bytes)
{
    if (logfile == NULL) {
        logfile = fopen(getenv("FASTPROF_SHIM_LOG"), "wb");
        if (logfile == NULL) {
            perror("shim: the log");
            abort();
        }
    }
    uint32_t front[2] = {type, (uint32_t)(head_bytes + body_bytes)};
    fwrite(front, sizeof(front), 1, logfile);
    fwrite(head, head_bytes, 1, logfile);
    if (body_bytes != 0) {
        fwrite(body, body_bytes, 1, logfile);
    }
    fflush(logfile); /* the process may end abruptly */
}

static uint64_t
now(void)
{
    uint64_t ns = 0;
    REAL(cuptiGetTimestamp, uint64_t *)(&ns);
    return ns;
}

/* ---- callbacks ---- */

static void
on_call(void *user, int domain, uint32_t cbid, const void *data)
{
    if (domain == 1 || domain == API_DOMAINS) {
        const call_data *d = data;
        logged_call call = {
            .at = now(),
            .thread = (uint32_t)syscall(SYS_gettid),
            .domain = (uint32_t)domain,
            .cbid = cbid,
            .site = (uint32_t)d->site,
            .correlation = d->correlation,
        };
        pthread_mutex_lock(&lock);
        put(ENTRY_CALL, &call, sizeof(call), NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    client_callback(user, domain, cbid, data);
}

EXPORT int
cuptiSubscribe(void **subscriber, callback f, void *user)
{
    client_callback = f;
    return REAL(cuptiSubscribe, void **, callback, void *)(subscriber, on_call,
                                                           user);
}

/* ---- buffers ---- */

static void
put_name(const char *name)
{
    for (size_t i = names; i-- > 0;) {
        if (seen[i] == name) {
            return;
        }
    }
    if (names == room) {
        room = room != 0 ? room * 2 : 256;
        seen = realloc(seen, room * sizeof(*seen));
        if (seen == NULL) {
            abort();
        }
    }
    seen[names++] = name;
    uint64_t address = (uintptr_t)name;
    put(ENTRY_NAME, &address, sizeof(address), name, strlen(name));
}

static void
put_step(uint32_t kind, uint32_t size)
{
    if (kind < KINDS && step_of[kind] != size) {
        uint32_t step[2] = {kind, size};
        step_of[kind] = size;
        put(ENTRY_STEP, step, sizeof(step), NULL, 0);
    }
}

/* The lock is held. */
static void
put_buffer(uint32_t stream, uint8_t *buffer, size_t valid)
{
    uint8_t *record = NULL, *last = NULL;
    uint32_t kind = 0;
    while (REAL(cuptiActivityGetNextRecord, uint8_t *, size_t,
                uint8_t **)(buffer, valid, &record) == 0) {
        if (last != NULL) {
            put_step(kind, (uint32_t)(record - last));
        }
        last = record;
        memcpy(&kind, record, sizeof(kind));
        if (kind == KERNEL) {
            const char *name;
            memcpy(&name, record + KERNEL_NAME, sizeof(name));
            if (name != NULL) {
                put_name(name);
            }
        }
    }
    /* The last record may be of a new kind: nothing may follow it. */
    if (last != NULL && kind < KINDS && step_of[kind] == 0) {
        put_step(kind, (uint32_t)(buffer + valid - last));
    }
    logged_buffer b = {now(), stream};
    put(ENTRY_BUFFER, &b, sizeof(b), buffer, valid);
}

static void
on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
            size_t valid)
{
    if (valid != 0) {
        pthread_mutex_lock(&lock);
        put_buffer(stream, buffer, valid);
        pthread_mutex_unlock(&lock);
    }
    client_complete(context, stream, buffer, size, valid);
}

EXPORT int
cuptiActivityRegisterCallbacks(request ask, complete done)
{
    client_complete = done;
    return REAL(cuptiActivityRegisterCallbacks, request,
                complete)(ask, on_complete);
}

EXPORT int
cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
    int result = REAL(cuptiActivityGetNumDroppedRecords, void *, uint32_t,
                      size_t *)(context, stream, n);
    if (result == 0 && *n != 0) {
        uint64_t dropped = *n;
        pthread_mutex_lock(&lock);
        put(ENTRY_DROPPED, &dropped, sizeof(dropped), NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

/* ---- functions that are only forwarded ---- */

EXPORT int
cuptiGetTimestamp(uint64_t *ns)
{
    int result = REAL(cuptiGetTimestamp, uint64_t *)(ns);
    static int told;
    pthread_mutex_lock(&lock);
    if (result == 0 && !told) {
        told = 1;
        put(ENTRY_TIME, ns, sizeof(*ns), NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT int
cuptiGetVersion(uint32_t *version)
{
    int result = REAL(cuptiGetVersion, uint32_t *)(version);
    if (result == 0) {
        pthread_mutex_lock(&lock);
        put(ENTRY_VERSION, version, sizeof(*version), NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

EXPORT int
cuptiGetResultString(int result, const char **text)
{
    return REAL(cuptiGetResultString, int, const char **)(result, text);
}

EXPORT int
cuptiUnsubscribe(void *subscriber)
{
    return REAL(cuptiUnsubscribe, void *)(subscriber);
}

EXPORT int
cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t cbid)
{
    return REAL(cuptiEnableCallback, uint32_t, void *, int,
                uint32_t)(on, subscriber, domain, cbid);
}

EXPORT int
cuptiActivityEnable(int kind)
{
    return REAL(cuptiActivityEnable, int)(kind);
}

EXPORT int
cuptiActivityDisable(int kind)
{
    return REAL(cuptiActivityDisable, int)(kind);
}

EXPORT int
cuptiActivityFlushAll(uint32_t flags)
{
    return REAL(cuptiActivityFlushAll, uint32_t)(flags);
}

EXPORT int
cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    return REAL(cuptiActivityGetNextRecord, uint8_t *, size_t,
                uint8_t **)(buffer, valid, record);
}

EXPORT int
cuptiActivityPushExternalCorrelationId(int kind, uint64_t id)
{
    return REAL(cuptiActivityPushExternalCorrelationId, int, uint64_t)(kind,
                                                                       id);
}

EXPORT int
cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last)
{
    return REAL(cuptiActivityPopExternalCorrelationId, int, uint64_t *)(kind,
                                                                        last);
}

EXPORT int
cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
    return REAL(cuptiActivityEnableRuntimeApi, uint32_t, uint8_t)(cbid, on);
}

EXPORT int
cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
    return REAL(cuptiActivityEnableDriverApi, uint32_t, uint8_t)(cbid, on);
}

EXPORT int
cuptiGetGraphNodeId(void *node, uint64_t *id)
{
    return REAL(cuptiGetGraphNodeId, void *, uint64_t *)(node, id);
}
