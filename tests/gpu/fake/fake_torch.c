/* fakegpu: a Python module whose builtin functions make the fake's CUDA calls,
 * so that launches happen inside C calls, as they do in torch.
 *
 * The fake libcupti is the one at $FASTPROF_CUPTI, the driver the one at
 * $FASTPROF_CUDA_DRIVER; both are loaded when this module is imported. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "fake_cupti.h"

#include <dlfcn.h>
#include <pthread.h>

/* Functions of the loaded library; the module lives as long as the process. */
static struct control {
    uint32_t (*launch)(const fake_kernel *);
    uint32_t (*memcpy)(const fake_copy *);
    uint32_t (*memset)(uint64_t, int64_t, uint32_t, uint32_t);
    uint32_t (*synchronize)(int, uint32_t, uint32_t);
    void (*capture_begin)(void);
    void *(*capture_end)(void);
    void *(*instantiate)(void *);
    uint32_t (*graph_launch)(void *, uint32_t, uint32_t);
    size_t (*report)(char *, size_t);
    int (*set)(const char *, int64_t);
    int64_t (*get)(const char *);
    int (*fail)(const char *, int, int64_t);
    int (*slow)(const char *, int64_t);
    void (*set_time)(int64_t);
    void (*advance)(int64_t);
    void (*use_real_clock)(void);
    int64_t (*now)(void);
    void (*hold_subscriber)(const char *);
    void (*steal_buffers)(void);
    void (*foreign_clock)(void);
    void (*foreign_finalize)(void);
    void (*use_v2)(int);
    void (*unload)(const char *, const char *);
    void (*return_buffers)(void);
    void (*other_enable)(int, int);
    void (*flush)(uint32_t);
    void (*deliver_held)(void);
    void (*complete_foreign)(void);
    void (*program_init)(void);
} control;

static void *
symbol(void *library, const char *name)
{
    void *address = library != NULL ? dlsym(library, name) : NULL;
    if (address == NULL) {
        PyErr_Format(PyExc_ImportError, "fakegpu: no %s: %s", name, dlerror());
    }
    return address;
}

static int
load(void)
{
    const char *cupti = getenv("FASTPROF_CUPTI");
    const char *cuda = getenv("FASTPROF_CUDA_DRIVER");
    if (cupti == NULL || cuda == NULL) {
        PyErr_SetString(
            PyExc_ImportError,
            "fakegpu needs FASTPROF_CUPTI and FASTPROF_CUDA_DRIVER");
        return -1;
    }
    void *library = dlopen(cupti, RTLD_NOW);
    void *driver = dlopen(cuda, RTLD_NOW);
    *(void **)&control.program_init = symbol(driver, "fake_cuda_program_init");
    if (control.program_init == NULL) {
        return -1;
    }
#define LOAD(name) \
    do { \
        *(void **)&control.name = symbol(library, "fake_cupti_" #name); \
        if (control.name == NULL) { \
            return -1; \
        } \
    } while (0)
    LOAD(launch);
    LOAD(memcpy);
    LOAD(memset);
    LOAD(synchronize);
    LOAD(capture_begin);
    LOAD(capture_end);
    LOAD(instantiate);
    LOAD(graph_launch);
    LOAD(report);
    LOAD(set);
    LOAD(get);
    LOAD(fail);
    LOAD(slow);
    LOAD(set_time);
    LOAD(advance);
    LOAD(use_real_clock);
    LOAD(now);
    LOAD(hold_subscriber);
    LOAD(steal_buffers);
    LOAD(foreign_clock);
    LOAD(foreign_finalize);
    LOAD(use_v2);
    LOAD(unload);
    LOAD(return_buffers);
    LOAD(other_enable);
    LOAD(flush);
    LOAD(deliver_held);
    LOAD(complete_foreign);
#undef LOAD
    return 0;
}

/* ---- work for the device ---- */

static PyObject *
gpu_init(PyObject *self, PyObject *unused)
{
    control.program_init();
    Py_RETURN_NONE;
}

static PyObject *
gpu_launch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name",      "duration_ns",   "stream",
                            "device",    "grid",          "block",
                            "registers", "static_shared", "dynamic_shared",
                            "count",     "driver_only",   "release_gil",
                            NULL};
    fake_kernel k = {
        .duration_ns = 1000,
        .stream = 7,
        .grid = {1, 1, 1},
        .block = {128, 1, 1},
        .registers = 32,
    };
    long long duration = 1000;
    int count = 1, driver_only = 0, release = 1;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "z|LII(iii)(iii)IIIipp", names, &k.name, &duration,
            &k.stream, &k.device, &k.grid[0], &k.grid[1], &k.grid[2],
            &k.block[0], &k.block[1], &k.block[2], &k.registers,
            &k.static_shared, &k.dynamic_shared, &count, &driver_only,
            &release)) {
        return NULL;
    }
    k.duration_ns = duration;
    k.driver_only = (uint32_t)driver_only;
    PyThreadState *state = release ? PyEval_SaveThread() : NULL;
    uint32_t id = 0;
    for (int i = 0; i < count; i++) {
        id = control.launch(&k);
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return PyLong_FromUnsignedLong(id);
}

