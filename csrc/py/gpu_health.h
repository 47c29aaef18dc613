/* gpu_health: samples the health of the process's devices for the recorder
 * that has the collector. */
#ifndef FP_PY_GPU_HEALTH_H
#define FP_PY_GPU_HEALTH_H

#include "py/recorder.h"

#include "gpu/health.h"

/* _core.nvml_probe. */
extern PyMethodDef fp_gpu_health_methods[];

/* Starts the sampling for [r], whose collector has started, with the NVML at
 * [path]; NULL: no sampling.  Runs under the GIL, which it releases meanwhile;
 * raises nothing. */
void
fp_gpu_health_begin(fp_recorder *r, const char *path, int64_t period_ns);

/* Stops the sampler and waits for it, for a limited time.  Does not need the
 * GIL. */
void
fp_gpu_health_end(void);

void
fp_gpu_health_clear(void);

/* Copies the samples into *view.  Does not need the GIL. */
void
fp_gpu_health_look(fp_health_view *view);

/* The samples of a device: a dict, or None if there are none; NULL with an
 * exception. */
PyObject *
fp_gpu_health_export(const fp_health_view *view, uint32_t device);

#endif
