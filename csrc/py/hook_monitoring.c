/* hook_monitoring: events of sys.monitoring (3.12 and later).
 *
 * One callback object per event, each an own type with a vectorcall: cheaper
 * than a builtin method, and it needs no argument parsing.  A callback gets the
 * code object, so no frame is ever made.
 *
 * What a CALL event is followed by, and what is done about it:
 *   builtin, method descriptor     C_RETURN or C_RAISE    enter, leave
 *   Python function                PY_START ...           ignored
 *   type, callable object          C_RETURN or C_RAISE    only if asked for
 *   bound method over a builtin    C_RETURN of the builtin, or (3.13, called
 *     (every pybind11 method)      with *args) nothing: see enter_bound
 */
#include "py/monitoring_tool.h"
#include "py/paused.h"
#include "py/section_type.h"

#if FP_HAVE_MONITORING

enum { MAX_SITES = 1 << 16 };

typedef struct fp_callback {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    fp_recorder *recorder; /* borrowed; NULL: do nothing */
    const uint64_t *plain; /* see fp_plain_epoch */
    PyObject *missing;     /* borrowed: sys.monitoring.MISSING */
} fp_callback;

/* ---- Python functions ---- */

/* The interpreter passes (code, offset, ...); anybody else may pass junk. */
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

static FP_COLD PyObject *
slow_start(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r != NULL) {
        if (FP_UNLIKELY(r->any_muted) &&
            fp_recorder_is_muted(r, (fp_key)args[0])) {
            return Py_NewRef(r->state->disable);
        }
        fp_recorder_enter(r, (fp_key)args[0], args[0], 0);
    }
    Py_RETURN_NONE;
}

static FP_COLD PyObject *
slow_resume(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r != NULL) {
        fp_recorder_enter(r, (fp_key)args[0], args[0], 1);
    }
    Py_RETURN_NONE;
}

static FP_COLD PyObject *
slow_leave(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_recorder *r = recorder_for(self, args, nargsf);
    /* Unwinding cannot be switched off: a muted call was not entered. */
    if (r != NULL && !(FP_UNLIKELY(r->any_muted) &&
                       !fp_recorder_stands_in(r, (fp_key)args[0]) &&
                       fp_recorder_is_muted_slow(r, (fp_key)args[0]))) {
        fp_recorder_leave(r, (fp_key)args[0]);
    }
    Py_RETURN_NONE;
}

/* As slow_leave, for events that may be switched off at their place. */
static FP_COLD PyObject *
slow_return(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r != NULL) {
        if (FP_UNLIKELY(r->any_muted) &&
            fp_recorder_is_muted(r, (fp_key)args[0]) &&
            !fp_recorder_stands_in(r, (fp_key)args[0])) {
            return Py_NewRef(r->state->disable);
        }
        fp_recorder_leave(r, (fp_key)args[0]);
    }
    Py_RETURN_NONE;
}

/* ---- C functions ---- */

static int
is_python_function(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    return type == &PyFunction_Type ||
           (type == &PyMethod_Type &&
            Py_TYPE(PyMethod_GET_FUNCTION(callable)) == &PyFunction_Type);
}

/* One predicate for both sides of a call.  0: not recorded. */
static inline fp_key
key_of(const fp_recorder *r, PyObject *callable, PyObject *arg0)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyFunction_Type) {
        return 0;
    }
    fp_key key = fp_c_function_key(callable);
    if (key != 0) {
        if (FP_UNLIKELY(fp_is_quiet(fp_key_method(key))) ||
            (type == &PyMethodDescr_Type && arg0 == r->state->missing)) {
            return 0;
        }
        return key;
    }
    if (!r->constructors || type == &PyMethod_Type) {
        return 0;
    }
    if (PyType_Check(callable)) {
        return (fp_key)callable | FP_TAG_TYPE;
    }
    return (fp_key)type | FP_TAG_CALLABLE;
}

/* A call site, for the table of those that have returned once. */
static fp_key
site_key(PyObject *code, long offset)
{
    return ((fp_key)code ^ ((fp_key)offset << 48)) | FP_TAG_SPECIAL;
}

