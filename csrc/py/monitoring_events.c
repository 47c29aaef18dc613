#include "py/monitoring_events.h"

#include "py/call_form.h"
#include "py/events.h"
#include "py/threads.h"

#if FP_HAVE_MONITORING

/* ---- Python functions ---- */

/* The interpreter passes (code, offset, ...); other callers may pass
 * anything. */
static inline fp_recorder *
recorder_for(PyObject *self, PyObject *const *args, size_t nargsf)
{
    fp_recorder *r = ((fp_callback *)self)->recorder;
    if (FP_UNLIKELY(r == NULL || PyVectorcall_NARGS(nargsf) < 2 ||
                    !PyCode_Check(args[0]) || !PyLong_Check(args[1]))) {
        return NULL;
    }
    return r;
}

/* The calling thread's record for the plain path; NULL: take the full path. */
static inline fp_thread *
plain_thread(PyObject *self, size_t nargsf, Py_ssize_t needed)
{
    if (FP_UNLIKELY(PyVectorcall_NARGS(nargsf) < needed)) {
        return NULL;
    }
    return fp_plain_thread(FP_READ(((fp_callback *)self)->plain));
}

/* ... for the path of known nodes; NULL in builds with the GIL, too. */
static inline fp_thread *
known_thread(PyObject *self, size_t nargsf, Py_ssize_t needed)
{
    return FP_FREE_THREADED ? plain_thread(self, nargsf, needed) : NULL;
}

/* Switches off an event that fp_guard_is_alone() has left to the tool, unless
 * that stops the world: a forked child, or a daemon thread while the
 * interpreter ends, would never get the lock for it. */
static PyObject *
over(PyObject *self)
{
    int left = FP_FREE_THREADED && !FP_DISABLE_STOPS_WORLD &&
               ((fp_callback *)self)->recorder == NULL;
    return Py_NewRef(left ? ((fp_callback *)self)->disable : Py_None);
}

static FP_COLD PyObject *
slow_start(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_thread *t = known_thread(self, nargsf, 2);
    if (t != NULL && fp_known_enter(t, (fp_key)args[0], 0)) {
        Py_RETURN_NONE;
    }
    FP_GUARD();
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r != NULL) {
        fp_recorder_enter(r, (fp_key)args[0], args[0], 0);
    }
    return over(self);
}

static FP_COLD PyObject *
slow_resume(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_thread *t = known_thread(self, nargsf, 2);
    if (t != NULL && fp_known_enter(t, (fp_key)args[0], 1)) {
        Py_RETURN_NONE;
    }
    FP_GUARD();
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r != NULL) {
        fp_recorder_enter(r, (fp_key)args[0], args[0], 1);
    }
    Py_RETURN_NONE;
}

/* [can_stop]: the event can be switched off at its place; PY_UNWIND cannot. */
static FP_COLD PyObject *
slow_leave(PyObject *self, PyObject *const *args, size_t nargsf, int can_stop)
{
    fp_thread *t = known_thread(self, nargsf, 2);
    if (t != NULL && fp_known_leave(t, (fp_key)args[0])) {
        Py_RETURN_NONE;
    }
    FP_GUARD();
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r != NULL) {
        fp_recorder_leave(r, (fp_key)args[0]);
    }
    return can_stop ? over(self) : Py_NewRef(Py_None);
}

/* ---- C functions ---- */

/* What a bound method calls: CALL names the method, C_RETURN its function. */
static inline PyObject *
function_of(PyObject *callable)
{
    while (Py_TYPE(callable) == &PyMethod_Type) {
        callable = PyMethod_GET_FUNCTION(callable);
    }
    return callable;
}

static int
is_python_function(PyObject *callable)
{
    return Py_TYPE(function_of(callable)) == &PyFunction_Type;
}

/* The key of a callable, the same at both ends of a call.  0: not recorded. */
static inline fp_key
key_of(const fp_recorder *r, PyObject *callable, PyObject *arg0)
{
    while (Py_TYPE(callable) == &PyMethod_Type) {
        arg0 = PyMethod_GET_SELF(callable);
        callable = PyMethod_GET_FUNCTION(callable);
    }
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyFunction_Type) {
        return 0;
    }
    fp_key key = fp_c_function_key(callable);
    if (key != 0) {
        if (FP_UNLIKELY(fp_is_quiet(r->state, fp_key_method(key))) ||
            (type == &PyMethodDescr_Type && arg0 == r->state->missing)) {
            return 0;
        }
        return key;
    }
    if (!r->config.constructors) {
        return 0;
    }
    if (PyType_Check(callable)) {
        return fp_type_key((PyTypeObject *)callable, FP_TAG_TYPE);
    }
    return fp_type_key(type, FP_TAG_CALLABLE);
}

/* Does the call of a CALL event end without an event?  `f(*args)` sends none
 * for a bound method. */
static int
ends_unseen(const fp_recorder *r, PyObject *const *args)
{
    int beyond; /* instead of an exception */
    return Py_TYPE(args[2]) == &PyMethod_Type && PyCode_Check(args[0]) &&
           PyLong_Check(args[1]) &&
           fp_is_star_call(r->state, args[0],
                           PyLong_AsLongAndOverflow(args[1], &beyond));
}

