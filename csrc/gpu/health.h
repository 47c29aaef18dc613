/* health: samples temperature, clock, power and throttling of the devices in
 * use about once a second, in a separate thread.
 *
 * A call of NVML may hang with a broken GPU.  So only that thread calls NVML,
 * and stopping waits for it with a limit.  A thread that hangs is abandoned.
 * If its call returns, the thread makes no further call and ends, and a new
 * recording may begin.
 *
 *   OFF --start--> ON --stop--> OFF
 *                     \--stop, no answer--> HUNG --the call returns--> OFF
 *
 * There is one per process and it is never freed: a hanging thread may
 * return. */
#ifndef FP_GPU_HEALTH_H
#define FP_GPU_HEALTH_H

#include "core/base.h"
#include "gpu/cuda_driver.h"
#include "gpu/nvml.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- sums of samples ---- */

typedef struct fp_health_sample {
    uint64_t value[FP_NVML_FIGURES];
    uint8_t known[FP_NVML_FIGURES];
} fp_health_sample;

typedef struct fp_health_figure {
    uint64_t count;
    uint64_t sum;
    uint64_t min; /* these three are valid if count != 0 */
    uint64_t max;
    uint64_t last;
} fp_health_figure;

/* Reasons that count as throttling; an idle clock or one set by the user does
 * not. */
typedef enum fp_health_reason {
    FP_HEALTH_SW_POWER_CAP,
    FP_HEALTH_HW_SLOWDOWN,
    FP_HEALTH_SW_THERMAL,
    FP_HEALTH_HW_THERMAL,
    FP_HEALTH_HW_POWER_BRAKE,
    FP_HEALTH_REASONS,
} fp_health_reason;

typedef struct fp_health_sums {
    fp_health_figure figure[FP_NVML_REASONS]; /* the figures before it */
    uint64_t judged;                          /* samples with known reasons */
    uint64_t throttled; /* ... with one of the reasons below */
    uint64_t slowed;    /* ... with one other than the power cap */
    uint64_t reason[FP_HEALTH_REASONS];
} fp_health_sums;

/* Adds a sample; leaves out the clock of an idle GPU. */
void
fp_health_add(fp_health_sums *s, const fp_health_sample *sample);

/* ---- the sampling thread ---- */

typedef enum fp_health_state {
    FP_HEALTH_OFF,
    FP_HEALTH_ON,
    FP_HEALTH_HUNG,
} fp_health_state;

/* Adds the devices in use to [mask], one bit per device.  Must neither wait
 * nor query the device. */
typedef void (*fp_health_in_use)(void *ctx, uint32_t *mask);

typedef struct fp_health_device {
    char bus_id[FP_GPU_BUS_ID];
    void *handle; /* NVML's; NULL: not looked up yet */
    uint8_t given_up;
    uint8_t without[FP_NVML_FIGURES]; /* figures that it does not have */
} fp_health_device;

typedef struct fp_health {
    /* guards the fields below; no lock is taken and no call made under it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fp_health_state state;
    int running;      /* the thread runs */
    uint64_t started; /* number of threads started */
    int hung;         /* the thread hung in this recording */
    fp_health_sums sums[FP_GPU_DEVICES];
    fp_why why; /* why figures are missing */
    /* written while no thread runs */
    pthread_t thread;
    fp_nvml nvml;
    int64_t period_ns;
    fp_health_in_use in_use;
    void *ctx;
    uint32_t devices;
    _Atomic int stopping;
    /* used by the thread */
    fp_health_device device[FP_GPU_DEVICES];
} fp_health;

typedef struct fp_health_view {
    fp_health_sums sums[FP_GPU_DEVICES];
    int hung;
    fp_why why;
} fp_health_view;

/* Call once per process.  FP_ENOMEM: cannot be used. */
fp_status
fp_health_init(fp_health *h);

/* Forgets the last recording and starts sampling the devices of [driver],
 * every [period_ns].  Calls no NVML function itself; errors go to `why`. */
void
fp_health_start(fp_health *h, const fp_nvml *nvml,
                const fp_cuda_driver *driver, int64_t period_ns,
                fp_health_in_use in_use, void *ctx);

/* Forgets the last recording and stores why there is no new one. */
void
fp_health_refuse(fp_health *h, const fp_why *why);

/* Stops sampling and waits up to [patience_ns] for a call in progress.  A call
 * that takes longer is abandoned.  Keeps the samples. */
void
fp_health_stop(fp_health *h, int64_t patience_ns);

/* Forgets the samples and keeps sampling. */
void
fp_health_clear(fp_health *h);

/* For the child of a fork, which has no sampling thread. */
void
fp_health_forked(fp_health *h);

/* Copies the sums and errors to [view]. */
void
fp_health_look(fp_health *h, fp_health_view *view);

#endif
