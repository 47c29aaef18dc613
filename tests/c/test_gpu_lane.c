#include "gpu/lane.h"
#include "gpu_kit.h"

#include <pthread.h>
#include <sched.h>

#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

static int
write_number(fp_lane *lane, uint64_t n)
{
    return fp_lane_write(lane, &(fp_event){.kind = FP_EVENT_LAUNCH,
                                           .id = n,
                                           .corr = (uint32_t)n,
                                           .ticks = (int64_t)n});
}

static void
check_number(const fp_event *e, uint64_t n)
{
    CHECK(e != NULL);
    CHECK_UINT(e->id, n);
    CHECK_UINT(e->corr, (uint32_t)n);
    CHECK_INT(e->ticks, (int64_t)n);
}

FP_TEST(gpu_lane_events_come_in_order_and_chunks_go)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_lanes all;
    fp_lanes_init(&all, &a);
    fp_lane *lane = fp_lane_create(&all);
    CHECK(fp_lane_read(lane) == NULL);
    uint64_t written = 0, read = 0, state = 1;
    size_t empty = memory.bytes;
    for (int round = 0; round < 300; round++) {
        for (uint32_t n = fake_below(&state, 700); n != 0; n--) {
            int filled = write_number(lane, written++);
            CHECK_INT(filled, written % FP_LANE_CHUNK == 0);
        }
        for (uint32_t n = fake_below(&state, 800); n != 0 && read < written;
             n--) {
            check_number(fp_lane_read(lane), read++);
        }
    }
    while (read < written) {
        check_number(fp_lane_read(lane), read++);
    }
    CHECK(fp_lane_read(lane) == NULL);
    CHECK_UINT(memory.bytes, empty);
    CHECK_UINT(all.lost, 0);
    fp_lanes_fini(&all);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(gpu_lane_f32_beyond_the_limit_events_are_lost_and_counted)
{
    fp_alloc a = fp_alloc_libc();
    fp_lanes all;
    fp_lanes_init(&all, &a);
    fp_lane *lane = fp_lane_create(&all);
    uint64_t room = (uint64_t)FP_LANE_CHUNKS * FP_LANE_CHUNK;
    for (uint64_t n = 0; n < room; n++) {
        (void)write_number(lane, n);
    }
    CHECK_UINT(all.lost, 0);
    for (uint64_t n = 0; n < 1000; n++) {
        /* a full lane always wakes the reader */
        CHECK_INT(write_number(lane, n), 1);
    }
    CHECK_UINT(all.lost, 1000);
    CHECK(fp_lane_create(&all) == NULL);
    CHECK_UINT(all.chunks, FP_LANE_CHUNKS);
    for (uint64_t n = 0; n < room; n++) {
        check_number(fp_lane_read(lane), n);
    }
    CHECK(fp_lane_read(lane) == NULL);
    /* Reading makes room: the end of the last chunk gets a new one. */
    CHECK_UINT(all.chunks, 1);
    for (uint64_t n = room; n < room + 300; n++) {
        (void)write_number(lane, n);
    }
    for (uint64_t n = room; n < room + 300; n++) {
        check_number(fp_lane_read(lane), n);
    }
    CHECK_UINT(all.lost, 1000);
    fp_lanes_fini(&all);
}

FP_TEST(gpu_lane_f36_each_allocation)
{
    for (uint64_t at = 1; at <= 5; at++) {
        fake_memory memory = {.fail_at = at};
        fp_alloc a = fake_alloc(&memory);
        fp_lanes all;
        fp_lanes_init(&all, &a);
        fp_lane *lane = fp_lane_create(&all);
        CHECK((lane == NULL) == (at <= 2));
        uint64_t read = 0;
        for (uint64_t n = 0; lane != NULL && n < 4 * FP_LANE_CHUNK; n++) {
            (void)write_number(lane, n);
        }
        while (lane != NULL && fp_lane_read(lane) != NULL) {
            read++;
        }
        CHECK_UINT(all.lost, at >= 3 && at <= 5);
        CHECK_UINT(read + all.lost, lane != NULL ? 4 * FP_LANE_CHUNK : 0);
        fp_lanes_fini(&all);
        CHECK_UINT(memory.bytes, 0);
        CHECK_UINT(all.chunks, 0);
    }
}

