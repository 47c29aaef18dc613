/* Measures the cost of decoding: nanoseconds per record in fp_ledger_record
 * and in the functions before it, with records in the layout of CUPTI 13.0.
 *
 *     mkdir -p build && cc -O2 -std=c11 -D_GNU_SOURCE -DNDEBUG -I csrc \
 *         -I tests/gpu/fake csrc/core/[a-z]*.c csrc/gpu/[a-z]*.c \
 *         tests/gpu/fake/fake_records.c benchmarks/c/bench_decode.c \
 *         -o build/bench_decode -pthread -ldl && build/bench_decode
 *
 * The mix: 40 kernels under 200 places in a tree, 4 streams, every tenth
 * activity a copy, at 100 000 launches a second.  Each buffer of 1 MB is
 * decoded when it is full, after its launches; a flush period ends each
 * second. */
#include "fake_cupti.h"
#include "gpu/cupti_abi.h"
#include "gpu/cupti_records.h"
#include "gpu/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RELEASE = 13000, NAMES = 40, SITES = 200, STREAMS = 4 };
enum { BUFFER = 5000, BUFFERS = 20, PERIODS = 10 };
#ifdef QUICK
enum { ROUNDS = 1 };
#else
enum { ROUNDS = 7 };
#endif
enum { LAUNCHES = BUFFER * BUFFERS * PERIODS, SPACING_NS = 10000 };
enum { SECOND_NS = BUFFER * BUFFERS * SPACING_NS };
enum { LAUNCH_CBID = 211, COPY_CBID = 41 };
/* Bytes for the records of one launch. */
enum { ROOM = 300 };

static char names[NAMES][128];

typedef struct input {
    fp_event *event;
    uint8_t *record; /* one after another */
    size_t bytes;
    uint8_t *calls; /* call and external id, for external correlation */
    size_t call_bytes;
} input;

typedef struct cost { /* ns per launch */
    double event;
    double call;
    double record;
    double age;
} cost;

static double
now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static uint32_t
below(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

static void
name_kernels(void)
{
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof(names[i]),
                 "_ZN2at6native29vectorized_elementwise_kernelILi%dENS0_"
                 "15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
                 i);
    }
}

/* A launch each 10 us; kernels and copies of 1 to 30 us on the stream that is
 * free first. */
static void
fill(input *in, int buffer)
{
    uint64_t state = (uint64_t)buffer + 1;
    int64_t begin = SECOND_NS + (int64_t)buffer * BUFFER * SPACING_NS;
    int64_t free_at[STREAMS] = {begin, begin, begin, begin};
    in->bytes = in->call_bytes = 0;
    for (int i = 0; i < BUFFER; i++) {
        uint32_t corr = (uint32_t)(buffer * BUFFER + i + 1);
        int64_t at = begin + (int64_t)i * SPACING_NS;
        fp_place place = (fp_place)1 << 32 | (1 + below(&state, SITES));
        int next = 0;
        for (int s = 1; s < STREAMS; s++) {
            next = free_at[s] < free_at[next] ? s : next;
        }
        int64_t start = free_at[next] > at ? free_at[next] : at + 3000;
        int64_t end = start + 1000 + below(&state, 29000);
        free_at[next] = end;
        int copies = below(&state, 10) == 0;
        /* A place launches the same few kernels again and again. */
        uint32_t kernel =
            (fp_place_node(place) * 7 + below(&state, 4)) % NAMES;
        fake_record r = {
            .kind = copies ? FAKE_MEMCPY : FAKE_KERNEL,
            .type = 1,
            .start = start,
            .end = end,
            .bytes = 4096,
            .stream = 7 + (uint32_t)next,
            .correlation = corr,
            .name = names[kernel],
            .grid = {(int32_t)below(&state, 1000) + 1, 1, 1},
            .block = {(int32_t)(kernel % 3 + 1) * 128, 1, 1},
            .registers = 32 + kernel % 2 * 32,
        };
        in->bytes +=
            fake_cupti_write_record(RELEASE, &r, in->record + in->bytes);
        in->event[i] = (fp_event){.kind = FP_EVENT_LAUNCH,
                                  .corr = corr,
                                  .ticks = at,
                                  .place = place};
        fake_record id = {.kind = FAKE_EXTERNAL,
                          .type = FP_CUPTI_EXTERNAL_CUSTOM2,
                          .bytes = place,
                          .correlation = corr};
        fake_record call = {.kind = FAKE_RUNTIME,
                            .type = copies ? COPY_CBID : LAUNCH_CBID,
                            .start = at,
                            .end = at + 2000,
                            .correlation = corr};
        in->call_bytes +=
            fake_cupti_write_record(RELEASE, &id, in->calls + in->call_bytes);
        in->call_bytes += fake_cupti_write_record(RELEASE, &call,
                                                  in->calls + in->call_bytes);
    }
}

