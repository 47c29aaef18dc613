/* health: temperature, clock, power and throttling of the devices in use, about
 * once a second, asked by a thread of its own.
 *
 * A call of NVML may hang with a sick GPU, so that thread alone makes them, and
 * whoever stops it waits with a limit.  One that hangs is left alone; should it
 * come back, it makes no further call and ends, and another recording may begin.
 *
 *   OFF --start--> ON --stop--> OFF
 *                     \--stop, no answer--> HUNG --the call returns--> OFF
 *
 * One per process and never freed: a thread that hangs may come back. */
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
    uint64_t min; /* these three: if count != 0 */
    uint64_t max;
    uint64_t last;
} fp_health_figure;

/* What throttling is: not an idle clock, nor one that somebody has set. */
typedef enum fp_health_reason {
    FP_HEALTH_SW_POWER_CAP,
    FP_HEALTH_HW_SLOWDOWN,
    FP_HEALTH_SW_THERMAL,
    FP_HEALTH_HW_THERMAL,
    FP_HEALTH_HW_POWER_BRAKE,
    FP_HEALTH_REASONS,
} fp_health_reason;

typedef struct fp_health_sums {
    fp_health_figure figure[FP_NVML_REASONS]; /* those before it */
    uint64_t judged;    /* samples of which the reasons are known */
    uint64_t throttled; /* ... with any of the reasons below */
    uint64_t slowed;    /* ... with any but the power cap */
    uint64_t reason[FP_HEALTH_REASONS];
} fp_health_sums;

/* The clock of an idle GPU tells nothing and is left out. */
void
fp_health_add(fp_health_sums *s, const fp_health_sample *sample);

/* ---- the thread ---- */

typedef enum fp_health_state {
    FP_HEALTH_OFF,
    FP_HEALTH_ON,
    FP_HEALTH_HUNG,
} fp_health_state;

/* Adds to [mask] the devices that the process uses, bit per device; must neither
 * wait nor ask anything of the device. */
typedef void (*fp_health_in_use)(void *ctx, uint32_t *mask);

typedef struct fp_health_device {
    char bus_id[FP_GPU_BUS_ID];
    void *handle; /* NVML's; NULL: not asked for yet */
    uint8_t given_up;
    uint8_t without[FP_NVML_FIGURES]; /* it does not have these */
} fp_health_device;

typedef struct fp_health {
    pthread_mutex_t lock; /* of what follows; a leaf, never held in a call */
    pthread_cond_t changed;
    fp_health_state state;
    int running;      /* the thread is */
    uint64_t started; /* counts threads */
    int hung;         /* ... or was, in this recording */
    fp_health_sums sums[FP_GPU_DEVICES];
    fp_why why; /* why there are no figures, or no more */
    /* set while no thread runs */
    pthread_t thread;
    fp_nvml nvml;
    int64_t period_ns;
    fp_health_in_use in_use;
    void *ctx;
    uint32_t devices;
    _Atomic int stopping;
    /* the thread's */
    fp_health_device device[FP_GPU_DEVICES];
} fp_health;

typedef struct fp_health_view {
    fp_health_sums sums[FP_GPU_DEVICES];
    int hung;
    fp_why why;
} fp_health_view;

/* Once per process.  FP_ENOMEM: cannot be used. */
fp_status
fp_health_init(fp_health *h);

/* Forgets what is there and begins to sample the devices of [driver].  Makes no
 * call itself; what goes wrong is in `why`. */
void
fp_health_start(fp_health *h, const fp_nvml *nvml,
                const fp_cuda_driver *driver, int64_t period_ns,
                fp_health_in_use in_use, void *ctx);

/* Forgets what is there, as nothing can be sampled. */
void
fp_health_refuse(fp_health *h, const fp_why *why);

/* No call is made afterwards, but for one that does not return within
 * [patience_ns].  What was sampled stays. */
void
fp_health_stop(fp_health *h, int64_t patience_ns);

/* Forgets what is sampled, keeps sampling. */
void
fp_health_clear(fp_health *h);

/* This is the child of a fork, in which there is no thread. */
void
fp_health_forked(fp_health *h);

void
fp_health_look(fp_health *h, fp_health_view *view);

#endif
