/* fake_buffers: puts records into the client's buffers and gives them back.
 *
 *   fake_append -> open buffer -> full -> client's complete callback
 *                       `---- flush ----^        (or by the worker thread)
 *
 * A buffer is given back when all its activities have ended; a forced flush
 * does not wait for that. */
#include "fake_state.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local int callback_depth;

int
fake_in_callback(void)
{
    return callback_depth > 0;
}

static int
is_activity(uint32_t kind)
{
    return kind == FAKE_KERNEL || kind == FAKE_MEMCPY || kind == FAKE_MEMSET ||
           kind == FAKE_PEER || kind == FAKE_GRAPH_TRACE;
}

/* ---- the other client ---- */

static void
thief_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *size = 1 << 16;
    *buffer = malloc(*size);
    *max_records = 0;
}

/* ---- writing and giving back ---- */

static void
buffer_free(fake_buffer *b)
{
    free(b->record);
    free(b);
}

void
fake_finalize(void)
{
    fake_flush(1);
    pthread_mutex_lock(&fake.lock);
    fake.request = NULL;
    fake.complete = NULL;
    pthread_mutex_unlock(&fake.lock);
}

/* Has anyone else written into the client's memory meanwhile?  The lock is
 * held. */
static int
is_touched(const fake_buffer *b)
{
    for (size_t at = 0; b->mark != 0 && at < b->used; at += sizeof(b->mark)) {
        if (memcmp(b->memory + at, &b->mark, sizeof(b->mark)) != 0) {
            return 1;
        }
    }
    return 0;
}

static int
is_complete(const fake_buffer *b, int64_t now)
{
    for (size_t i = b->records; i-- > 0;) {
        if (is_activity(b->record[i].kind) && b->record[i].end > now) {
            return 0;
        }
    }
    return 1;
}

static void
shuffle(fake_buffer *b)
{
    for (size_t i = b->records; i > 1; i--) {
        size_t j = (size_t)(fake_random() % i);
        fake_record swap = b->record[i - 1];
        b->record[i - 1] = b->record[j];
        b->record[j] = swap;
    }
}

static void
add_to_tally(fake_tally *t, const fake_record *r)
{
    t->count++;
    if (r->kind == FAKE_EXTERNAL) {
        return; /* its bytes are an id, and it has no times */
    }
    t->bytes += (int64_t)r->bytes;
    if (r->end == 0) {
        t->incomplete++;
    }
    else if (r->start == 0) {
        t->zero_time++;
    }
    else if (r->end < r->start) {
        t->backwards++;
    }
    else if (r->is_spoiled) {
        t->spoiled++;
    }
    else {
        t->sum_ns += r->end - r->start;
    }
}

static void
count_delivered(const fake_record *r)
{
    fake_count(FAKE_CTR_records_delivered, 1);
    add_to_tally(&fake.tally[r->kind], r);
    if (r->kind == FAKE_KERNEL) {
        fake_tally *t = fake_name_tally(r->name);
        if (t != NULL) {
            add_to_tally(t, r);
        }
    }
}

/* Converts device times to CUPTI's times; the lock is held. */
static void
tell_times(fake_record *r)
{
    if (!is_activity(r->kind) || r->is_told) {
        return;
    }
    fake_clock clock = fake.option.clock_late ? fake.clock : fake.device_clock;
    int spoiled = fake.to_spoil > 0 && r->kind == FAKE_KERNEL;
    fake.to_spoil -= spoiled;
    int64_t skew = fake.option.skew_ns;
    if (r->start != 0) {
        r->start = spoiled ? 1 : fake_told(clock, r->start - skew);
    }
    if (r->end != 0) {
        r->end = fake_told(clock, r->end - skew);
    }
    if (spoiled || clock == FAKE_CLOCK_FOREIGN) {
        r->is_spoiled = 1;
        fake_count(FAKE_CTR_records_spoiled, 1);
    }
}