static void
walk(fp_ledger *l, const uint8_t *at, size_t bytes,
     void (*read)(fp_ledger *l, const uint8_t *record))
{
    size_t sizes[FAKE_KINDS];
    for (uint32_t kind = 0; kind < FAKE_KINDS; kind++) {
        sizes[kind] = fake_cupti_record_size(RELEASE, kind);
    }
    for (const uint8_t *end = at + bytes; at < end;
         at += sizes[fp_read_u32(at, FP_AT_KIND)]) {
        read(l, at);
    }
}

static void
check(const fp_ledger *l)
{
    const uint64_t n = LAUNCHES;
    uint64_t placed = 0;
    const fp_activity_sum *row = l->sums.activity.row;
    for (uint32_t i = 0; i < l->sums.activity.count; i++) {
        placed += row[i].site.how == FP_HOW_OWN ? row[i].count : 0;
    }
    if (l->counters.launches != n || placed != n ||
        l->counters.kernels + l->counters.copies != n || l->outstanding != 0) {
        fprintf(stderr, "the ledger lost something\n");
        exit(1);
    }
}

static void
one_round(input *in, int external, cost *best)
{
    fp_alloc a = fp_alloc_libc();
    fp_ledger l;
    if (fp_ledger_init(&l, &a, 1, 1.0) != FP_OK) {
        exit(1);
    }
    l.external = external;
    fp_clock_map_add(&l.clock, 1, 1);
    fp_clock_map_add(&l.clock, 3600ll * SECOND_NS, 3600ll * SECOND_NS);
    fp_ledger_begin(&l, 2);
    cost c = {0};
    for (int buffer = 0; buffer < BUFFERS * PERIODS; buffer++) {
        int period = buffer / BUFFERS;
        fill(in, buffer);
        double t0 = now_ns();
        for (int i = 0; !external && i < BUFFER; i++) {
            fp_ledger_event(&l, &in->event[i]);
        }
        double t1 = now_ns();
        if (external) {
            walk(&l, in->calls, in->call_bytes, fp_ledger_correlate);
            fp_ledger_settle(&l);
        }
        double t2 = now_ns();
        fp_ledger_begin_buffer(&l);
        walk(&l, in->record, in->bytes, fp_ledger_record);
        double t3 = now_ns();
        if (buffer % BUFFERS == BUFFERS - 1) {
            fp_ledger_age(&l, (int64_t)period * SECOND_NS, 0);
        }
        double t4 = now_ns();
        if (period == 0) {
            continue; /* tables grow to their size */
        }
        c.event += t1 - t0;
        c.call += t2 - t1;
        c.record += t3 - t2;
        c.age += t4 - t3;
    }
    check(&l);
    fp_ledger_fini(&l);
    best->event = c.event < best->event ? c.event : best->event;
    best->call = c.call < best->call ? c.call : best->call;
    best->record = c.record < best->record ? c.record : best->record;
    best->age = c.age < best->age ? c.age : best->age;
}

int
main(void)
{
    const double n = (double)LAUNCHES / PERIODS * (PERIODS - 1);
    cost best[2] = {{1e18, 1e18, 1e18, 1e18}, {1e18, 1e18, 1e18, 1e18}};
    input in = {
        .event = calloc(BUFFER, sizeof(fp_event)),
        .record = calloc(BUFFER, ROOM),
        .calls = calloc(BUFFER, ROOM),
    };
    if (in.event == NULL || in.record == NULL || in.calls == NULL) {
        return 1;
    }
    name_kernels();
    for (int round = 0; round < ROUNDS; round++) {
        one_round(&in, 0, &best[0]);
        one_round(&in, 1, &best[1]);
    }
    printf("{\"record_ns\": %.2f, \"launch_event_ns\": %.2f, "
           "\"age_ns\": %.2f, \"external_record_ns\": %.2f, "
           "\"external_call_ns\": %.2f, \"external_age_ns\": %.2f}\n",
           best[0].record / n, best[0].event / n, best[0].age / n,
           best[1].record / n, best[1].call / n, best[1].age / n);
    return 0;
}
