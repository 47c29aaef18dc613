/* hook_setprofile: turns the hook of PyEval_SetProfile on and off.
 *
 * The hook's argument is an object of our type.  So sys.getprofile() returns
 * an object that sys.setprofile() can set again, and a hook that was left in
 * another thread can find out that its recording is over: it then removes
 * itself, on that thread. */
#include "py/hooks.h"
#include "py/guard.h"
#include "py/interrupts.h"
#include "py/setprofile_events.h"

static const uint64_t never = FP_EPOCH_OFF;

/* ---- the hook as a Python profile function ---- */

static const char *const event_names[] = {
    [PyTrace_CALL] = "call",
    [PyTrace_RETURN] = "return",
    [PyTrace_C_CALL] = "c_call",
    [PyTrace_C_RETURN] = "c_return",
    [PyTrace_C_EXCEPTION] = "c_exception",
};

static int
event_of(PyObject *name)
{
    for (int i = 0; i < (int)(sizeof(event_names) / sizeof(char *)); i++) {
        if (event_names[i] != NULL &&
            PyUnicode_CompareWithASCIIString(name, event_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* The first event of a new thread (set by threading.setprofile), or of a
 * thread where the program set the hook again.  From now on the thread calls
 * the C function directly. */
static PyObject *
hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    FP_GUARD();
    PyObject *frame, *event, *arg;
    static char *names[] = {"frame", "event", "arg", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!UO", names,
                                     &PyFrame_Type, &frame, &event, &arg)) {
        return NULL;
    }
    int what = event_of(event);
    if (what >= 0) {
        Py_INCREF(self); /* an external timer may remove the hook */
        fp_setprofile_event(self, (PyFrameObject *)frame, what, arg);
        if (((fp_hook *)self)->recorder != NULL) {
            fp_compat_set_profile_directly(PyThreadState_Get(),
                                           fp_setprofile_event, self);
        }
        Py_DECREF(self);
    }
    Py_RETURN_NONE;
}

/* threading.Thread._bootstrap_inner tests the hook's truth value before it
 * calls sys.setprofile() with it.  In versions where that call may fail and
 * end the thread, set the hook here and return false. */
static int
hook_bool(PyObject *self)
{
    FP_GUARD();
    PyObject *current;
    if (!FP_DIRECT_PROFILE) {
        return 1;
    }
    if (((fp_hook *)self)->recorder != NULL &&
        !fp_compat_has_profile_func(&current)) {
        fp_compat_set_profile_directly(PyThreadState_Get(),
                                       fp_setprofile_event, self);
    }
    return 0;
}

/* ---- on and off ---- */

/* A hook whose recording is over is not another profiler. */
static int
is_dead_hook(const fp_recorder *r, PyObject *object)
{
    return object != NULL && Py_TYPE(object) == r->state->hook_type &&
           ((fp_hook *)object)->recorder == NULL;
}

/* The same test for a thread state.  A thread that has been idle since the end
 * still has the hook, which removes itself at that thread's next event. */
static int
is_over(PyObject *object)
{
    return Py_TYPE(object)->tp_call == hook_call &&
           ((fp_hook *)object)->recorder == NULL;
}

static int
refuse_other(fp_recorder *r, PyObject *other)
{
    PyErr_Format(r->state->busy_error,
                 "another profile function is active in this thread (%.100s "
                 "object): stop it first, it would be replaced",
                 other != NULL ? Py_TYPE(other)->tp_name : "a C");
    return -1;
}

/* Has another tool set threading's hook for new threads? */
static int
threading_hook_taken(fp_recorder *r, PyObject *threading)
{
    PyObject *hook = PyObject_CallMethod(threading, "getprofile", NULL);
    int taken = hook != NULL && hook != Py_None && !is_dead_hook(r, hook);
    Py_XDECREF(hook);
    (void)fp_error_drop(); /* getprofile is a Python function */
    return taken;
}

static int
set_threading_hook(PyObject *threading, PyObject *hook)
{
    PyObject *done = PyObject_CallMethod(threading, "setprofile", "O", hook);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
is_set(PyObject *hook)
{
    PyObject *current;
    int set = fp_compat_has_profile_func(&current);
    return hook != NULL ? set && current == hook : !set;
}

/* Sets the hook in this thread, or removes it if [hook] is NULL.  If an audit
 * hook objects, or there is no memory for the audit event, CPython does
 * nothing and reports nothing; 3.11 then also refuses the next attempt.  So
 * this function checks the result and tries again.  Returns 0, or -1 with an
 * exception. */
static int
set_audited(PyObject *hook)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        PyEval_SetProfile(hook != NULL ? fp_setprofile_event : NULL, hook);
        if (is_set(hook)) {
            PyErr_Clear();
            return 0;
        }
    }
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the interpreter refused to set the profile function");
    }
    return -1;
}

/* The same.  While a pause has removed the hook, or removes it, audit hooks are
 * not called where that can be avoided: CPython drops what an audit hook raises
 * here, also the exception of a signal handler of the program that ran in it. */
