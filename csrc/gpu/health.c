#define _POSIX_C_SOURCE 200809L

#include "gpu/health.h"

#include "gpu/worker.h"

#include <string.h>

/* ---- sums of samples ---- */

static const uint64_t reason_bits[FP_HEALTH_REASONS] = {
    [FP_HEALTH_SW_POWER_CAP] = FP_NVML_SW_POWER_CAP,
    [FP_HEALTH_HW_SLOWDOWN] = FP_NVML_HW_SLOWDOWN,
    [FP_HEALTH_SW_THERMAL] = FP_NVML_SW_THERMAL,
    [FP_HEALTH_HW_THERMAL] = FP_NVML_HW_THERMAL,
    [FP_HEALTH_HW_POWER_BRAKE] = FP_NVML_HW_POWER_BRAKE,
};

static void
add_value(fp_health_figure *f, uint64_t value)
{
    f->min = f->count == 0 || value < f->min ? value : f->min;
    f->max = f->count == 0 || value > f->max ? value : f->max;
    f->last = value;
    f->sum += value;
    f->count++;
}

static void
add_reasons(fp_health_sums *s, uint64_t bits)
{
    int any = 0, other = 0;
    for (int i = 0; i < FP_HEALTH_REASONS; i++) {
        int on = (bits & reason_bits[i]) != 0;
        s->reason[i] += (uint64_t)on;
        any |= on;
        other |= on && i != FP_HEALTH_SW_POWER_CAP;
    }
    s->judged++;
    s->throttled += (uint64_t)any;
    s->slowed += (uint64_t)other;
}

void
fp_health_add(fp_health_sums *s, const fp_health_sample *sample)
{
    uint64_t bits = sample->value[FP_NVML_REASONS];
    int judged = sample->known[FP_NVML_REASONS];
    for (int i = 0; i < FP_NVML_REASONS; i++) {
        int idle =
            i == FP_NVML_SM_CLOCK && judged && (bits & FP_NVML_GPU_IDLE) != 0;
        if (sample->known[i] && !idle) {
            add_value(&s->figure[i], sample->value[i]);
        }
    }
    if (judged) {
        add_reasons(s, bits);
    }
}

/* ---- the sampling thread ---- */

static int
is_stopping(const fp_health *h)
{
    return atomic_load(&h->stopping);
}

static void
say(fp_health *h, const char *call, int result)
{
    char text[100];
    fp_nvml_describe(&h->nvml, result, text, sizeof(text));
    pthread_mutex_lock(&h->lock);
    if (h->why.text[0] == '\0') {
        fp_why_set(&h->why, "%s failed with %s", call, text);
    }
    pthread_mutex_unlock(&h->lock);
}

static int
find(fp_health *h, fp_health_device *d)
{
    if (d->handle == NULL && !d->given_up) {
        int result = h->nvml.find(d->bus_id, &d->handle);
        if (result != FP_NVML_SUCCESS || d->handle == NULL) {
            d->handle = NULL;
            d->given_up = 1;
            say(h, "nvmlDeviceGetHandleByPciBusId_v2", result);
        }
    }
    return !d->given_up;
}

static void
sample(fp_health *h, uint32_t i)
{
    fp_health_device *d = &h->device[i];
    fp_health_sample s = {0};
    if (!find(h, d)) {
        return;
    }
    for (int f = 0; f < FP_NVML_FIGURES; f++) {
        if (is_stopping(h)) {
            return; /* only complete samples count */
        }
        if (!d->without[f]) {
            int result = fp_nvml_ask(&h->nvml, d->handle, (fp_nvml_figure)f,
                                     &s.value[f]);
            s.known[f] = result == FP_NVML_SUCCESS;
            d->without[f] = (uint8_t)fp_nvml_is_final(result);
        }
    }
    pthread_mutex_lock(&h->lock);
    if (!is_stopping(h)) {
        fp_health_add(&h->sums[i], &s);
    }
    pthread_mutex_unlock(&h->lock);
}

/* 0: the period is over; -1: stop. */
static int
wait_a_period(fp_health *h)
{
    struct timespec until = fp_worker_deadline(CLOCK_MONOTONIC, h->period_ns);
    int rc = 0;
    pthread_mutex_lock(&h->lock);
    while (!is_stopping(h) && rc == 0) {
        rc = pthread_cond_timedwait(&h->changed, &h->lock, &until);
    }
    pthread_mutex_unlock(&h->lock);
    return is_stopping(h) ? -1 : 0;
}

static void
sample_until_stopped(fp_health *h)
{
    int result = h->nvml.init();
    if (result != FP_NVML_SUCCESS) {
        say(h, "nvmlInit_v2", result);
        return;
    }
    uint32_t mask = 0;
    do {
        h->in_use(h->ctx, &mask);
        for (uint32_t i = 0; i < h->devices && !is_stopping(h); i++) {
            if ((mask >> i & 1) != 0) {
                sample(h, i);
            }
        }
    } while (wait_a_period(h) == 0);
    pthread_mutex_lock(&h->lock);
    int awaited = h->state == FP_HEALTH_ON;
    pthread_mutex_unlock(&h->lock);
    if (awaited) { /* else the caller gave up: make no further call */
        (void)h->nvml.shutdown();
    }
}