FP_TEST(gpu_lane_sweep_frees_ended_empty_lanes)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_lanes all;
    fp_lanes_init(&all, &a);
    fp_lanes_sweep(&all);
    fp_lane *lane[4];
    size_t each = 0;
    for (int i = 0; i < 4; i++) {
        size_t before = memory.bytes;
        lane[i] = fp_lane_create(&all);
        each = memory.bytes - before;
    }
    write_number(lane[1], 7);
    atomic_store(&lane[1]->ended, 1);
    atomic_store(&lane[2]->ended, 1);
    /* the newest; new lanes are linked before it */
    atomic_store(&lane[3]->ended, 1);
    fp_lanes_sweep(&all);
    CHECK_UINT(memory.bytes, 3 * each);
    check_number(fp_lane_read(lane[1]), 7);
    fp_lanes_sweep(&all);
    CHECK_UINT(memory.bytes, 2 * each);
    (void)fp_lane_create(&all);
    fp_lanes_sweep(&all);
    CHECK_UINT(memory.bytes, 2 * each);
    CHECK(atomic_load(&all.first)->next == lane[0]);
    fp_lanes_fini(&all);
    CHECK_UINT(memory.bytes, 0);
}

/* ---- threads ---- */

enum { WRITERS = 3, EACH = 150000 };

typedef struct writer {
    pthread_t thread;
    fp_lanes *all;
    uint64_t number;
    uint64_t events;
    _Atomic uint64_t *ended;
} writer;

static void *
write_many(void *arg)
{
    writer *w = arg;
    fp_lane *lane = fp_lane_create(w->all);
    CHECK(lane != NULL);
    for (uint64_t n = 0; n < w->events; n++) {
        fp_lane_enter(lane);
        (void)fp_lane_write(
            lane, &(fp_event){.id = n, .place = w->number, .via = ~n});
        fp_lane_exit(lane);
    }
    atomic_store(&lane->ended, 1);
    atomic_fetch_add(w->ended, 1);
    return NULL;
}

typedef struct reading {
    uint64_t next[2000]; /* of a writer's events */
    uint64_t read;
} reading;

static void
read_all(fp_lanes *all, reading *r)
{
    for (fp_lane *lane = atomic_load(&all->first); lane != NULL;
         lane = lane->next) {
        const fp_event *e;
        while ((e = fp_lane_read(lane)) != NULL) {
            CHECK_UINT(e->via, ~e->id);
            CHECK(e->id >= r->next[e->place]); /* some may be lost */
            r->next[e->place] = e->id + 1;
            r->read++;
        }
    }
}

FP_TEST(gpu_lane_concurrent_writers_and_reader_lose_nothing)
{
    fp_alloc a = fp_alloc_libc();
    fp_lanes all;
    fp_lanes_init(&all, &a);
    _Atomic uint64_t ended = 0;
    writer w[WRITERS];
    for (uint64_t i = 0; i < WRITERS; i++) {
        w[i] = (writer){
            .all = &all, .number = i, .events = EACH, .ended = &ended};
        CHECK(pthread_create(&w[i].thread, NULL, write_many, &w[i]) == 0);
    }
    static reading r;
    while (atomic_load(&ended) != WRITERS) {
        read_all(&all, &r);
        fp_lanes_sweep(&all);
        sched_yield();
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(w[i].thread, NULL);
    }
    read_all(&all, &r);
    CHECK_UINT(r.read + all.lost, (uint64_t)WRITERS * EACH);
    fp_lanes_sweep(&all);
    CHECK(atomic_load(&all.first)->next == NULL);
    fp_lanes_fini(&all);
}

