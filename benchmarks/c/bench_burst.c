/* Launches 1 000 000 times a second from four threads, for some seconds:
 * counts lost launches, and measures the collector's memory.
 *
 * Build it like bench_decode.c.  CUPTI is a stub: each thread has its own
 * buffer, as in CUDA 13, writes the record of a kernel right after the launch
 * and gives the buffer back when it is full. */
#include "gpu/collector.h"
#include "gpu/cupti_abi.h"
#include "gpu/cupti_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4, PER_MS = 250, RECORD = 216 };
#ifdef QUICK
enum { SECONDS = 1 };
#else
enum { SECONDS = 5 };
#endif
enum { RUNTIME_LAUNCH = 211, DRIVER_LAUNCH = 307 };

static fp_gpu gpu;
static _Atomic uint32_t correlation = 1;
static _Atomic uint64_t taken_bytes, peak_bytes, refused;

static void *
take(void *ctx, size_t size)
{
    (void)ctx;
    uint64_t now = atomic_fetch_add(&taken_bytes, size) + size;
    uint64_t peak = atomic_load(&peak_bytes);
    while (now > peak &&
           !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
    }
    return malloc(size);
}

static void
give(void *ctx, void *block, size_t size)
{
    (void)ctx;
    atomic_fetch_sub(&taken_bytes, size);
    free(block);
}

static int64_t
clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- CUPTI ---- */

static int
subscribe(void **subscriber, fp_cupti_callback f, void *user)
{
    (void)f, (void)user;
    *subscriber = &gpu;
    return 0;
}

static int
unsubscribe(void *subscriber)
{
    (void)subscriber;
    return 0;
}

static int
enable_callback(uint32_t on, void *subscriber, int domain, uint32_t cbid)
{
    (void)on, (void)subscriber, (void)domain, (void)cbid;
    return 0;
}

static int
register_buffers(fp_cupti_request request, fp_cupti_complete complete)
{
    (void)request, (void)complete;
    return 0;
}

static int
of_a_kind(int kind)
{
    (void)kind;
    return 0;
}

static int
flush_all(uint32_t flags)
{
    (void)flags;
    return 0;
}

static int
next_record(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint8_t *next = *record == NULL ? buffer : *record + RECORD;
    if (next + RECORD > buffer + valid) {
        return FP_CUPTI_MAX_LIMIT_REACHED;
    }
    *record = next;
    return 0;
}

static int
dropped(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    *count = 0;
    return 0;
}

static int
get_timestamp(uint64_t *ns)
{
    *ns = (uint64_t)clock_ns(CLOCK_REALTIME);
    return 0;
}

static int
get_result_string(int result, const char **text)
{
    (void)result;
    *text = "?";
    return 0;
}

/* ---- the program ---- */

static void
write_kernel(uint8_t *at, uint32_t corr, uint64_t now)
{
    static const char name[] = "a_kernel";
    const char *text = name;
    uint32_t kind = FP_CUPTI_CONCURRENT_KERNEL;
    uint64_t end = now + 200;
    memset(at, 0, RECORD);
    memcpy(at + FP_AT_KIND, &kind, sizeof(kind));
    memcpy(at + FP_AT_KERNEL_START, &now, sizeof(now));
    memcpy(at + FP_AT_KERNEL_END, &end, sizeof(end));
    memcpy(at + FP_AT_KERNEL_CORRELATION, &corr, sizeof(corr));
    memcpy(at + FP_AT_KERNEL_NAME, &text, sizeof(text));
}

typedef struct writer {
    uint8_t *buffer;
    size_t size;
    size_t used;
} writer;

static void
give_back(writer *w)
{
    if (w->buffer != NULL &&
        fp_buffers_accept(&gpu.buffers, w->buffer, w->used, NULL, 0)) {
        fp_gpu_wake(&gpu);
    }
    w->buffer = NULL;
}