/* Writes the records into the client's memory; the lock is held. */
static void
lay_out(fake_buffer *b)
{
    int release = (int)fake.option.release;
    int64_t now = fake_device_now();
    if (b->is_client && is_touched(b)) {
        fake_count(FAKE_CTR_buffers_touched, 1);
    }
    if (fake.option.shuffle != 0) {
        shuffle(b);
    }
    size_t cut = (size_t)fake.option.truncate_bytes;
    b->valid = b->used > cut ? b->used - cut : 0;
    size_t at = 0;
    int in_reach = 1;
    for (size_t i = 0; i < b->records; i++) {
        fake_record *r = &b->record[i];
        if (is_activity(r->kind) && r->end > now) {
            r->end = 0;
            r->start = r->start > now ? 0 : r->start;
        }
        tell_times(r);
        size_t size = fake_cupti_write_record(release, r, b->memory + at);
        at += size;
        in_reach = in_reach && at <= b->valid &&
                   fake_cupti_record_size(release, r->kind) != 0;
        if (!b->is_client) {
            fake_count(FAKE_CTR_records_stolen, 1);
        }
        else if (in_reach) {
            count_delivered(r);
        }
        else {
            fake_count(FAKE_CTR_records_cut, 1);
        }
    }
}

static void
outer_lock(int is_wanted)
{
    if (is_wanted) {
        pthread_mutex_lock(&fake.outer);
    }
}

static void
outer_unlock(int is_wanted)
{
    if (is_wanted) {
        pthread_mutex_unlock(&fake.outer);
    }
}

static void
give_back(fake_buffer *b)
{
    pthread_mutex_lock(&fake.lock);
    if (b->is_client && fake.option.hold_buffers > 0) {
        fake.option.hold_buffers--;
        fake_count(FAKE_CTR_buffers_held, 1);
        b->next = fake.held;
        fake.held = b;
        pthread_mutex_unlock(&fake.lock);
        return;
    }
    int to_thief = fake.is_stolen || !b->is_client;
    if (b->is_client && fake.is_stolen) {
        fake_count(FAKE_CTR_buffers_stolen, 1);
        fake_count(FAKE_CTR_records_stolen, (int64_t)b->records);
    }
    else {
        lay_out(b);
    }
    fake_complete complete = fake.complete;
    int locked = fake.option.lock_callbacks != 0;
    if (b->is_client && !to_thief) {
        fake_count(FAKE_CTR_buffers_completed, 1);
    }
    pthread_mutex_unlock(&fake.lock);
    if (!b->is_client) {
        free(b->memory);
    }
    else if (!to_thief && complete != NULL) {
        outer_lock(locked);
        callback_depth++;
        complete(NULL, 0, b->memory, b->size, b->valid);
        callback_depth--;
        outer_unlock(locked);
    }
    buffer_free(b);
}

static void
give_back_all(fake_buffer *list)
{
    while (list != NULL) {
        fake_buffer *b = list;
        list = b->next;
        give_back(b);
    }
}

static fake_buffer *
append_list(fake_buffer *list, fake_buffer *more)
{
    fake_buffer **end = &list;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = more;
    return list;
}

/* Takes from *list the buffers that may be given back; the lock is held. */
static fake_buffer *
take_ready(fake_buffer **list, int forced)
{
    fake_buffer *ready = NULL;
    int64_t now = fake_device_now();
    while (*list != NULL) {
        fake_buffer *b = *list;
        int is_short = b->used == 0 && b->full;
        if (b->writers != 0) {
            list = &b->next;
        }
        else if (is_short ||
                 (b->records > 0 && (forced || is_complete(b, now)))) {
            *list = b->next;
            b->next = NULL;
            ready = append_list(ready, b);
        }
        else {
            list = &b->next;
        }
    }
    return ready;
}

static fake_buffer *
in_random_order(fake_buffer *list)
{
    fake_buffer *mixed = NULL;
    while (list != NULL) {
        fake_buffer *b = list;
        list = b->next;
        fake_buffer **at = &mixed;
        for (uint64_t skip = fake_random() % 8; skip > 0 && *at != NULL;
             skip--) {
            at = &(*at)->next;
        }
        b->next = *at;
        *at = b;
    }
    return mixed;
}

/* Gives back on the worker thread if it exists, else on this thread. */
static void
hand_over(fake_buffer *ready)
{
    if (ready == NULL) {
        return;
    }
    pthread_mutex_lock(&fake.lock);
    int by_worker = fake.has_worker && fake.option.deliver_thread != 0;
    if (by_worker) {
        fake.queue = append_list(fake.queue, ready);
        pthread_cond_signal(&fake.wake);
    }
    pthread_mutex_unlock(&fake.lock);
    if (!by_worker) {
        give_back_all(ready);
    }
}

static int
is_written(const fake_buffer *list)
{
    for (; list != NULL; list = list->next) {
        if (list->writers != 0) {
            return 1;
        }
    }
    return 0;
}

