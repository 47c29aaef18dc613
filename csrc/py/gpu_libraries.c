/* Finds and opens the driver and CUPTI for a recorder. */
#include "py/gpu_layer_parts.h"

fp_driver_state
fp_gpu_layer_open_driver(fp_recorder *r, fp_cuda_driver *driver,
                         const char *path, int initialise)
{
    fp_driver_state state;
    fp_why why = {""};
    Py_BEGIN_ALLOW_THREADS
    state = fp_cuda_driver_open(driver, path, initialise, &why);
    Py_END_ALLOW_THREADS
    fp_gpu_layer_set_reason(r, state == FP_DRIVER_WAITING
                                   ? "the program has not used CUDA so far"
                                   : why.text);
    return state;
}

/* CUPTI does not work with a driver of an older major release. */
static int
fits_driver(const fp_cupti *c, int driver, fp_why *why)
{
    int major = c->version >= 130000 ? (int)(c->version / 10000) : 0;
    if (major == 0 || major <= driver / 1000) {
        return 1;
    }
    fp_why_set(why,
               "this CUPTI is of CUDA %d, but the driver is of CUDA %d.%d",
               major, driver / 1000, driver % 1000 / 10);
    return 0;
}

int
fp_gpu_layer_open_cupti(fp_recorder *r, fp_cupti *c, int driver,
                        PyObject *paths, Py_ssize_t *next)
{
    PyObject *reasons = PyUnicode_FromString("");
    for (Py_ssize_t i = *next; i < PyTuple_GET_SIZE(paths); i++) {
        *next = i + 1;
        PyObject *path = PyTuple_GET_ITEM(paths, i);
        PyObject *name = NULL; /* a file name need not be UTF-8 */
        if (reasons == NULL || !PyUnicode_FSConverter(path, &name)) {
            Py_XDECREF(reasons);
            return -1;
        }
        int opened;
        fp_why why = {""};
        Py_BEGIN_ALLOW_THREADS
        opened = fp_cupti_open(c, PyBytes_AS_STRING(name), &why) == 0;
        Py_END_ALLOW_THREADS
        if (opened && fits_driver(c, driver, &why)) {
            Py_XSETREF(r->gpu.path,
                       PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(name)));
            Py_DECREF(name);
            Py_DECREF(reasons);
            return r->gpu.path != NULL ? 1 : -1;
        }
        Py_DECREF(name);
        /* The first paths are the libraries that the program uses. */
        if (i < 3) {
            Py_SETREF(reasons, PyUnicode_FromFormat(
                                   "%U%s%s", reasons,
                                   PyUnicode_GET_LENGTH(reasons) ? "; " : "",
                                   why.text));
        }
    }
    if (reasons != NULL && PyUnicode_GET_LENGTH(reasons) == 0) {
        Py_SETREF(reasons, PyUnicode_FromString("no libcupti was found"));
    }
    Py_XSETREF(r->gpu.reason, reasons);
    return reasons != NULL ? 0 : -1;
}