static void
forget_pending(void)
{
    if (FP_UNLIKELY(fp_this_thread->pending_code != NULL)) {
        fp_tls_own()->pending_code = NULL;
    }
}

/* A bound method over a builtin.  Whether a C_RETURN will come depends on the
 * version and the form of the call, so the first call at a site is only
 * counted; if a C_RETURN follows, the site is learned and later calls are
 * timed. */
static void
enter_bound(fp_recorder *r, PyObject *function, PyObject *const *args)
{
    fp_key key = fp_c_function_key(function);
    if (key == 0 || fp_is_quiet(fp_key_method(key))) {
        return;
    }
    long offset = PyLong_AsLong(args[1]);
    if (fp_keytab_find(&r->sites, site_key(args[0], offset)) != NULL) {
        fp_recorder_enter(r, key, function, 0);
        return;
    }
    fp_thread *t = fp_recorder_at(r, FP_HOOK_ENTER, key);
    fp_node *n = t ? fp_recorder_node(r, t, key, function) : NULL;
    if (n != NULL) {
        n->calls++;
        fp_tls *me = fp_tls_own(); /* as it has the thread's record */
        me->pending_code = args[0];
        me->pending_offset = offset;
        me->pending_key = key;
    }
}

/* Was this the return of a call that enter_bound only counted? */
static int
learned(fp_recorder *r, fp_key key, PyObject *const *args)
{
    const fp_tls *me = fp_this_thread;
    if (me->pending_code != args[0] || me->pending_key != key ||
        fp_recorder_stands_in(r, key) ||
        PyLong_AsLong(args[1]) != me->pending_offset) {
        return 0;
    }
    forget_pending();
    fp_key site = site_key(args[0], me->pending_offset);
    /* Code that is made while the program runs brings ever new ones. */
    if (r->sites.count < MAX_SITES && r->sites.count < r->limits.max_nodes &&
        fp_keytab_find(&r->sites, site) == NULL) {
        (void)fp_keytab_add(&r->sites, site, args[0]);
    }
    return 1;
}

static FP_COLD PyObject *
slow_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    (void)kw;
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r == NULL || PyVectorcall_NARGS(nargsf) < 4) {
        Py_RETURN_NONE;
    }
    /* The call before is over if this is another. */
    forget_pending();
    if (is_python_function(args[2])) {
        Py_RETURN_NONE; /* PY_START follows; here it is most often a bound one */
    }
    fp_key key = key_of(r, args[2], args[3]);
    if (FP_LIKELY(key != 0)) {
        if (FP_UNLIKELY(r->any_muted) && fp_recorder_is_muted(r, key)) {
            /* The place, not the function: see budget.c. */
            return Py_NewRef(r->state->disable);
        }
        fp_recorder_enter(r, key, args[2], 0);
    }
    else if (Py_TYPE(args[2]) == &PyMethod_Type) {
        enter_bound(r, PyMethod_GET_FUNCTION(args[2]), args);
    }
    Py_RETURN_NONE;
}

static FP_COLD PyObject *
slow_c_return(PyObject *self, PyObject *const *args, size_t nargsf,
              PyObject *kw)
{
    (void)kw;
    fp_recorder *r = recorder_for(self, args, nargsf);
    if (r == NULL || PyVectorcall_NARGS(nargsf) < 4) {
        Py_RETURN_NONE;
    }
    fp_key key = key_of(r, args[2], args[3]);
    if (key == 0 && Py_TYPE(args[2]) == &PyMethod_Type) {
        key = fp_c_function_key(PyMethod_GET_FUNCTION(args[2]));
        key = key && fp_is_quiet(fp_key_method(key)) ? 0 : key;
    }
    if (FP_UNLIKELY(fp_this_thread->pending_code != NULL) &&
        learned(r, key, args)) {
        Py_RETURN_NONE;
    }
    /* A call that switched its place off was not entered, and ends here. */
    if (FP_LIKELY(key != 0) &&
        !(FP_UNLIKELY(r->any_muted) && !fp_recorder_stands_in(r, key) &&
          fp_recorder_is_muted_slow(r, key))) {
        fp_recorder_leave_c(r, key, args[0]);
    }
    Py_RETURN_NONE;
}