static void *
run(void *health)
{
    fp_health *h = health;
    sample_until_stopped(h);
    pthread_mutex_lock(&h->lock);
    h->running = 0;
    if (h->state == FP_HEALTH_HUNG) {
        h->state = FP_HEALTH_OFF;
    }
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- begin and end ---- */

static int
init_locks(fp_health *h)
{
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&h->lock, NULL) != 0 ||
        pthread_condattr_init(&attributes) != 0) {
        return -1;
    }
    int rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    rc = rc == 0 ? pthread_cond_init(&h->changed, &attributes) : rc;
    (void)pthread_condattr_destroy(&attributes);
    return rc == 0 ? 0 : -1;
}

fp_status
fp_health_init(fp_health *h)
{
    memset(h, 0, sizeof(*h));
    return init_locks(h) == 0 ? FP_OK : FP_ENOMEM;
}

static void
forget(fp_health *h)
{
    memset(h->sums, 0, sizeof(h->sums));
    h->why.text[0] = '\0';
    h->hung = 0;
}

static void
prepare(fp_health *h, const fp_nvml *nvml, const fp_cuda_driver *driver)
{
    h->nvml = *nvml;
    h->devices = (uint32_t)driver->devices;
    memset(h->device, 0, sizeof(h->device));
    for (uint32_t i = 0; i < h->devices; i++) {
        fp_health_device *d = &h->device[i];
        memcpy(d->bus_id, driver->device[i].bus_id, sizeof(d->bus_id));
        d->given_up = d->bus_id[0] == '\0';
    }
}

void
fp_health_start(fp_health *h, const fp_nvml *nvml,
                const fp_cuda_driver *driver, int64_t period_ns,
                fp_health_in_use in_use, void *ctx)
{
    pthread_mutex_lock(&h->lock);
    if (h->state == FP_HEALTH_HUNG) {
        forget(h);
        h->hung = 1;
        fp_why_set(&h->why,
                   "NVML has not answered since an earlier recording");
    }
    else if (h->state == FP_HEALTH_OFF) {
        forget(h);
        prepare(h, nvml, driver);
        h->period_ns = period_ns;
        h->in_use = in_use;
        h->ctx = ctx;
        atomic_store(&h->stopping, 0);
        if (fp_worker_begin(&h->thread, run, h) == 0) {
            h->running = 1;
            h->started++;
            h->state = FP_HEALTH_ON;
        }
        else {
            fp_why_set(&h->why,
                       "the thread that queries NVML could not be started");
        }
    }
    pthread_mutex_unlock(&h->lock);
}

void
fp_health_refuse(fp_health *h, const fp_why *why)
{
    pthread_mutex_lock(&h->lock);
    forget(h);
    h->why = *why;
    pthread_mutex_unlock(&h->lock);
}

/* The thread does not end.  The lock is held. */
static void
give_up(fp_health *h)
{
    h->state = FP_HEALTH_HUNG;
    h->hung = 1;
    fp_why_set(&h->why,
               "NVML stopped answering; temperature, clocks and power "
               "are known only until then");
    (void)pthread_detach(h->thread);
}

void
fp_health_stop(fp_health *h, int64_t patience_ns)
{
    struct timespec until = fp_worker_deadline(CLOCK_MONOTONIC, patience_ns);
    int rc = 0;
    pthread_mutex_lock(&h->lock);
    if (h->state != FP_HEALTH_ON) {
        pthread_mutex_unlock(&h->lock);
        return;
    }
    uint64_t mine = h->started;
    atomic_store(&h->stopping, 1);
    pthread_cond_broadcast(&h->changed);
    while (h->running && h->started == mine && rc == 0) {
        rc = pthread_cond_timedwait(&h->changed, &h->lock, &until);
    }
    /* Another thread may have stopped it first. */
    int last = h->state == FP_HEALTH_ON && h->started == mine;
    pthread_t ended = h->thread;
    int join = last && !h->running;
    if (join) {
        h->state = FP_HEALTH_OFF;
    }
    else if (last) {
        give_up(h);
    }
    pthread_mutex_unlock(&h->lock);
    if (join) {
        (void)pthread_join(ended, NULL);
    }
}

void
fp_health_clear(fp_health *h)
{
    pthread_mutex_lock(&h->lock);
    memset(h->sums, 0, sizeof(h->sums));
    pthread_mutex_unlock(&h->lock);
}

void
fp_health_forked(fp_health *h)
{
    (void)init_locks(h);
    h->state = FP_HEALTH_OFF;
    h->running = 0;
    atomic_store(&h->stopping, 1);
}

void
fp_health_look(fp_health *h, fp_health_view *view)
{
    pthread_mutex_lock(&h->lock);
    memcpy(view->sums, h->sums, sizeof(view->sums));
    view->hung = h->hung;
    view->why = h->why;
    pthread_mutex_unlock(&h->lock);
}