void
fake_flush(uint32_t flags)
{
    int forced = (flags & 1) != 0;
    pthread_mutex_lock(&fake.lock);
    while (forced && (is_written(fake.open) || is_written(fake.full))) {
        pthread_mutex_unlock(&fake.lock);
        sched_yield();
        pthread_mutex_lock(&fake.lock);
    }
    fake_buffer *ready = take_ready(&fake.full, forced);
    ready = append_list(ready, take_ready(&fake.open, forced));
    if (fake.option.shuffle_buffers != 0) {
        ready = in_random_order(ready);
    }
    pthread_mutex_unlock(&fake.lock);
    hand_over(ready);
    /* A flush returns when the client has everything. */
    pthread_mutex_lock(&fake.lock);
    while (fake.queue != NULL || fake.worker_busy) {
        pthread_cond_wait(&fake.idle, &fake.lock);
    }
    pthread_mutex_unlock(&fake.lock);
}

/* ---- CUPTI's own thread ---- */

static void
wait_for_work(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(fake.flush_period_ms % 1000) * 1000000;
    until.tv_sec += fake.flush_period_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (fake.flush_period_ms == 0) {
        pthread_cond_wait(&fake.wake, &fake.lock);
    }
    else if (pthread_cond_timedwait(&fake.wake, &fake.lock, &until) != 0) {
        fake.queue = append_list(fake.queue, take_ready(&fake.full, 0));
        fake.queue = append_list(fake.queue, take_ready(&fake.open, 0));
    }
}

static void *
work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&fake.lock);
    while (!fake.stop_worker) {
        fake_buffer *list = fake.queue;
        if (list == NULL) {
            wait_for_work();
            continue;
        }
        fake.queue = NULL;
        fake.worker_busy = 1;
        pthread_mutex_unlock(&fake.lock);
        give_back_all(list);
        pthread_mutex_lock(&fake.lock);
        fake.worker_busy = 0;
        pthread_cond_broadcast(&fake.idle);
    }
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

void
fake_worker_start(void)
{
    pthread_mutex_lock(&fake.lock);
    if (!fake.has_worker) {
        fake.has_worker = pthread_create(&fake.worker, NULL, work, NULL) == 0;
    }
    pthread_mutex_unlock(&fake.lock);
}

/* ---- filling ---- */

static fake_buffer **
open_slot(uint64_t owner)
{
    fake_buffer **slot = &fake.open;
    while (*slot != NULL && (*slot)->owner != owner) {
        slot = &(*slot)->next;
    }
    return slot;
}

/* A record in a buffer.  Its thread marks its place without the lock: as in
 * CUPTI, several threads write into one buffer at once. */
typedef struct reserved {
    fake_buffer *buffer; /* NULL: nothing to write */
    size_t at;
    size_t size;
} reserved;

static _Thread_local reserved own;

/* Writes the buffer's mark at the record's place.  Any other write there
 * before the buffer is given back changes the mark. */
static void
mark_own(void)
{
    fake_buffer *b = own.buffer;
    own.buffer = NULL;
    if (b == NULL) {
        return;
    }
    for (size_t i = 0; i < own.size; i += sizeof(b->mark)) {
        memcpy(b->memory + own.at + i, &b->mark, sizeof(b->mark));
    }
    pthread_mutex_lock(&fake.lock);
    b->writers--;
    pthread_mutex_unlock(&fake.lock);
}

/* Returns 1 if [r] fitted; the lock is held. */
static int
push(fake_buffer *b, const fake_record *r)
{
    size_t size = fake_record_room((int)fake.option.release, r->kind);
    if (b->full || b->used + size > b->size ||
        (b->max_records != 0 && b->records >= b->max_records)) {
        return 0;
    }
    if (b->records == b->capacity) {
        size_t capacity = b->capacity != 0 ? 2 * b->capacity : 64;
        fake_record *grown = realloc(b->record, capacity * sizeof(*grown));
        if (grown == NULL) {
            return 0;
        }
        b->record = grown;
        b->capacity = capacity;
    }
    b->record[b->records++] = *r;
    if (b->mark != 0) {
        own = (reserved){b, b->used, size};
        b->writers++;
    }
    b->used += size;
    fake_count(FAKE_CTR_records_written, 1);
    return 1;
}

static int
is_shared(const fake_buffer *list, const fake_buffer *b)
{
    for (; list != NULL; list = list->next) {
        if (list->is_client && list->memory < b->memory + b->size &&
            b->memory < list->memory + list->size) {
            return 1;
        }
    }
    return 0;
}

/* Requests a buffer from the client; the lock is held, but released meanwhile.
 * NULL: the client gave none. */