/* ---- the callbacks: the plain path, else the slow one ---- */

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
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_leave(t, (fp_key)args[0]))) {
        Py_RETURN_NONE;
    }
    return slow_leave(self, args, nargsf, kw);
}

static PyObject *
on_return(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    fp_thread *t = plain_thread(self, nargsf, 2);
    if (FP_LIKELY(t != NULL && fp_plain_leave(t, (fp_key)args[0]))) {
        Py_RETURN_NONE;
    }
    return slow_return(self, args, nargsf, kw);
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
    return slow_call(self, args, nargsf, kw);
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
    if (FP_LIKELY(t != NULL) && is_python_function(args[2])) {
        fp_recorder *r = ((fp_callback *)self)->recorder;
        if (r->sites_wait != 0) {
            r->sites_wait--;
            Py_RETURN_NONE;
        }
        uint32_t nodes;
        int open = has_open_c_call(r, (fp_key)args[0], &nodes);
        r->budget.visits += nodes;
        if (open) {
            /* It will be asked again at each call: once per so many. */
            r->sites_wait = nodes;
            Py_RETURN_NONE;
        }
        r->sites_off++;
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
    return slow_c_return(self, args, nargsf, kw);
}

/* ---- starting and stopping ---- */

static const vectorcallfunc on_event[FP_EVENTS] = {
    [FP_PY_START] = on_start,   [FP_PY_RESUME] = on_resume,
    [FP_PY_THROW] = on_resume,  [FP_PY_RETURN] = on_return,
    [FP_PY_YIELD] = on_leave,   [FP_PY_UNWIND] = on_leave,
    [FP_CALL] = on_call,        [FP_C_RETURN] = on_c_return,
    [FP_C_RAISE] = on_c_return,
};

static int
is_of_builtins(fp_hook_event event)
{
    return event == FP_CALL || event == FP_C_RETURN || event == FP_C_RAISE;
}

static vectorcallfunc
handler_of(const fp_recorder *r, int event)
{
    return event == FP_CALL && r->leaves_out_sites ? on_call_of_c
                                                   : on_event[event];
}

static int
register_events(fp_recorder *r)
{
    long set = 0;
    for (int i = 0; i < FP_EVENTS; i++) {
        if (is_of_builtins(i) && !r->builtins) {
            continue;
        }
        fp_callback *cb = PyObject_New(fp_callback, r->state->callback_type);
        if (cb == NULL) {
            return -1;
        }
        cb->vectorcall = handler_of(r, i);
        cb->recorder = r;
        cb->plain = fp_plain_epoch(r);
        cb->missing = r->state->missing;
        r->callback[i] = (PyObject *)cb;
        if (fp_tool_register(r->state, r->tool_id, i, r->callback[i], &set) <
            0) {
            return -1;
        }
    }
    return fp_tool_send(r->state, r->tool_id, set);
}

/* Everything that start did, as far as it got.  Clears exceptions. */
static void
take_back(fp_recorder *r)
{
    fp_monitoring_forget(r);
    fp_tool_give_back(r->state, r->tool_id);
    r->tool_id = -1;
}

static void
set_call_handler(fp_recorder *r)
{
    if (r->callback[FP_CALL] != NULL) {
        ((fp_callback *)r->callback[FP_CALL])->vectorcall =
            handler_of(r, FP_CALL);
    }
}

int
fp_monitoring_leave_out_sites(fp_recorder *r)
{
    if (r->callback[FP_CALL] == NULL) {
        return 0;
    }
    r->leaves_out_sites = 1;
    r->state->restart_events = 1;
    set_call_handler(r);
    return 1;
}

/* Places that were switched off send events again, and are counted again. */
static void
count_sites_anew(fp_recorder *r)
{
    r->sites_off_most =
        r->sites_off > r->sites_off_most ? r->sites_off : r->sites_off_most;
    r->sites_off = 0;
}

void
fp_monitoring_rearm(fp_recorder *r)
{
    set_call_handler(r);
    count_sites_anew(r);
    r->state->restart_events = r->any_muted | r->leaves_out_sites;
    fp_tool_restart_events(r->state);
}

int
fp_monitoring_start(fp_recorder *r)
{
    r->tool_id = fp_tool_take(r->state);
    if (r->tool_id < 0) {
        return -1;
    }
    if (r->unhooked && (r->any_muted || r->leaves_out_sites)) {
        /* The hook was only out for a while.  Code that ran meanwhile sends all events
         * again, and what is unwanted will be switched off again; the rest may
         * stay as it is.  Restarting would reach the places of all tools. */
        count_sites_anew(r);
    }
    else if (r->state->restart_events) {
        /* Functions muted by an earlier recording send events again. */
        fp_monitoring_rearm(r);
    }
    if (register_events(r) < 0) {
        PyObject *type, *exc, *tb;
        PyErr_Fetch(&type, &exc, &tb);
        take_back(r);
        PyErr_Restore(type, exc, tb);
        return -1;
    }
    return 0;
}

void
fp_monitoring_stop(fp_recorder *r)
{
    if (r->state->monitoring == NULL) {
        fp_monitoring_forget(r); /* the interpreter is going down */
        return;
    }
    if (!fp_tool_may_be_ours(r->state, r->tool_id)) {
        /* Somebody freed the id or took it: what is there is not ours. */
        r->displaced = 1;
    }
    take_back(r);
}

void
fp_monitoring_replan(fp_recorder *r)
{
    for (int i = 0; i < FP_EVENTS; i++) {
        if (r->callback[i] != NULL) {
            ((fp_callback *)r->callback[i])->plain = fp_plain_epoch(r);
        }
    }
}

void
fp_monitoring_forget(fp_recorder *r)
{
    for (int i = 0; i < FP_EVENTS; i++) {
        if (r->callback[i] != NULL) {
            ((fp_callback *)r->callback[i])->recorder = NULL;
            ((fp_callback *)r->callback[i])->plain = &fp_epoch_off;
            Py_CLEAR(r->callback[i]);
        }
    }
}

/* ---- type ---- */

static PyMemberDef callback_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(fp_callback, vectorcall),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static void
callback_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot callback_slots[] = {
    {Py_tp_dealloc, callback_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, callback_members},
    {0, NULL},
};

static PyType_Spec callback_spec = {
    .name = "fastprof._core._Callback",
    .basicsize = sizeof(fp_callback),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = callback_slots,
};

int
fp_monitoring_add_type(PyObject *module, fp_state *st)
{
    st->callback_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &callback_spec, NULL);
    st->monitoring = Py_XNewRef(PySys_GetObject("monitoring"));
    if (st->callback_type == NULL || st->monitoring == NULL) {
        return -1;
    }
    st->missing = PyObject_GetAttrString(st->monitoring, "MISSING");
    st->disable = PyObject_GetAttrString(st->monitoring, "DISABLE");
    return st->missing != NULL && st->disable != NULL ? 0 : -1;
}

#else /* no sys.monitoring */

int
fp_monitoring_start(fp_recorder *r)
{
    PyErr_SetString(r->state->busy_error, "sys.monitoring needs Python 3.12");
    return -1;
}

void
fp_monitoring_stop(fp_recorder *r)
{
    (void)r;
}

void
fp_monitoring_forget(fp_recorder *r)
{
    (void)r;
}

int
fp_monitoring_leave_out_sites(fp_recorder *r)
{
    (void)r;
    return 0;
}

void
fp_monitoring_rearm(fp_recorder *r)
{
    (void)r;
}

void
fp_monitoring_replan(fp_recorder *r)
{
    (void)r;
}

int
fp_monitoring_add_type(PyObject *module, fp_state *st)
{
    (void)module;
    (void)st;
    return 0;
}

#endif