/* CUPTI's number of the direction, or 0 with an error set. */
static uint32_t
direction_of(const char *text)
{
    static const char *const known[] = {"HtoD", "DtoH", "HtoA", "AtoH",
                                        "AtoA", "AtoD", "DtoA", "DtoD",
                                        "HtoH", "PtoP"};
    for (uint32_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i], text) == 0) {
            return i + 1;
        }
    }
    PyErr_Format(PyExc_ValueError, "no copy goes '%s'; HtoD and so on", text);
    return 0;
}

static PyObject *
gpu_memcpy(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"direction", "nbytes",      "duration_ns",
                            "stream",    "device",      "to_device",
                            "wait",      "driver_only", NULL};
    fake_copy c = {.stream = 7};
    const char *direction;
    unsigned long long bytes;
    long long duration = 1000;
    int wait = 0, driver_only = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "sK|LIIIpp", names, &direction, &bytes, &duration,
            &c.stream, &c.device, &c.to_device, &wait, &driver_only)) {
        return NULL;
    }
    c.direction = direction_of(direction);
    if (c.direction == 0) {
        return NULL;
    }
    c.bytes = bytes;
    c.duration_ns = duration;
    c.wait = (uint32_t)wait;
    c.driver_only = (uint32_t)driver_only;
    uint32_t id;
    Py_BEGIN_ALLOW_THREADS
    id = control.memcpy(&c);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(id);
}

static PyObject *
gpu_memset(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"nbytes", "duration_ns", "stream", "device", NULL};
    unsigned long long bytes;
    long long duration = 1000;
    unsigned int stream = 7, device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|LII", names, &bytes,
                                     &duration, &stream, &device)) {
        return NULL;
    }
    uint32_t id;
    Py_BEGIN_ALLOW_THREADS
    id = control.memset(bytes, duration, device, stream);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(id);
}

/* Returns a value to the host: a small copy, and a wait for it. */
static PyObject *
gpu_item(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"duration_ns", "stream", "device", NULL};
    fake_copy c = {.direction = 2, .bytes = 4, .stream = 7};
    long long duration = 1000;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LII", names, &duration,
                                     &c.stream, &c.device)) {
        return NULL;
    }
    c.duration_ns = duration;
    Py_BEGIN_ALLOW_THREADS
    control.memcpy(&c);
    control.synchronize(FAKE_WAIT_STREAM, c.device, c.stream);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(0.0);
}

static PyObject *
gpu_synchronize(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"what", "stream", "device", NULL};
    const char *what = "device";
    unsigned int stream = 7, device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|sII", names, &what,
                                     &stream, &device)) {
        return NULL;
    }
    int wait = strcmp(what, "device") == 0   ? FAKE_WAIT_DEVICE
               : strcmp(what, "stream") == 0 ? FAKE_WAIT_STREAM
                                             : FAKE_WAIT_EVENT;
    Py_BEGIN_ALLOW_THREADS
    control.synchronize(wait, device, stream);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- backward ---- */

typedef struct backward_part { /* launches of one engine thread */
    const char **name;
    Py_ssize_t names;
    Py_ssize_t first;
    Py_ssize_t step;
    fake_kernel kernel;
} backward_part;

static void *
backward_thread(void *argument)
{
    backward_part *part = argument;
    for (Py_ssize_t i = part->first; i < part->names; i += part->step) {
        part->kernel.name = part->name[i];
        control.launch(&part->kernel);
    }
    return NULL;
}

enum { BACKWARD_THREADS = 16 };

/* Threads without a Python state launch; this one waits for them. */
static void
backward_in_threads(const backward_part *work, int threads)
{
    pthread_t id[BACKWARD_THREADS];
    backward_part part[BACKWARD_THREADS];
    int started = 0;
    for (int t = 0; t < threads; t++) {
        part[t] = *work;
        part[t].first = t;
        part[t].step = threads;
        started +=
            pthread_create(&id[t], NULL, backward_thread, &part[t]) == 0;
    }
    for (int t = 0; t < started; t++) {
        pthread_join(id[t], NULL);
    }
}