static void
launch(fp_lane *lane, const fp_thread *self, writer *w)
{
    fp_cupti_call call = {.correlation = atomic_fetch_add(&correlation, 1)};
    for (int site = FP_CUPTI_API_ENTER; site <= FP_CUPTI_API_EXIT; site++) {
        call.site = site;
        fp_lane_enter(lane);
        (void)fp_gpu_on_call(&gpu, lane, self, FP_CUPTI_DOMAIN_DRIVER,
                             DRIVER_LAUNCH, &call);
        fp_lane_exit(lane);
    }
    if (w->buffer != NULL && w->used + RECORD > w->size) {
        give_back(w);
    }
    if (w->buffer == NULL) {
        w->buffer =
            fp_buffers_lend(&gpu.buffers, &w->size, fp_clock_now(&gpu.clock));
        w->used = 0;
    }
    if (w->buffer == NULL) {
        atomic_fetch_add(&refused, 1);
        return;
    }
    write_kernel(w->buffer + w->used, call.correlation,
                 (uint64_t)clock_ns(CLOCK_REALTIME));
    w->used += RECORD;
}

static void *
work(void *argument)
{
    fp_thread *self = argument;
    fp_lane *lane = fp_lane_create(&gpu.lanes);
    writer w = {0};
    fp_gpu_lane_for(&gpu, lane, self);
    lane->has_sections = 1;
    int64_t begin = clock_ns(CLOCK_MONOTONIC);
    for (int64_t ms = 0; ms < SECONDS * 1000; ms++) {
        int64_t left = begin + ms * 1000000 - clock_ns(CLOCK_MONOTONIC);
        if (left > 0) {
            nanosleep(&(struct timespec){0, (long)left}, NULL);
        }
        for (int i = 0; i < PER_MS; i++) {
            launch(lane, self, &w);
        }
    }
    give_back(&w);
    return NULL;
}

static int
nobody(fp_key key)
{
    (void)key;
    return 0;
}

int
main(void)
{
    static const fp_gpu_entries entries;
    const fp_alloc a = {take, give, NULL};
    const fp_limits limits = {1000, 100};
    const fp_gpu_options options = {FP_TIER_CALLBACKS, 1000000000,
                                    10000000000};
    fp_clock clock;
    fp_clock_init(&clock);
    if (fp_gpu_init(&gpu, &a, &clock, &entries, nobody) != FP_OK) {
        return 1;
    }
    gpu.driver.devices = 1;
    gpu.cupti = (fp_cupti){
        .version = 130500,
        .get_result_string = get_result_string,
        .subscribe = subscribe,
        .unsubscribe = unsubscribe,
        .enable_callback = enable_callback,
        .register_buffers = register_buffers,
        .enable = of_a_kind,
        .disable = of_a_kind,
        .flush_all = flush_all,
        .next_record = next_record,
        .dropped = dropped,
        .get_timestamp = get_timestamp,
    };
    if (fp_gpu_start(&gpu, &options) != 0) {
        fprintf(stderr, "%s\n", gpu.why.text);
        return 1;
    }
    pthread_t id[THREADS];
    int64_t begin = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < THREADS; i++) {
        fp_thread *self = fp_thread_create(&a, limits, fp_clock_now(&clock));
        if (self == NULL) {
            return 1;
        }
        self->serial = i + 1;
        if (pthread_create(&id[i], NULL, work, self) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
    }
    double seconds = (double)(clock_ns(CLOCK_MONOTONIC) - begin) * 1e-9;
    fp_gpu_stop(&gpu, 5000000000);
    const fp_gpu_counters *c = &gpu.ledger.counters;
    uint64_t launches = (uint64_t)THREADS * SECONDS * 1000 * PER_MS;
    printf("{\"launches\": %llu, \"launches_per_s\": %.0f, \"kernels\": %llu, "
           "\"lost\": %llu, \"expired\": %llu, \"peak_bytes\": %llu}\n",
           (unsigned long long)launches, (double)launches / seconds,
           (unsigned long long)c->kernels,
           (unsigned long long)(launches - c->launches +
                                atomic_load(&gpu.buffers.discarded) +
                                atomic_load(&refused)),
           (unsigned long long)c->expired_launches,
           (unsigned long long)atomic_load(&peak_bytes));
    return 0;
}
