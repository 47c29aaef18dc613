/* gpu_probe: reports the available GPU libraries and devices as Python
 * values. */
#ifndef FP_PY_GPU_PROBE_H
#define FP_PY_GPU_PROBE_H

#include "py/pycompat.h" /* Python.h goes first */

#include "gpu/cuda_driver.h"

/* _core.gpu_probe. */
extern PyMethodDef fp_gpu_probe_methods[];

/* [text] as a str; bytes that are not UTF-8 are replaced. */
PyObject *
fp_text_of(const char *text);

/* The properties of a device, without its name. */
PyObject *
fp_gpu_device_dict(const fp_gpu_device *d, uint32_t index);

/* None if [version] is 0: unknown. */
PyObject *
fp_version_or_none(long version);

#endif