static PyObject *
gpu_run_backward(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kernels", "threads", "duration_ns", "stream",
                            "device",  "root",    NULL};
    /* The gradient of the root, launched by the calling thread before it
     * waits. */
    const char *root = NULL;
    PyObject *kernels;
    int threads = 1;
    long long duration = 1000;
    backward_part work = {
        .kernel = {.stream = 7, .grid = {1, 1, 1}, .block = {128, 1, 1}}};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|iLIIz", names, &kernels,
                                     &threads, &duration, &work.kernel.stream,
                                     &work.kernel.device, &root)) {
        return NULL;
    }
    if (threads < 1 || threads > BACKWARD_THREADS) {
        return PyErr_Format(PyExc_ValueError, "threads is %d, not 1 to %d",
                            threads, BACKWARD_THREADS);
    }
    PyObject *list = PySequence_Tuple(kernels);
    if (list == NULL) {
        return NULL;
    }
    work.names = PyTuple_GET_SIZE(list);
    work.kernel.duration_ns = duration;
    work.name = PyMem_Calloc((size_t)work.names + 1, sizeof(*work.name));
    PyObject *result = work.name != NULL ? Py_None : PyErr_NoMemory();
    for (Py_ssize_t i = 0; result != NULL && i < work.names; i++) {
        work.name[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(list, i));
        result = work.name[i] != NULL ? Py_None : NULL;
    }
    if (result != NULL) {
        Py_BEGIN_ALLOW_THREADS
        if (root != NULL) {
            fake_kernel first = work.kernel;
            first.name = root;
            control.launch(&first);
        }
        backward_in_threads(&work, threads);
        Py_END_ALLOW_THREADS
        Py_INCREF(result);
    }
    PyMem_Free(work.name);
    Py_DECREF(list);
    return result;
}

/* ---- graphs ---- */

static PyObject *
gpu_capture_begin(PyObject *self, PyObject *unused)
{
    control.capture_begin();
    Py_RETURN_NONE;
}

static PyObject *
gpu_capture_end(PyObject *self, PyObject *unused)
{
    void *graph = control.capture_end();
    if (graph == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread captures no graph");
        return NULL;
    }
    return PyLong_FromVoidPtr(graph);
}

static PyObject *
gpu_instantiate(PyObject *self, PyObject *graph)
{
    void *from = PyLong_AsVoidPtr(graph);
    return from != NULL ? PyLong_FromVoidPtr(control.instantiate(from)) : NULL;
}

static PyObject *
gpu_replay(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"exec", "stream", "device", NULL};
    PyObject *exec;
    unsigned int stream = 7, device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|II", names, &exec,
                                     &stream, &device)) {
        return NULL;
    }
    void *graph = PyLong_AsVoidPtr(exec);
    if (graph == NULL) {
        return NULL;
    }
    uint32_t id;
    Py_BEGIN_ALLOW_THREADS
    id = control.graph_launch(graph, device, stream);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(id);
}

/* ---- control by tests ---- */

static PyObject *
gpu_counters(PyObject *self, PyObject *unused)
{
    size_t size = control.report(NULL, 0) + 4096;
    char *text = PyMem_Malloc(size);
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    control.report(text, size);
    PyObject *json = PyImport_ImportModule("json");
    PyObject *result =
        json != NULL ? PyObject_CallMethod(json, "loads", "s", text) : NULL;
    Py_XDECREF(json);
    PyMem_Free(text);
    return result;
}

static PyObject *
unknown(const char *what, const char *name)
{
    return PyErr_Format(PyExc_ValueError, "the fake has no %s '%s'", what,
                        name);
}

static PyObject *
gpu_set(PyObject *self, PyObject *args)
{
    const char *option;
    long long value;
    if (!PyArg_ParseTuple(args, "sL", &option, &value)) {
        return NULL;
    }
    if (control.set(option, value) != 0) {
        return unknown("option", option);
    }
    Py_RETURN_NONE;
}

static PyObject *
gpu_get(PyObject *self, PyObject *args)
{
    const char *counter;
    if (!PyArg_ParseTuple(args, "s", &counter)) {
        return NULL;
    }
    return PyLong_FromLongLong(control.get(counter));
}

static PyObject *
gpu_fail(PyObject *self, PyObject *args)
{
    const char *function;
    int code;
    long long after = 0;
    if (!PyArg_ParseTuple(args, "si|L", &function, &code, &after)) {
        return NULL;
    }
    if (control.fail(function, code, after) != 0) {
        return unknown("function", function);
    }
    Py_RETURN_NONE;
}

static PyObject *
gpu_slow(PyObject *self, PyObject *args)
{
    const char *function;
    long long milliseconds;
    if (!PyArg_ParseTuple(args, "sL", &function, &milliseconds)) {
        return NULL;
    }
    if (control.slow(function, milliseconds) != 0) {
        return unknown("function", function);
    }
    Py_RETURN_NONE;
}