FP_TEST(gpu_lane_f16_short_threads_are_swept_while_others_write)
{
    enum { SHORT = 400 };
    fp_alloc a = fp_alloc_libc();
    fp_lanes all;
    fp_lanes_init(&all, &a);
    _Atomic uint64_t ended = 0;
    static writer w[SHORT + 1];
    static reading r;
    w[SHORT] = (writer){
        .all = &all, .number = SHORT, .events = EACH, .ended = &ended};
    CHECK(pthread_create(&w[SHORT].thread, NULL, write_many, &w[SHORT]) == 0);
    for (uint64_t i = 0; i < SHORT; i++) {
        w[i] =
            (writer){.all = &all, .number = i, .events = i, .ended = &ended};
        CHECK(pthread_create(&w[i].thread, NULL, write_many, &w[i]) == 0);
        read_all(&all, &r);
        fp_lanes_sweep(&all);
        /* A thread that frees trees waits for callbacks under the lock of the
         * sweep. */
        fp_lanes_quiesce(&all, NULL);
        pthread_join(w[i].thread, NULL);
        CHECK(atomic_load(&all.chunks) < 100 + EACH / FP_LANE_CHUNK);
    }
    pthread_join(w[SHORT].thread, NULL);
    read_all(&all, &r);
    fp_lanes_sweep(&all);
    CHECK_UINT(r.read + all.lost, EACH + SHORT * (SHORT - 1) / 2);
    CHECK(atomic_load(&all.first)->next == NULL);
    fp_lanes_fini(&all);
}

/* ---- quiesce ---- */

typedef struct guarded {
    fp_lanes *all;
    _Atomic(int *) shared;
    _Atomic int stop;
    _Atomic int entered;
} guarded;

static void *
follow_pointer(void *arg)
{
    guarded *g = arg;
    fp_lane *lane = fp_lane_create(g->all);
    while (!atomic_load(&g->stop)) {
        fp_lane_enter(lane);
        const int *p = atomic_load(&g->shared);
        CHECK(p == NULL || *p == 42);
        fp_lane_exit(lane);
        atomic_store(&g->entered, 1);
        sched_yield(); /* valgrind runs one thread at a time */
    }
    return NULL;
}

FP_TEST(gpu_lane_after_quiesce_no_thread_follows_the_old_pointer)
{
    fp_alloc a = fp_alloc_libc();
    fp_lanes all;
    fp_lanes_init(&all, &a);
    guarded g = {.all = &all};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&thread[i], NULL, follow_pointer, &g) == 0);
    }
    fp_lane *self = fp_lane_create(&all);
    fp_lane_enter(self); /* not waited for */
    while (!atomic_load(&g.entered)) {
        sched_yield();
    }
    for (int i = 0; i < 1000; i++) {
        int *p = malloc(sizeof(*p));
        *p = 42;
        atomic_store(&g.shared, p);
        if (i % 16 == 0) {
            sched_yield();
        }
        atomic_store(&g.shared, NULL);
        fp_lanes_quiesce(&all, self);
        *p = 0;
        free(p);
    }
    atomic_store(&g.stop, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
    }
    fp_lanes_fini(&all);
}

#if defined(__linux__) && defined(SYS_membarrier)
/* From here on membarrier(2) fails in this process.  Returns 0 on success. */
static int
forbid_membarrier(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the call's number */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(f) / sizeof(f[0]), f};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

FP_TEST(gpu_lane_a_barrier_that_is_forbidden_later_gives_way_to_fences)
{
    fp_alloc a = fp_alloc_libc();
    fp_lanes all;
    fp_lanes_init(&all, &a);
    int had = atomic_load(&all.barrier);
    pid_t child = fork();
    if (child == 0) {
        if (!had || forbid_membarrier() != 0) {
            _exit(77); /* cannot be shown here */
        }
        fp_lanes_quiesce(&all, NULL);
        _exit(atomic_load(&all.barrier) == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
    fp_lanes_fini(&all);
}
#else
FP_TEST(gpu_lane_a_barrier_that_is_forbidden_later_gives_way_to_fences)
{
}
#endif
