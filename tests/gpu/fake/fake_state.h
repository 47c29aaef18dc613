/* fake_state: shared by the files of the fake.  One lock guards all of it; it
 * is never held while the client's callbacks run. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include "fake_cupti.h"

#include <pthread.h>

enum {
    FAKE_DOMAINS = 8,
    FAKE_CBIDS = 1024,
    FAKE_STREAMS = 64,
    FAKE_EXTERNAL_KINDS = 6,
    FAKE_EXTERNAL_DEPTH = 64,
    FAKE_NAME_LENGTH = 64,
};

enum { /* CUptiResult */
       FAKE_OK = 0,
       FAKE_INVALID_PARAMETER = 1,
       FAKE_INVALID_OPERATION = 7,
       FAKE_OUT_OF_MEMORY = 8,
       FAKE_PARAMETER_SIZE = 10,
       FAKE_NOT_IMPLEMENTED = 11,
       FAKE_MAX_LIMIT = 12,
       FAKE_NOT_COMPATIBLE = 14,
       FAKE_NOT_INITIALIZED = 15,
       FAKE_QUEUE_EMPTY = 18,
       FAKE_INVALID_KIND = 21,
       FAKE_MULTIPLE_SUBSCRIBERS = 39,
       FAKE_UNKNOWN = 999,
};

enum { FAKE_DOMAIN_DRIVER = 1, FAKE_DOMAIN_RUNTIME = 2, FAKE_DOMAIN_RESOURCE };

typedef void (*fake_callback)(void *user, int domain, uint32_t cbid,
                              const void *data);
typedef void (*fake_request)(uint8_t **buffer, size_t *size,
                             size_t *max_records);
typedef void (*fake_complete)(void *context, uint32_t stream, uint8_t *buffer,
                              size_t size, size_t valid);

/* The owner of the clock that CUPTI uses. */
typedef enum fake_clock {
    FAKE_CLOCK_SYSTEM,
    FAKE_CLOCK_FOREIGN,
    FAKE_CLOCK_CLIENT,
} fake_clock;

typedef enum fake_function {
#define X(name) FAKE_FN_##name,
    FAKE_FUNCTIONS(X)
#undef X
        FAKE_FN_COUNT
} fake_function;

typedef enum fake_counter {
#define X(name) FAKE_CTR_##name,
    FAKE_COUNTERS(X)
#undef X
        FAKE_CTR_COUNT
} fake_counter;

typedef struct fake_options {
#define X(name, value) int64_t name;
    FAKE_OPTIONS(X)
#undef X
} fake_options;

/* One exported function: calls by the client, and planned faults. */
typedef struct fake_plan {
    int64_t calls;
    int64_t after;
    int64_t slow_ms;
    int code;
} fake_plan;

/* Delivered records of one kind or of one kernel's name. */
typedef struct fake_tally {
    int64_t count;
    int64_t sum_ns;
    int64_t bytes;
    int64_t incomplete;
    int64_t zero_time;
    int64_t backwards;
    int64_t spoiled;
} fake_tally;

typedef struct fake_name {
    struct fake_name *next;
    char *text;  /* owned */
    char **copy; /* owned: the addresses handed out, each owned */
    size_t copies;
    size_t turn;
    fake_tally tally;
} fake_name;

/* Records are stored separately and written to the client's memory on
 * delivery: only then is it known which activities are still running. */
typedef struct fake_buffer {
    struct fake_buffer *next;
    uint8_t *memory; /* the client's */
    size_t size;
    size_t max_records;  /* 0: as many as fit */
    size_t used;         /* bytes that the records will take */
    uint64_t owner;      /* launching thread; 0: all */
    fake_record *record; /* owned */
    size_t records;
    size_t capacity;
    size_t valid;
    int full;
    int is_client; /* not the thief's */
    int writers;   /* threads that mark their record's place now */
    uint64_t mark; /* no other buffer has it */
} fake_buffer;

typedef struct fake_stream {
    uint32_t device;
    uint32_t stream;
    int64_t free_at;
} fake_stream;

typedef struct fake_node {
    uint64_t id;
    fake_record record; /* without times and correlation */
    int64_t duration_ns;
} fake_node;

typedef struct fake_graph {
    struct fake_graph *next;
    uint32_t id;
    struct fake_graph *original; /* of an executable graph */
    fake_node **node;            /* owned, each owned */
    size_t nodes;
} fake_graph;

