/* player: a libcupti that plays a replay file back.  player.py supplies the
 * content and the times; this file contains the parts that must be in C. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, MAX_LIMIT = 12, INVALID_KIND = 21, KINDS = 64 };
enum { EXTERNAL = 39, EXTERNAL_KIND_AT = 4, EXTERNAL_ID_AT = 8, CUSTOM2 = 5 };

#define ALONE ((uint64_t)1 << 63) /* fastprof's: the thread has no section */

typedef struct call_data { /* CUpti_CallbackData */
    int site;
    const void *until_correlation[7];
    uint32_t correlation;
} call_data;

_Static_assert(offsetof(call_data, correlation) == 64, "as in CUPTI");

static struct {
    uint32_t version;
    int64_t begin_ns;        /* the clock's first reading */
    _Atomic int64_t started; /* the drain thread reads the clock, too */
    uint32_t size[KINDS];
    uint64_t dropped;
    uint64_t pushed;
    void (*call)(void *user, int domain, uint32_t cbid, const void *data);
    void *user;
    void (*request)(uint8_t **buffer, size_t *size, size_t *max_records);
    void (*complete)(void *context, uint32_t stream, uint8_t *buffer,
                     size_t size, size_t valid);
} player;

/* A replay's recording begins earlier than the file's by this time: otherwise
 * events of the first microseconds would come before a slow recording has
 * started. */
enum { AHEAD_NS = 200000000 };

static int64_t
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    int64_t none = 0;
    (void)atomic_compare_exchange_strong(&player.started, &none,
                                         ns + AHEAD_NS);
    return player.begin_ns + ns - atomic_load(&player.started);
}

/* ---- functions for player.py ---- */

EXPORT void
player_begin(uint32_t version, int64_t begin_ns, uint64_t dropped)
{
    memset(&player, 0, sizeof(player));
    player.version = version;
    player.begin_ns = begin_ns;
    player.dropped = dropped;
}

EXPORT void
player_size(uint32_t kind, uint32_t size)
{
    player.size[kind % KINDS] = size;
}

EXPORT int64_t
player_now(void)
{
    return now();
}

EXPORT void
player_call(int domain, uint32_t cbid, int site, uint32_t correlation)
{
    call_data data = {.site = site, .correlation = correlation};
    if (player.call != NULL) {
        player.call(player.user, domain, cbid, &data);
    }
}

/* Recorded ids are places in another process: here all work happens at this
 * thread's place. */
static void
rewrite_externals(uint8_t *at, const uint8_t *end)
{
    uint32_t kind, of;
    for (; at + sizeof(kind) <= end; at += player.size[kind]) {
        memcpy(&kind, at, sizeof(kind));
        if (kind >= KINDS || player.size[kind] == 0) {
            return;
        }
        memcpy(&of, at + EXTERNAL_KIND_AT, sizeof(of));
        if (kind == EXTERNAL && of == CUSTOM2) {
            uint64_t id;
            memcpy(&id, at + EXTERNAL_ID_AT, sizeof(id));
            id = player.pushed | (id & ALONE);
            memcpy(at + EXTERNAL_ID_AT, &id, sizeof(id));
        }
    }
}

/* Returns 0, or -1: the client has no room now. */
EXPORT int
player_give(const uint8_t *records, size_t valid, uint32_t stream)
{
    uint8_t *buffer = NULL;
    size_t size = 0, max_records = 0;
    player.request(&buffer, &size, &max_records);
    if (size < valid) {
        player.complete(NULL, stream, buffer, size, 0);
        return -1;
    }
    memcpy(buffer, records, valid);
    rewrite_externals(buffer, buffer + valid);
    player.complete(NULL, stream, buffer, size, valid);
    return 0;
}

/* ---- CUPTI ---- */

EXPORT int
cuptiGetVersion(uint32_t *version)
{
    *version = player.version;
    return OK;
}

EXPORT int
cuptiGetResultString(int result, const char **text)
{
    *text = result == OK ? "CUPTI_SUCCESS" : "an error of the player's";
    return OK;
}

EXPORT int
cuptiGetTimestamp(uint64_t *ns)
{
    *ns = (uint64_t)now();
    return OK;
}

EXPORT int
cuptiSubscribe(void **subscriber,
               void (*f)(void *user, int domain, uint32_t cbid,
                         const void *data),
               void *user)
{
    player.call = f;
    player.user = user;
    *subscriber = &player;
    return OK;
}

EXPORT int
cuptiUnsubscribe(void *subscriber)
{
    (void)subscriber;
    player.call = NULL;
    return OK;
}

EXPORT int
cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t cbid)
{
    (void)on, (void)subscriber, (void)domain, (void)cbid;
    return OK;
}

EXPORT int
cuptiActivityRegisterCallbacks(void (*request)(uint8_t **buffer, size_t *size,
                                               size_t *max_records),
                               void (*complete)(void *context, uint32_t stream,
                                                uint8_t *buffer, size_t size,
                                                size_t valid))
{
    player.request = request;
    player.complete = complete;
    return OK;
}

EXPORT int
cuptiActivityEnable(int kind)
{
    (void)kind;
    return OK;
}

EXPORT int
cuptiActivityDisable(int kind)
{
    (void)kind;
    return OK;
}

EXPORT int
cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
    (void)cbid, (void)on;
    return OK;
}

EXPORT int
cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
    (void)cbid, (void)on;
    return OK;
}

EXPORT int
cuptiActivityFlushAll(uint32_t flags)
{
    (void)flags;
    return OK;
}

EXPORT int
cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream,
                                  size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = player.dropped;
    player.dropped = 0;
    return OK;
}

EXPORT int
cuptiActivityPushExternalCorrelationId(int kind, uint64_t id)
{
    player.pushed = kind == CUSTOM2 ? id & ~ALONE : player.pushed;
    return OK;
}

EXPORT int
cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last)
{
    (void)kind;
    *last = player.pushed;
    return OK;
}

EXPORT int
cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint32_t kind;
    size_t at = 0;
    if (*record != NULL) {
        memcpy(&kind, *record, sizeof(kind));
        at = (size_t)(*record - buffer) + player.size[kind];
    }
    if (at + sizeof(kind) > valid) {
        return MAX_LIMIT;
    }
    memcpy(&kind, buffer + at, sizeof(kind));
    if (kind >= KINDS || player.size[kind] == 0) {
        return INVALID_KIND;
    }
    if (at + player.size[kind] > valid) {
        return MAX_LIMIT;
    }
    *record = buffer + at;
    return OK;
}
