#include "py/gpu_probe.h"

#include "gpu/cupti_lib.h"
#include "py/export_parts.h"

PyObject *
fp_text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *
fp_gpu_device_dict(const fp_gpu_device *d, uint32_t index)
{
    return Py_BuildValue(
        "{sIsisKsisisisisis[ii]}", "index", index, "multiprocessors",
        (int)d->multiprocessors, "memory_bytes",
        (unsigned long long)d->memory_bytes, "threads_per_multiprocessor",
        (int)d->threads_per_multiprocessor, "blocks_per_multiprocessor",
        (int)d->blocks_per_multiprocessor, "registers_per_multiprocessor",
        (int)d->registers_per_multiprocessor,
        "shared_bytes_per_multiprocessor",
        (int)d->shared_bytes_per_multiprocessor, "warp_size",
        (int)d->warp_size, "capability", (int)d->capability_major,
        (int)d->capability_minor);
}

static PyObject *
devices(const fp_cuda_driver *driver)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < driver->devices; i++) {
        const fp_gpu_device *device = &driver->device[i];
        PyObject *d = fp_gpu_device_dict(device, (uint32_t)i);
        fp_export_put(&d, "name", fp_text_of(device->name));
        fp_export_put(&d, "bus_id", fp_text_of(device->bus_id));
        fp_export_add(&list, d);
    }
    return list;
}

PyObject *
fp_version_or_none(long version)
{
    return version > 0 ? PyLong_FromLong(version) : Py_NewRef(Py_None);
}

static PyObject *
probe_driver(const char *path, int initialise, fp_driver_state *state)
{
    static const char *const names[] = {"ready", "waiting", "none"};
    fp_cuda_driver d;
    fp_why why;
    Py_BEGIN_ALLOW_THREADS
    *state = fp_cuda_driver_open(&d, path, initialise, &why);
    Py_END_ALLOW_THREADS
    return Py_BuildValue(
        "{sssNsNsN}", "state", names[*state], "reason", fp_text_of(why.text),
        "version", fp_version_or_none(d.version), "devices", devices(&d));
}

/* [path] is bytes for the loader and str for the reader. */
static PyObject *
probe_cupti(PyObject *path)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    const char *name = PyBytes_AS_STRING(bytes);
    fp_cupti c;
    fp_why why;
    Py_BEGIN_ALLOW_THREADS(void)
    fp_cupti_open(&c, name, &why);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    long version = why.text[0] == '\0' ? (long)c.version : 0;
    return Py_BuildValue("{sOsNsN}", "path", path, "version",
                         fp_version_or_none(version), "reason",
                         fp_text_of(why.text));
}

static PyObject *
probe_all(PyObject *paths)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_GET_SIZE(paths); i++) {
        fp_export_add(&list, probe_cupti(PyTuple_GET_ITEM(paths, i)));
    }
    return list;
}

static PyObject *
probe(const char *driver_path, PyObject *paths, int initialise)
{
    fp_driver_state state;
    PyObject *driver = probe_driver(driver_path, initialise, &state);
    if (driver == NULL) {
        return NULL;
    }
    /* Some releases of CUPTI crash without a working driver. */
    return Py_BuildValue("{sNsN}", "driver", driver, "cupti",
                         state == FP_DRIVER_READY ? probe_all(paths)
                                                  : PyList_New(0));
}

static PyObject *
gpu_probe(PyObject *module, PyObject *args)
{
    PyObject *path;
    PyObject *paths;
    int initialise;
    if (!PyArg_ParseTuple(args, "OOp:gpu_probe", &path, &paths, &initialise)) {
        return NULL;
    }
    PyObject *bytes = NULL;
    if (path != Py_None && !PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    /* A copy, because another thread may change the list while the GIL is
     * released. */
    PyObject *mine = PySequence_Tuple(paths);
    PyObject *result = NULL;
    if (mine != NULL) {
        result = probe(bytes != NULL ? PyBytes_AS_STRING(bytes) : NULL, mine,
                       initialise);
        Py_DECREF(mine);
    }
    Py_XDECREF(bytes);
    return result;
}

PyMethodDef fp_gpu_probe_methods[] = {
    {"gpu_probe", gpu_probe, METH_VARARGS,
     "gpu_probe($module, driver_path, cupti_paths, initialise, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