static fake_buffer *
request_buffer(uint64_t owner)
{
    fake_request request = fake.is_stolen ? thief_request : fake.request;
    int is_client = !fake.is_stolen;
    int locked = fake.option.lock_callbacks != 0 && is_client;
    if (request == NULL) {
        fake_count(FAKE_CTR_records_unregistered, 1);
        return NULL;
    }
    uint8_t *memory = NULL;
    size_t size = 0;
    size_t max_records = 0;
    pthread_mutex_unlock(&fake.lock);
    outer_lock(locked);
    callback_depth++;
    request(&memory, &size, &max_records);
    callback_depth--;
    outer_unlock(locked);
    fake_buffer *b = memory != NULL ? calloc(1, sizeof(*b)) : NULL;
    pthread_mutex_lock(&fake.lock);
    if (b == NULL) {
        fake_count(FAKE_CTR_buffers_null, 1);
        fake_count(FAKE_CTR_records_dropped, 1);
        fake.dropped++;
        return NULL;
    }
    b->memory = memory;
    b->size = size;
    b->max_records = max_records;
    b->owner = owner;
    b->is_client = is_client;
    b->mark = fake.option.mark_buffers ? ~(uint64_t)fake.marks++ : 0;
    if (is_client) {
        if (is_shared(fake.open, b) || is_shared(fake.full, b) ||
            is_shared(fake.held, b) || is_shared(fake.queue, b)) {
            fake_count(FAKE_CTR_buffers_shared, 1);
        }
        memset(memory, 0, size); /* unless the client has declared it zeroed */
        fake_count(FAKE_CTR_buffers_requested, 1);
        if ((uintptr_t)memory % 8 != 0) {
            fake_count(FAKE_CTR_buffers_misaligned, 1);
        }
    }
    return b;
}

/* The lock is held; moves a buffer without room for [r] to the full ones. */
static int
push_or_retire(const fake_record *r, uint64_t owner)
{
    fake_buffer **slot = open_slot(owner);
    fake_buffer *b = *slot;
    if (b == NULL || push(b, r)) {
        return b != NULL;
    }
    *slot = b->next;
    b->next = NULL;
    b->full = 1;
    fake.full = append_list(fake.full, b);
    return 0;
}

static void
place(const fake_record *r)
{
    pthread_mutex_lock(&fake.lock);
    int per_thread = fake_per_thread();
    uint64_t owner = per_thread ? fake_thread() : 0;
    int placed = push_or_retire(r, owner);
    pthread_mutex_unlock(&fake.lock);
    if (placed) {
        mark_own();
        return;
    }
    if (!per_thread) {
        pthread_mutex_lock(&fake.request_lock);
    }
    pthread_mutex_lock(&fake.lock);
    if (!push_or_retire(r, owner)) {
        fake_buffer *b = request_buffer(owner);
        if (b != NULL && push(b, r)) {
            b->next = fake.open;
            fake.open = b;
        }
        else if (b != NULL) {
            fake_count(FAKE_CTR_buffers_short, 1);
            fake_count(FAKE_CTR_records_dropped, 1);
            fake.dropped++;
            b->full = 1;
            fake.full = append_list(fake.full, b);
        }
    }
    pthread_mutex_unlock(&fake.lock);
    mark_own();
    if (!per_thread) {
        pthread_mutex_unlock(&fake.request_lock);
    }
}

static void
give_back_full(void)
{
    pthread_mutex_lock(&fake.lock);
    fake_buffer *ready = fake.full != NULL ? take_ready(&fake.full, 0) : NULL;
    pthread_mutex_unlock(&fake.lock);
    hand_over(ready);
}

static int
is_turn(int64_t every, int64_t n)
{
    return every > 0 && n % every == 0;
}

/* Applies the planned faults of an activity; returns 1 if it has no record. */
static int
spoil(fake_record *r, int64_t n)
{
    const fake_options *o = &fake.option;
    if (is_turn(o->lose_every, n)) {
        fake_count(FAKE_CTR_records_lost, 1);
        return 1;
    }
    if (is_turn(o->drop_every, n)) {
        fake_count(FAKE_CTR_records_dropped, 1);
        fake.dropped++;
        return 1;
    }
    if (is_turn(o->backwards_every, n)) {
        int64_t start = r->start;
        r->start = r->end + 1;
        r->end = start;
    }
    if (is_turn(o->zero_start_every, n) || is_turn(o->zero_both_every, n)) {
        r->start = 0;
    }
    if (is_turn(o->zero_end_every, n) || is_turn(o->zero_both_every, n)) {
        r->end = 0;
    }
    return 0;
}

