#define _POSIX_C_SOURCE 200809L

#include "fp_test.h"
#include "gpu/health.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a minimal NVML ---- */

enum { INIT, SHUTDOWN, FIND, TEMPERATURE, CLOCK, POWER, REASONS, FUNCTIONS };

static struct stub {
    _Atomic int calls[FUNCTIONS];
    _Atomic int fails[FUNCTIONS]; /* with this result */
    _Atomic int hangs;            /* this function + 1 hangs until reset */
    _Atomic int hanging;
    _Atomic int over; /* no call may begin */
    _Atomic uint64_t reasons;
    _Atomic uint32_t used;
    _Atomic int blocked; /* SIGUSR1 was blocked on the thread */
} stub;

static pthread_t main_thread;

static void
nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static int
called(int function)
{
    CHECK(!atomic_load(&stub.over));
    CHECK(!pthread_equal(pthread_self(), main_thread));
    atomic_fetch_add(&stub.calls[function], 1);
    while (atomic_load(&stub.hangs) == function + 1) {
        atomic_store(&stub.hanging, 1);
        nap();
    }
    atomic_store(&stub.hanging, 0);
    return atomic_load(&stub.fails[function]);
}

static int
stub_init(void)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    atomic_store(&stub.blocked, sigismember(&set, SIGUSR1) &&
                                    sigismember(&set, SIGINT) &&
                                    !sigismember(&set, SIGSEGV));
    return called(INIT);
}

static int
stub_shutdown(void)
{
    return called(SHUTDOWN);
}

static int
stub_find(const char *bus_id, void **device)
{
    CHECK_STR(bus_id, "0000:17:00.0");
    *device = &stub;
    return called(FIND);
}

static int
stub_temperature(void *device, int sensor, uint32_t *celsius)
{
    CHECK(device == &stub && sensor == 0);
    *celsius = 61;
    return called(TEMPERATURE);
}

static int
stub_clock(void *device, int type, uint32_t *mhz)
{
    CHECK(device == &stub && type == 1);
    *mhz = 1980;
    return called(CLOCK);
}

static int
stub_power(void *device, uint32_t *mw)
{
    CHECK(device == &stub);
    *mw = 350000;
    return called(POWER);
}

static int
stub_reasons(void *device, unsigned long long *bits)
{
    CHECK(device == &stub);
    *bits = atomic_load(&stub.reasons);
    return called(REASONS);
}

static const fp_nvml library = {
    .init = stub_init,
    .shutdown = stub_shutdown,
    .find = stub_find,
    .temperature = stub_temperature,
    .clock = stub_clock,
    .power = stub_power,
    .event_reasons = stub_reasons,
};

static void
in_use(void *ctx, uint32_t *mask)
{
    CHECK(ctx == &stub);
    *mask |= atomic_load(&stub.used);
}

static const int64_t ms_ns = 1000000;

static fp_health *
begin(const fp_nvml *nvml)
{
    static fp_health health;
    static int made;
    main_thread = pthread_self();
    if (!made) {
        CHECK_INT(fp_health_init(&health), FP_OK);
        made = 1;
    }
    fp_cuda_driver driver = {.devices = 2};
    memcpy(driver.device[1].bus_id, "0000:17:00.0", 13);
    fp_health_start(&health, nvml, &driver, ms_ns, in_use, &stub);
    return &health;
}

static void
await(const _Atomic int *value, int at_least)
{
    while (atomic_load(value) < at_least) {
        nap();
    }
}

static fp_health_view
look(fp_health *h)
{
    fp_health_view view;
    fp_health_look(h, &view);
    return view;
}

/* ---- sums ---- */

FP_TEST(gpu_health_adds_up_count_sum_extremes_and_the_last)
{
    fp_health_sums s = {0};
    const uint64_t celsius[] = {60, 40, 90, 70};
    for (int i = 0; i < 4; i++) {
        fp_health_sample one = {.value = {celsius[i]}, .known = {1}};
        fp_health_add(&s, &one);
    }
    const fp_health_figure *f = &s.figure[FP_NVML_TEMPERATURE];
    CHECK_UINT(f->count, 4);
    CHECK_UINT(f->sum, 260);
    CHECK_UINT(f->min, 40);
    CHECK_UINT(f->max, 90);
    CHECK_UINT(f->last, 70);
    CHECK_UINT(s.figure[FP_NVML_SM_CLOCK].count, 0);
    CHECK_UINT(s.judged, 0);
}

