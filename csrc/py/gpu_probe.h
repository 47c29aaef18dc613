/* gpu_probe: reports the available GPU libraries and devices as Python
 * values. */
#ifndef FP_PY_GPU_PROBE_H
#define FP_PY_GPU_PROBE_H

#include "py/pycompat.h" /* Python.h goes first */

#include "gpu/cuda_driver.h"

/* _core.gpu_probe. */
extern PyMethodDef fp_gpu_probe_methods[];

/* The text of [why]; bytes that are not UTF-8 are replaced. */
PyObject *
fp_why_text(const fp_why *why);

/* A list with a dict for each device: its properties, no measurements. */
PyObject *
fp_gpu_devices(const fp_cuda_driver *d);

#endif
