/* Measures the cost of the timeline: nanoseconds per interval added and
 * folded, over a million intervals, the best of some rounds.
 *
 *     mkdir -p build && cc -O2 -std=c11 -DNDEBUG -I csrc csrc/core/alloc.c \
 *         csrc/gpu/timeline.c benchmarks/c/bench_timeline.c \
 *         -o build/bench_timeline && build/bench_timeline
 */
#define _POSIX_C_SOURCE 200809L

#include "gpu/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Folds after every FOLD intervals, as once a second under load; the intervals
 * of the last second stay waiting.  BUFFER: records in CUPTI's buffer of 1
 * MB. */
enum { COUNT = 1000000, STREAMS = 4, FOLD = 100000, ROUNDS = 9 };
enum { BUFFER = 3700, WAITING_NS = 200000000 };

static double
now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int64_t
below(uint64_t *state, uint64_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*state >> 33) % limit);
}

/* Kernels of 1 to 20 us, one after another in each stream; each record goes to
 * the stream that is free first, so starts ascend. */
static void
fill(fp_interval *v, int streams)
{
    uint64_t state = 1;
    int64_t free_at[STREAMS] = {0};
    for (int i = 0; i < COUNT; i++) {
        int next = 0;
        for (int s = 1; s < streams; s++) {
            next = free_at[s] < free_at[next] ? s : next;
        }
        int64_t end = free_at[next] + 1000 + below(&state, 19000);
        v[i] = (fp_interval){free_at[next], end, (uint8_t)(next % 3)};
        free_at[next] = end + below(&state, 2000);
    }
}

static int
by_end(const void *a, const void *b)
{
    int64_t x = ((const fp_interval *)a)->end;
    int64_t y = ((const fp_interval *)b)->end;
    return x < y ? -1 : x > y;
}

/* A buffer full of one class, then one of the next, from the same time. */
static void
by_buffer(fp_interval *v)
{
    static fp_interval copy[STREAMS * BUFFER];
    int block = STREAMS * BUFFER;
    for (int from = 0; from + block <= COUNT; from += block) {
        int n = 0;
        for (int class = 0; class < FP_GPU_CLASSES; class ++) {
            for (int i = from; i < from + block; i++) {
                if (v[i].gpu_class == class) {
                    copy[n++] = v[i];
                }
            }
        }
        for (int i = 0; i < block; i++) {
            v[from + i] = copy[i];
        }
    }
}

static void
shuffle(fp_interval *v)
{
    uint64_t state = 2;
    for (int i = COUNT - 1; i > 0; i--) {
        int64_t k = below(&state, (uint64_t)i + 1);
        fp_interval x = v[i];
        v[i] = v[k];
        v[k] = x;
    }
}

static double
round_ns(const fp_interval *v, int64_t waiting_ns)
{
    fp_alloc a = fp_alloc_libc();
    fp_timeline t;
    fp_timeline_init(&t, &a, 0);
    double begin = now_ns();
    for (int i = 0; i < COUNT; i++) {
        fp_timeline_add(&t, v[i].start, v[i].end,
                        (fp_gpu_class)v[i].gpu_class);
        if (i % FOLD == FOLD - 1) {
            fp_timeline_fold(&t, v[i].start - waiting_ns);
        }
    }
    fp_timeline_fold(&t, INT64_MAX / 2);
    double ns = now_ns() - begin;
    if (t.late != 0) {
        fprintf(stderr, "%llu came late\n", (unsigned long long)t.late);
        exit(1);
    }
    fp_timeline_fini(&t);
    return ns / COUNT;
}

static void
show(const char *what, const fp_interval *v, int64_t waiting_ns)
{
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double ns = round_ns(v, waiting_ns);
        best = ns < best ? ns : best;
    }
    printf("%-40s %6.1f ns per interval\n", what, best);
}

int
main(void)
{
    static fp_interval v[COUNT];
    fill(v, 1);
    show("one stream", v, WAITING_NS);
    fill(v, STREAMS);
    qsort(v, COUNT, sizeof(v[0]), by_end);
    show("4 streams, in the order of their ends", v, WAITING_NS);
    fill(v, STREAMS);
    by_buffer(v);
    show("4 streams, buffer by buffer", v, WAITING_NS);
    shuffle(v);
    show("shuffled, folded once", v, INT64_MAX / 4);
    return 0;
}