/* Both return 0 if the event needs more than the thread's own record. */
static int
known_call(PyObject *self, PyObject *const *args, size_t nargsf)
{
    fp_thread *t = known_thread(self, nargsf, 4);
    const fp_recorder *r = FP_READ(((fp_callback *)self)->recorder);
    if (t == NULL || r == NULL) {
        return 0;
    }
    fp_key key = key_of(r, args[2], args[3]);
    return key == 0 || (!ends_unseen(r, args) && fp_known_enter(t, key, 0));
}

static int
known_c_leave(PyObject *self, PyObject *const *args, size_t nargsf)
{
    fp_thread *t = known_thread(self, nargsf, 4);
    const fp_recorder *r = FP_READ(((fp_callback *)self)->recorder);
    if (t == NULL || r == NULL) {
        return 0;
    }
    fp_key key = key_of(r, args[2], args[3]);
    return key == 0 || fp_known_leave(t, key);
}

static FP_COLD PyObject *
slow_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    if (FP_FREE_THREADED && known_call(self, args, nargsf)) {
        Py_RETURN_NONE;
    }
    FP_GUARD();
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r == NULL || PyVectorcall_NARGS(nargsf) < 4) {
        return over(self);
    }
    if (is_python_function(args[2])) {
        Py_RETURN_NONE; /* PY_START follows; most of these are bound methods */
    }
    fp_key key = key_of(r, args[2], args[3]);
    if (key == 0) {
        Py_RETURN_NONE;
    }
    if (FP_UNLIKELY(ends_unseen(r, args))) {
        fp_recorder_count(r, key, function_of(args[2]));
    }
    else {
        fp_recorder_enter(r, key, function_of(args[2]), 0);
    }
    Py_RETURN_NONE;
}

static FP_COLD PyObject *
slow_c_return(PyObject *self, PyObject *const *args, size_t nargsf,
              PyObject *kw)
{
    (void)kw;
    if (FP_FREE_THREADED && known_c_leave(self, args, nargsf)) {
        Py_RETURN_NONE;
    }
    FP_GUARD();
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r == NULL || PyVectorcall_NARGS(nargsf) < 4) {
        Py_RETURN_NONE;
    }
    fp_key key = key_of(r, args[2], args[3]);
    if (FP_LIKELY(key != 0)) {
        fp_recorder_leave_c(r, key, args[0]);
    }
    Py_RETURN_NONE;
}

/* ---- the callbacks: the plain path, else the full one ---- */

static PyObject *
on_start(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_enter(t, (fp_key)args[0], 0))) {
        Py_RETURN_NONE;
    }
    return slow_start(self, args, nargsf, kw);
}

static PyObject *
on_resume(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_enter(t, (fp_key)args[0], 1))) {
        Py_RETURN_NONE;
    }
    return slow_resume(self, args, nargsf, kw);
}

static PyObject *
on_leave(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_leave(t, (fp_key)args[0]))) {
        Py_RETURN_NONE;
    }
    return slow_leave(self, args, nargsf, 0);
}

static PyObject *
on_return(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_leave(t, (fp_key)args[0]))) {
        Py_RETURN_NONE;
    }
    return slow_leave(self, args, nargsf, 1);
}

/* Like key_of, for the most common callables; 0: take the full path. */
static inline fp_key
plain_c_key(PyObject *self, PyObject *const *args)
{
    PyTypeObject *type = Py_TYPE(args[2]);
    if (type == &PyCFunction_Type) {
        return (fp_key)((PyCFunctionObject *)args[2])->m_ml | FP_TAG_C;
    }
    if (type == &PyMethodDescr_Type &&
        args[3] != ((fp_callback *)self)->missing) {
        return (fp_key)((PyMethodDescrObject *)args[2])->d_method | FP_TAG_C;
    }
    return 0;
}

static PyObject *
on_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 4);
    if (FP_LIKELY(t != NULL)) {
        if (Py_TYPE(args[2]) == &PyFunction_Type) {
            Py_RETURN_NONE; /* PY_START follows */
        }
        fp_key key = plain_c_key(self, args);
        if (FP_LIKELY(key != 0 && fp_plain_enter(t, key, 0))) {
            Py_RETURN_NONE;
        }
    }
    return slow_call(self, args, nargsf, kw);
}

static PyObject *
on_c_return(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 4);
    if (FP_LIKELY(t != NULL)) {
        fp_key key = plain_c_key(self, args);
        if (FP_LIKELY(key != 0 && fp_plain_leave(t, key))) {
            Py_RETURN_NONE;
        }
    }
    return slow_c_return(self, args, nargsf, kw);
}

const vectorcallfunc fp_monitoring_handlers[FP_EVENTS] = {
    [FP_PY_START] = on_start,   [FP_PY_RESUME] = on_resume,
    [FP_PY_THROW] = on_resume,  [FP_PY_RETURN] = on_return,
    [FP_PY_YIELD] = on_leave,   [FP_PY_UNWIND] = on_leave,
    [FP_CALL] = on_call,        [FP_C_RETURN] = on_c_return,
    [FP_C_RAISE] = on_c_return,
};

#endif