FP_TEST(gpu_health_tells_throttling_from_idle_and_set_clocks)
{
    const struct {
        uint64_t bits;
        int throttled, slowed, clock;
    } want[] = {
        {0, 0, 0, 1},
        {FP_NVML_GPU_IDLE, 0, 0, 0},
        {FP_NVML_APPLICATION_CLOCKS, 0, 0, 1},
        {FP_NVML_SYNC_BOOST, 0, 0, 1},
        {0x100, 0, 0, 1},
        {FP_NVML_SW_POWER_CAP, 1, 0, 1},
        {FP_NVML_HW_SLOWDOWN, 1, 1, 1},
        {FP_NVML_SW_THERMAL | FP_NVML_SW_POWER_CAP, 1, 1, 1},
        {FP_NVML_HW_THERMAL | FP_NVML_HW_SLOWDOWN, 1, 1, 1},
        {FP_NVML_HW_POWER_BRAKE | FP_NVML_GPU_IDLE, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        fp_health_sums s = {0};
        fp_health_sample one = {.value = {0, 1980, 0, want[i].bits},
                                .known = {0, 1, 0, 1}};
        fp_health_add(&s, &one);
        CHECK_UINT(s.judged, 1);
        CHECK_INT((int)s.throttled, want[i].throttled);
        CHECK_INT((int)s.slowed, want[i].slowed);
        CHECK_INT((int)s.figure[FP_NVML_SM_CLOCK].count, want[i].clock);
    }
}

FP_TEST(gpu_health_uses_the_functions_that_a_release_has)
{
    uint64_t value = 7;
    const fp_nvml none = {0};
    for (int f = 0; f < FP_NVML_FIGURES; f++) {
        CHECK_INT(fp_nvml_ask(&none, NULL, (fp_nvml_figure)f, &value),
                  FP_NVML_FUNCTION_NOT_FOUND);
        CHECK_UINT(value, 0);
    }
    CHECK(fp_nvml_is_final(FP_NVML_FUNCTION_NOT_FOUND));
    CHECK(fp_nvml_is_final(FP_NVML_NOT_SUPPORTED));
    CHECK(!fp_nvml_is_final(FP_NVML_SUCCESS) && !fp_nvml_is_final(10));
}

/* ---- the sampling thread ---- */

FP_TEST(gpu_health_samples_devices_in_use_on_its_own_thread)
{
    fp_health *h = begin(&library);
    await(&stub.calls[INIT], 1);
    for (int i = 0; i < 20; i++) {
        nap();
    }
    /* the device is not in use */
    CHECK_INT(atomic_load(&stub.calls[FIND]), 0);
    atomic_store(&stub.used, 3); /* the first has no bus id */
    await(&stub.calls[REASONS], 3);
    fp_health_stop(h, 10000 * ms_ns);
    atomic_store(&stub.over, 1);
    CHECK(atomic_load(&stub.blocked));
    CHECK_INT(atomic_load(&stub.calls[FIND]), 1);
    CHECK_INT(atomic_load(&stub.calls[SHUTDOWN]), 1);
    fp_health_view v = look(h);
    CHECK(v.why.text[0] == '\0' && !v.hung);
    CHECK_UINT(v.sums[0].judged, 0);
    const fp_health_sums *s = &v.sums[1];
    CHECK(s->judged >= 2);
    CHECK_UINT(s->figure[FP_NVML_TEMPERATURE].sum, 61 * s->judged);
    CHECK_UINT(s->figure[FP_NVML_SM_CLOCK].last, 1980);
    CHECK_UINT(s->figure[FP_NVML_POWER].max, 350000);
    fp_health_stop(h, 0); /* nothing runs */
}

FP_TEST(gpu_health_p9_a_failing_figure_leaves_the_others)
{
    atomic_store(&stub.used, 2);
    atomic_store(&stub.fails[POWER], FP_NVML_NOT_SUPPORTED);
    atomic_store(&stub.fails[CLOCK], 999);
    fp_health *h = begin(&library);
    await(&stub.calls[CLOCK], 5);
    atomic_store(&stub.fails[CLOCK], 0); /* the error was not permanent */
    int before = atomic_load(&stub.calls[REASONS]);
    await(&stub.calls[REASONS], before + 3);
    fp_health_stop(h, 10000 * ms_ns);
    fp_health_view v = look(h);
    const fp_health_sums *s = &v.sums[1];
    CHECK_INT(atomic_load(&stub.calls[POWER]), 1);
    CHECK_UINT(s->figure[FP_NVML_POWER].count, 0);
    CHECK(s->figure[FP_NVML_SM_CLOCK].count > 0);
    CHECK(s->figure[FP_NVML_SM_CLOCK].count <
          s->figure[FP_NVML_TEMPERATURE].count);
    CHECK(!v.hung);
}

FP_TEST(gpu_health_p9_without_init_or_device_it_says_why)
{
    atomic_store(&stub.used, 2);
    atomic_store(&stub.fails[INIT], 9);
    fp_health *h = begin(&library);
    await(&stub.calls[INIT], 1);
    fp_health_stop(h, 10000 * ms_ns);
    CHECK_STR(look(h).why.text, "nvmlInit_v2 failed with 9");
    CHECK_INT(atomic_load(&stub.calls[SHUTDOWN]), 0);
    atomic_store(&stub.fails[INIT], 0);
    atomic_store(&stub.fails[FIND], 6);
    begin(&library);
    await(&stub.calls[FIND], 1);
    for (int i = 0; i < 20; i++) {
        nap();
    }
    fp_health_stop(h, 10000 * ms_ns);
    CHECK_INT(atomic_load(&stub.calls[FIND]), 1);
    CHECK_STR(look(h).why.text,
              "nvmlDeviceGetHandleByPciBusId_v2 failed with 6");
}

FP_TEST(gpu_health_p9_a_hanging_call_is_abandoned)
{
    for (int f = 0; f < FUNCTIONS; f++) {
        atomic_store(&stub.used, 2);
        atomic_store(&stub.hangs, f + 1);
        fp_health *h = begin(&library);
        /* The shutdown hangs only when it is reached. */
        if (f != SHUTDOWN) {
            await(&stub.hanging, 1);
        }
        fp_health_stop(h, (f == SHUTDOWN ? 2000 : 30) * ms_ns);
        atomic_store(&stub.over, 1); /* no further call may begin */
        CHECK(atomic_load(&stub.hanging));
        CHECK(look(h).hung);
        CHECK(strstr(look(h).why.text, "stopped answering") != NULL);
        fp_health_stop(h, 0);
        begin(&library); /* no recording starts meanwhile */
        CHECK(strstr(look(h).why.text, "an earlier recording") != NULL);
        /* The call returns: the thread calls nothing more, and the next
         * recording works. */
        atomic_store(&stub.hangs, 0);
        for (int off = 0; !off;) {
            pthread_mutex_lock(&h->lock);
            off = h->state == FP_HEALTH_OFF;
            pthread_mutex_unlock(&h->lock);
            nap();
        }
        atomic_store(&stub.over, 0);
        int before = atomic_load(&stub.calls[REASONS]);
        begin(&library);
        await(&stub.calls[REASONS], before + 2);
        fp_health_stop(h, 10000 * ms_ns);
        CHECK(!look(h).hung && look(h).why.text[0] == '\0');
        CHECK(look(h).sums[1].judged >= 1);
    }
}

FP_TEST(gpu_health_clear_and_start_forget)
{
    atomic_store(&stub.used, 2);
    atomic_store(&stub.reasons, FP_NVML_HW_THERMAL);
    fp_health *h = begin(&library);
    await(&stub.calls[REASONS], 5);
    atomic_store(&stub.reasons, 0);
    int before = atomic_load(&stub.calls[REASONS]);
    /* no call with the old result is in progress */
    await(&stub.calls[REASONS], before + 2);
    fp_health_clear(h);
    CHECK_UINT(look(h).sums[1].throttled, 0);
    begin(&library); /* already running: nothing changes */
    fp_health_stop(h, 10000 * ms_ns);
    CHECK_INT(atomic_load(&stub.calls[INIT]), 1);
    fp_why why;
    fp_why_set(&why, "no library");
    fp_health_refuse(h, &why);
    CHECK_STR(look(h).why.text, "no library");
    CHECK_UINT(look(h).sums[1].judged, 0);
}

static void *
stops(void *health)
{
    fp_health_stop(health, 10000 * ms_ns);
    return NULL;
}

FP_TEST(gpu_health_two_threads_stop_it_at_once)
{
    atomic_store(&stub.used, 2);
    for (int round = 0; round < 20; round++) {
        fp_health *h = begin(&library);
        pthread_t other;
        CHECK_INT(pthread_create(&other, NULL, stops, h), 0);
        fp_health_stop(h, 10000 * ms_ns);
        CHECK_INT(pthread_join(other, NULL), 0);
        CHECK(!look(h).hung);
        CHECK_INT(atomic_load(&stub.calls[INIT]),
                  atomic_load(&stub.calls[SHUTDOWN]));
    }
}

FP_TEST(gpu_health_f19_a_forked_child_does_not_wait)
{
    atomic_store(&stub.used, 2);
    fp_health *h = begin(&library);
    await(&stub.calls[REASONS], 2);
    pthread_mutex_lock(&h->lock); /* the thread may hold it at that moment */
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        fp_health_forked(h);
        fp_health_stop(h, 3600 * 1000 * ms_ns);
        fp_health_clear(h);
        _exit(look(h).hung);
    }
    pthread_mutex_unlock(&h->lock);
    int status = -1;
    CHECK_INT((int)waitpid(child, &status, 0), (int)child);
    CHECK_INT(status, 0);
    fp_health_stop(h, 10000 * ms_ns);
    CHECK(look(h).sums[1].judged >= 1);
}

FP_TEST(gpu_health_f49_rejects_another_library)
{
    fp_nvml n;
    fp_why why;
    CHECK_INT(fp_nvml_open(&n, "/no/such/libnvidia-ml.so.1", &why), -1);
    CHECK(strstr(why.text, "NVML cannot be loaded: /no/such") != NULL);
    CHECK_INT(fp_nvml_open(&n, "./libnvidia-ml.so.1", &why), -1);
    CHECK(strstr(why.text, "give an absolute path") != NULL);
    CHECK_INT(fp_nvml_open(&n, "libm.so.6", &why), -1);
    CHECK_STR(why.text,
              "libm.so.6 has no function nvmlInit_v2: it is not NVML");
}
