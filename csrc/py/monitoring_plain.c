#include "py/monitoring_events.h"

#include "py/events.h"

#if FP_HAVE_MONITORING

static inline fp_thread *
plain_thread(PyObject *self, size_t nargsf, Py_ssize_t needed)
{
    if (FP_UNLIKELY(PyVectorcall_NARGS(nargsf) < needed)) {
        return NULL;
    }
    return fp_plain_thread(((fp_callback *)self)->plain);
}

static PyObject *
on_start(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_enter(t, (fp_key)args[0], 0))) {
        Py_RETURN_NONE;
    }
    return fp_monitoring_slow_start(self, args, nargsf, kw);
}

static PyObject *
on_resume(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_enter(t, (fp_key)args[0], 1))) {
        Py_RETURN_NONE;
    }
    return fp_monitoring_slow_resume(self, args, nargsf, kw);
}

static PyObject *
on_leave(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_leave(t, (fp_key)args[0]))) {
        Py_RETURN_NONE;
    }
    return fp_monitoring_slow_leave(self, args, nargsf, kw);
}

static PyObject *
on_return(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_leave(t, (fp_key)args[0]))) {
        Py_RETURN_NONE;
    }
    return fp_monitoring_slow_return(self, args, nargsf, kw);
}

/* As key_of, for what most calls call; 0: not on this path. */
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
    return fp_monitoring_slow_call(self, args, nargsf, kw);
}

/* Has the code [caller] called a C function, in some thread, that goes on?  With the
 * place of that call its end is switched off, too.  *nodes is how many were
 * looked at. */
static int
has_open_c_call(const fp_recorder *r, fp_key caller, uint32_t *nodes)
{
    *nodes = 0;
    for (const fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_path_walk w = fp_path_walk_begin(t);
        int from_c = 0;
        for (const fp_node *n; (n = fp_path_walk_next(t, &w)) != NULL;) {
            int tag = fp_key_tag(n->key);
            ++*nodes;
            if (tag == FP_TAG_PYTHON) {
                if (from_c && n->key == caller) {
                    return 1;
                }
                from_c = 0;
            }
            else if (tag != FP_TAG_SECTION) {
                from_c = 1;
            }
        }
    }
    return 0;
}

/* As on_call, when what it costs is too much: of a Python function PY_START tells,
 * so places that call one need not.  See budget.c. */
static PyObject *
on_call_of_c(PyObject *self, PyObject *const *args, size_t nargsf,
             PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 4);
    if (FP_LIKELY(t != NULL) && fp_is_python_function(args[2])) {
        fp_recorder *r = ((fp_callback *)self)->recorder;
        if (r->recording.sites_wait != 0) {
            r->recording.sites_wait--;
            Py_RETURN_NONE;
        }
        uint32_t nodes;
        int open = has_open_c_call(r, (fp_key)args[0], &nodes);
        r->recording.budget.visits += nodes;
        if (open) {
            /* It will be asked again at each call: once per so many. */
            r->recording.sites_wait = nodes;
            Py_RETURN_NONE;
        }
        r->recording.sites_off++;
        return Py_NewRef(r->state->disable);
    }
    return on_call(self, args, nargsf, kw);
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
    return fp_monitoring_slow_c_return(self, args, nargsf, kw);
}

static const vectorcallfunc on_event[FP_EVENTS] = {
    [FP_PY_START] = on_start,   [FP_PY_RESUME] = on_resume,
    [FP_PY_THROW] = on_resume,  [FP_PY_RETURN] = on_return,
    [FP_PY_YIELD] = on_leave,   [FP_PY_UNWIND] = on_leave,
    [FP_CALL] = on_call,        [FP_C_RETURN] = on_c_return,
    [FP_C_RAISE] = on_c_return,
};

vectorcallfunc
fp_monitoring_handler(const fp_recorder *r, int event)
{
    return event == FP_CALL && r->recording.leaves_out_sites ? on_call_of_c
                                                             : on_event[event];
}

#endif