static PyObject *
gpu_set_time(PyObject *self, PyObject *args)
{
    long long ns;
    if (!PyArg_ParseTuple(args, "L", &ns)) {
        return NULL;
    }
    control.set_time(ns);
    Py_RETURN_NONE;
}

static PyObject *
gpu_advance(PyObject *self, PyObject *args)
{
    long long ns;
    if (!PyArg_ParseTuple(args, "L", &ns)) {
        return NULL;
    }
    control.advance(ns);
    Py_RETURN_NONE;
}

static PyObject *
gpu_now(PyObject *self, PyObject *unused)
{
    return PyLong_FromLongLong(control.now());
}

static PyObject *
gpu_hold_subscriber(PyObject *self, PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "z", &name)) {
        return NULL;
    }
    control.hold_subscriber(name);
    Py_RETURN_NONE;
}

static PyObject *
gpu_other_enable(PyObject *self, PyObject *args)
{
    int kind, on;
    if (!PyArg_ParseTuple(args, "ip", &kind, &on)) {
        return NULL;
    }
    control.other_enable(kind, on);
    Py_RETURN_NONE;
}

/* With release_gil false, a client that takes the GIL to supply a buffer hangs
 * here. */
static PyObject *
gpu_flush(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"flags", "release_gil", NULL};
    unsigned int flags = 0;
    int release = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Ip", names, &flags,
                                     &release)) {
        return NULL;
    }
    PyThreadState *state = release ? PyEval_SaveThread() : NULL;
    control.flush(flags);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    Py_RETURN_NONE;
}

#define PLAIN(name) \
    static PyObject *gpu_##name(PyObject *self, PyObject *unused) \
    { \
        Py_BEGIN_ALLOW_THREADS \
        control.name(); \
        Py_END_ALLOW_THREADS \
        Py_RETURN_NONE; \
    }

PLAIN(use_real_clock)
PLAIN(steal_buffers)
PLAIN(foreign_clock)
PLAIN(foreign_finalize)
PLAIN(return_buffers)
PLAIN(deliver_held)
PLAIN(complete_foreign)

static PyObject *
gpu_use_v2(PyObject *self, PyObject *args)
{
    int on;
    if (!PyArg_ParseTuple(args, "p", &on)) {
        return NULL;
    }
    control.use_v2(on);
    Py_RETURN_NONE;
}

static PyObject *
gpu_unload(PyObject *self, PyObject *args)
{
    const char *name, *other;
    if (!PyArg_ParseTuple(args, "ss", &name, &other)) {
        return NULL;
    }
    control.unload(name, other);
    Py_RETURN_NONE;
}

#define KEYWORDS(name) \
    {#name, (PyCFunction)(void (*)(void))gpu_##name, \
     METH_VARARGS | METH_KEYWORDS, NULL}
#define POSITIONS(name) {#name, gpu_##name, METH_VARARGS, NULL}
#define NOTHING(name) {#name, gpu_##name, METH_NOARGS, NULL}

static PyMethodDef functions[] = {
    NOTHING(init),
    KEYWORDS(launch),
    KEYWORDS(memcpy),
    KEYWORDS(memset),
    KEYWORDS(item),
    KEYWORDS(synchronize),
    KEYWORDS(run_backward),
    NOTHING(capture_begin),
    NOTHING(capture_end),
    {"instantiate", gpu_instantiate, METH_O, NULL},
    KEYWORDS(replay),
    NOTHING(counters),
    POSITIONS(set),
    POSITIONS(get),
    POSITIONS(fail),
    POSITIONS(slow),
    POSITIONS(set_time),
    POSITIONS(advance),
    NOTHING(use_real_clock),
    NOTHING(now),
    POSITIONS(hold_subscriber),
    NOTHING(steal_buffers),
    NOTHING(foreign_clock),
    NOTHING(foreign_finalize),
    POSITIONS(use_v2),
    POSITIONS(unload),
    NOTHING(return_buffers),
    POSITIONS(other_enable),
    KEYWORDS(flush),
    NOTHING(deliver_held),
    NOTHING(complete_foreign),
    {NULL, NULL, 0, NULL},
};

/* As in torch: a method of the engine, not a function of a module. */
static PyMethodDef engine_methods[] = {
    KEYWORDS(run_backward),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_methods, engine_methods},
    {0, NULL},
};

static PyType_Spec engine_spec = {
    .name = "fakegpu.Engine",
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = engine_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fakegpu",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_fakegpu(void)
{
    if (load() != 0) {
        return NULL;
    }
    PyObject *m = PyModule_Create(&module);
    PyObject *engine = m != NULL ? PyType_FromSpec(&engine_spec) : NULL;
    if (engine == NULL || PyModule_AddObject(m, "Engine", engine) != 0) {
        Py_XDECREF(engine);
        Py_XDECREF(m);
        return NULL;
    }
    return m;
}