typedef struct fake_state {
    pthread_mutex_t lock;
    pthread_mutex_t request_lock; /* one request at a time */
    pthread_mutex_t outer;        /* recursive, for lock_callbacks */
    fake_options option;
    uint64_t epoch; /* counts resets: earlier thread-local state is void */
    int pid;
    fake_plan plan[FAKE_FN_COUNT];
    int64_t counter[FAKE_CTR_COUNT];
    fake_tally tally[FAKE_KINDS];
    fake_name *names;

    int is_manual;
    int64_t manual_ns;
    int64_t clock_base; /* of the drift */
    fake_clock clock;
    fake_clock
        device_clock; /* with clock_late=0: when the device was first used */
    fake_clock clock_before; /* clock of spoiled records */
    uint64_t (*stamp)(void); /* of FAKE_CLOCK_CLIENT */
    int64_t to_spoil;
    int device_used;
    int uses_v2;
    int sessions; /* number of times that kernels were enabled */
    uint64_t random;

    fake_callback callback; /* of the one subscriber */
    void *callback_user;
    int is_subscribed;
    char holder[FAKE_NAME_LENGTH]; /* another subscriber; empty: none */
    uint8_t callback_on[FAKE_DOMAINS][FAKE_CBIDS];

    fake_request request;
    fake_complete complete;
    int is_stolen; /* another client's callbacks are registered */
    uint8_t kind_on[FAKE_KINDS];
    uint8_t api_off[FAKE_DOMAINS][FAKE_CBIDS]; /* left out of their kind */
    uint64_t attribute[16];
    int thread_id_type;
    uint32_t flush_period_ms;
    uint32_t correlation; /* the next one */
    int64_t device_records;
    uint64_t leaked; /* records of nodes, with nodes_leak */
    size_t dropped;  /* since the last query */

    uint64_t marks;    /* buffers so far */
    fake_buffer *open; /* being filled */
    fake_buffer *full; /* ... waiting for running activities */
    fake_buffer *held;
    fake_stream stream[FAKE_STREAMS];
    size_t streams;
    fake_graph *graphs;
    uint32_t graph_ids;

    pthread_t worker;
    pthread_cond_t wake;
    pthread_cond_t idle;
    int has_worker;
    int stop_worker;
    int worker_busy;
    fake_buffer *queue;
} fake_state;

extern fake_state fake;

static inline void
fake_count(fake_counter c, int64_t n)
{
    fake.counter[c] += n;
}

/* ---- fake_records.c ---- */

uint32_t
fake_version_of(int release);

/* One more than the greatest callback id of a domain. */
uint32_t
fake_cbids_of(int release, int domain);

uint32_t
fake_context_of(uint32_t device);

/* As fake_cupti_record_size, and 64 for an unknown kind. */
size_t
fake_record_room(int release, uint32_t kind);

/* ---- fake_control.c ---- */

/* The lock is held. */
int64_t
fake_now(void);

/* The time of the device, which no other clock changes. */
int64_t
fake_device_now(void);

/* The time of [clock] at the device's [ns].  The lock is held. */
int64_t
fake_told(fake_clock clock, int64_t ns);

/* The lock is held. */
void
fake_use_clock(fake_clock clock);

int
fake_per_thread(void);

/* The lock is not held; bounded by max_sleep_ns. */
void
fake_wait_until(int64_t ns);

void
fake_sleep_ns(int64_t ns);

uint64_t
fake_random(void);

/* The address of the kernel's name in the next record; the lock is held.  NULL
 * stays NULL. */
const char *
fake_name_address(const char *text);

fake_tally *
fake_name_tally(const char *address);

uint64_t
fake_thread(void);

/* ---- fake_buffers.c ---- */

/* The lock is not held in any of these. */
void
fake_append(const fake_record *r);

void
fake_flush(uint32_t flags);

/* Drops waiting records of [kind]. */
void
fake_forget(uint32_t kind);

void
fake_register(fake_request request, fake_complete complete);

/* Gives back or drops all open buffers, and removes all registrations. */
void
fake_finalize(void);

void
fake_worker_start(void);

void
fake_buffers_reset(void);

/* Is this thread inside one of the client's callbacks? */
int
fake_in_callback(void);

/* ---- fake_cupti.c ---- */

/* Writes the innermost external id of each kind as records of this thread;
 * returns their number. [r] has room for FAKE_EXTERNAL_KINDS. */
size_t
fake_externals(fake_record *r, uint32_t correlation);

/* ---- fake_device.c ---- */

void
fake_device_reset(void);

#endif