void
fake_append(const fake_record *r)
{
    fake_record copy = *r;
    fake_record foreign = {0};
    fake_record unknown = {0};
    int is_gone = 0;
    pthread_mutex_lock(&fake.lock);
    if (is_activity(r->kind)) {
        int64_t n = ++fake.device_records;
        is_gone = spoil(&copy, n);
        if (is_turn(fake.option.foreign_every, n)) {
            foreign.kind = n % 2 != 0 ? FAKE_OVERHEAD : FAKE_MARKER;
        }
        if (is_turn(fake.option.unknown_every, n)) {
            unknown.kind = FAKE_UNKNOWN_KIND;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    if (!is_gone) {
        place(&copy);
    }
    if (foreign.kind != 0) {
        place(&foreign);
    }
    if (unknown.kind != 0) {
        place(&unknown);
    }
    give_back_full();
}

static void
forget_in(fake_buffer *list, uint32_t kind)
{
    for (fake_buffer *b = list; b != NULL; b = b->next) {
        size_t kept = 0;
        for (size_t i = 0; i < b->records; i++) {
            if (b->record[i].kind != kind) {
                b->record[kept++] = b->record[i];
                continue;
            }
            b->used -= fake_record_room((int)fake.option.release, kind);
            fake_count(FAKE_CTR_records_disabled, 1);
        }
        b->records = kept;
    }
}

void
fake_forget(uint32_t kind)
{
    pthread_mutex_lock(&fake.lock);
    forget_in(fake.open, kind);
    forget_in(fake.full, kind);
    pthread_mutex_unlock(&fake.lock);
}

/* Another client's open buffers get no more records. */
static void
retire_foreign(void)
{
    fake_buffer **at = &fake.open;
    while (*at != NULL) {
        fake_buffer *b = *at;
        if (b->is_client) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        b->next = NULL;
        b->full = 1;
        fake.full = append_list(fake.full, b);
    }
}

void
fake_register(fake_request request, fake_complete complete)
{
    pthread_mutex_lock(&fake.lock);
    fake.request = request;
    fake.complete = complete;
    fake.is_stolen = 0;
    retire_foreign();
    pthread_mutex_unlock(&fake.lock);
}

/* ---- control of buffers by tests ---- */

void
fake_cupti_flush(uint32_t flags)
{
    fake_flush(flags);
}

void
fake_cupti_deliver_held(void)
{
    pthread_mutex_lock(&fake.lock);
    fake_buffer *list = fake.held;
    fake.held = NULL;
    fake.option.hold_buffers = 0;
    fake.counter[FAKE_CTR_buffers_held] = 0;
    pthread_mutex_unlock(&fake.lock);
    give_back_all(list);
}

void
fake_cupti_steal_buffers(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_stolen = 1;
    pthread_mutex_unlock(&fake.lock);
}

void
fake_cupti_return_buffers(void)
{
    fake_flush(1);
    pthread_mutex_lock(&fake.lock);
    fake.is_stolen = 0;
    fake.request = NULL;
    fake.complete = NULL;
    pthread_mutex_unlock(&fake.lock);
}

void
fake_cupti_complete_foreign(void)
{
    static _Alignas(8) uint8_t memory[256];
    pthread_mutex_lock(&fake.lock);
    fake_record r = {.kind = FAKE_KERNEL, .start = 1, .end = 2};
    size_t valid =
        fake_cupti_write_record((int)fake.option.release, &r, memory);
    fake_complete complete = fake.complete;
    pthread_mutex_unlock(&fake.lock);
    if (complete != NULL) {
        callback_depth++;
        complete(NULL, 0, memory, sizeof(memory), valid);
        callback_depth--;
    }
}

void
fake_cupti_inject(const fake_record *r)
{
    fake_record told = *r;
    told.is_told = 1;
    place(&told);
    give_back_full();
}

static void
drop_list(fake_buffer *list)
{
    while (list != NULL) {
        fake_buffer *b = list;
        list = b->next;
        if (!b->is_client) {
            free(b->memory);
        }
        buffer_free(b);
    }
}

void
fake_buffers_reset(void)
{
    if (fake.has_worker) {
        pthread_mutex_lock(&fake.lock);
        fake.stop_worker = 1;
        pthread_cond_signal(&fake.wake);
        pthread_mutex_unlock(&fake.lock);
        pthread_join(fake.worker, NULL);
    }
    drop_list(fake.open);
    drop_list(fake.full);
    drop_list(fake.held);
    drop_list(fake.queue);
}
