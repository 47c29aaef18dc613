/* gpu_health: the process's sampler of the devices' health, for the recorder that
 * has the collector. */
#ifndef FP_PY_GPU_HEALTH_H
#define FP_PY_GPU_HEALTH_H

#include "py/recorder.h"

#include "gpu/health.h"

/* _core.nvml_probe. */
extern PyMethodDef fp_gpu_health_methods[];

/* The collector has begun to run for [r]: samples from here on with the NVML at
 * [path]; NULL: does not.  Under the GIL, which is let go of meanwhile; never
 * raises. */
void
fp_gpu_health_begin(fp_recorder *r, const char *path, int64_t period_ns);

/* Waits with a limit; the GIL is not needed. */
void
fp_gpu_health_end(void);

void
fp_gpu_health_clear(void);

/* What was sampled, with or without the GIL. */
void
fp_gpu_health_look(fp_health_view *view);

/* A dict, or None if nothing is known of the device; NULL with an exception. */
PyObject *
fp_gpu_health_export(const fp_health_view *view, uint32_t device);

#endif