static int
set_here(const fp_recorder *r, PyObject *hook)
{
    if (!FP_DIRECT_PROFILE || !r->unhooked) {
        return set_audited(hook);
    }
    fp_compat_set_profile_directly(
        PyThreadState_Get(), hook != NULL ? fp_setprofile_event : NULL, hook);
    return 0;
}

static void
end(fp_hook *hook)
{
    hook->recorder = NULL;
    FP_WRITE(hook->plain, &never);
}

int
fp_setprofile_prepare(fp_state *st)
{
    if (st->threading == NULL) {
        st->threading = PyImport_ImportModule("threading");
    }
    return st->threading != NULL ? 0 : -1;
}

int
fp_setprofile_start(fp_recorder *r)
{
    PyObject *other;
    if (fp_compat_has_profile_func(&other) && !is_dead_hook(r, other)) {
        return refuse_other(r, other);
    }
    int rc = -1;
    fp_hook *hook = NULL;
    if (fp_setprofile_prepare(r->state) < 0) {
        goto done;
    }
    PyObject *threading = r->state->threading;
    hook = PyObject_New(fp_hook, r->state->hook_type);
    if (hook == NULL) {
        goto done;
    }
    hook->recorder = r;
    FP_WRITE(hook->plain, &r->plain_epoch);
    hook->home = PyThread_get_thread_ident();
    /* A hook left behind by an ended tool is no reason to refuse.  But we must
     * not replace it, so threads that start from now on are not recorded. */
    r->hooks.new_threads_lost = threading_hook_taken(r, threading);
    if (!r->hooks.new_threads_lost &&
        set_threading_hook(threading, (PyObject *)hook) < 0) {
        end(hook);
        goto done;
    }
    if (set_here(r, (PyObject *)hook) < 0) {
        /* New threads find a hook whose recording is over. */
        end(hook);
        goto done;
    }
    r->hooks.hook = Py_NewRef((PyObject *)hook);
    fp_compat_set_profile_elsewhere(fp_setprofile_event, (PyObject *)hook,
                                    is_over);
    rc = 0;
done:
    Py_XDECREF((PyObject *)hook);
    return rc;
}

int
fp_setprofile_is_home(const fp_recorder *r)
{
    return r->hooks.hook != NULL &&
           ((fp_hook *)r->hooks.hook)->home == PyThread_get_thread_ident();
}

int
fp_setprofile_rest(fp_recorder *r)
{
    PyObject *current;
    if (!FP_DIRECT_PROFILE || !fp_setprofile_is_home(r) ||
        !fp_compat_has_profile_func(&current) || current != r->hooks.hook) {
        return 0;
    }
    fp_compat_set_profile_directly(PyThreadState_Get(), NULL, NULL);
    return 1;
}

void
fp_setprofile_wake(fp_recorder *r)
{
    PyObject *other;
    /* otherwise another tool has the slot now */
    if (!fp_compat_has_profile_func(&other)) {
        fp_compat_set_profile_directly(PyThreadState_Get(),
                                       fp_setprofile_event, r->hooks.hook);
    }
}

void
fp_setprofile_stop(fp_recorder *r)
{
    PyObject *hook = r->hooks.hook, *current;
    if (hook == NULL) {
        return;
    }
    int home = fp_setprofile_is_home(r);
    int set = fp_compat_has_profile_func(&current);
    if (set && current == hook && !fp_guard_is_alone()) {
        /* If this fails, too, the hook removes itself at its next event. */
        (void)set_here(r, NULL);
        PyErr_Clear();
    }
    else if (home && !r->hooks.resting && !fp_guard_is_alone()) {
        /* Another tool took or emptied the slot; leave it alone. */
        r->recording.displaced = 1;
    }
    end((fp_hook *)hook);
    /* Before 3.12 a hook that stays in an idle thread costs nothing; later, all
     * code is instrumented until that thread goes on.  Audit hooks run here, and
     * what is raised in them is lost: so only if there is such a thread. */
    if (!FP_DIRECT_PROFILE && !fp_guard_is_alone() &&
        !fp_compat_has_profile_func(&current) &&
        fp_compat_profile_is_elsewhere(is_over)) {
        fp_compat_set_profile_elsewhere(NULL, NULL, is_over);
    }
    PyObject *threading = Py_XNewRef(r->state->threading);
    if (threading != NULL) {
        PyObject *theirs = PyObject_CallMethod(threading, "getprofile", NULL);
        if (theirs == hook) {
            set_threading_hook(threading, Py_None);
        }
        Py_XDECREF(theirs);
        Py_DECREF(threading);
    }
    (void)fp_error_drop();
    fp_setprofile_forget(r);
}

void
fp_setprofile_forget(fp_recorder *r)
{
    r->hooks.resting = 0;
    if (r->hooks.hook != NULL) {
        end((fp_hook *)r->hooks.hook);
        Py_CLEAR(r->hooks.hook);
    }
}

/* ---- type ---- */

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, fp_plain_dealloc},
    {Py_tp_call, hook_call},
    {Py_nb_bool, hook_bool},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "fastprof._core._Hook",
    .basicsize = sizeof(fp_hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_slots,
};

int
fp_setprofile_add_type(PyObject *module, fp_state *st)
{
    st->hook_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &hook_spec, NULL);
    return st->hook_type != NULL ? 0 : -1;
}
