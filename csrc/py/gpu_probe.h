/* gpu_probe: what of the GPU can be had here, as Python values. */
#ifndef FP_PY_GPU_PROBE_H
#define FP_PY_GPU_PROBE_H

#include "py/pycompat.h" /* Python.h goes first */

#include "gpu/cuda_driver.h"

/* _core.gpu_probe. */
extern PyMethodDef fp_gpu_probe_methods[];

/* The sentence, whatever bytes it has or was cut in. */
PyObject *
fp_why_text(const fp_why *why);

/* A dict for each device: what it is, no measurement. */
PyObject *
fp_gpu_devices(const fp_cuda_driver *d);

#endif
