/* hook_setprofile: events of PyEval_SetProfile.
 *
 * The hook's argument is an object of our own, so that sys.getprofile() returns
 * something that can be put back with sys.setprofile(), and so that a hook left
 * behind in another thread can tell that its recording is over: it then takes
 * itself out, on its own thread. */
#include "py/paused.h"
#include "py/section_type.h"

typedef struct fp_hook {
    PyObject_HEAD
    fp_recorder *recorder; /* borrowed; NULL: over */
    const uint64_t *plain; /* see fp_plain_epoch */
    unsigned long home;    /* thread that started the recording */
} fp_hook;

/* ---- generators: a call, or the continuation of one? ---- */

/* Offset of the RESUME that starts the function: the first without an argument.
 * In 3.15 a generator expression has one with an argument before it, which makes
 * the generator and which the hook is not told of. */
static int32_t
find_first_resume(fp_recorder *r, PyCodeObject *code)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyObject *bytes = fp_compat_code_bytes(code);
    int32_t found = -2; /* none: every event is a start */
    if (bytes != NULL && PyBytes_Check(bytes)) {
        const unsigned char *op = (unsigned char *)PyBytes_AS_STRING(bytes);
        for (Py_ssize_t i = 0; i + 1 < PyBytes_GET_SIZE(bytes); i += 2) {
            if (op[i] == r->state->resume_opcode && op[i + 1] == 0) {
                found = (int32_t)i;
                break;
            }
        }
    }
    Py_XDECREF(bytes);
    PyErr_Restore(type, exc, tb);
    return found;
}

static int
is_resume(fp_recorder *r, PyCodeObject *code, PyFrameObject *frame)
{
    if (!fp_code_can_suspend(code)) {
        return 0;
    }
    int lasti = fp_compat_frame_lasti(frame);
    if (!FP_HAVE_RESUME_OPCODE) {
        return lasti >= 0;
    }
    fp_keyent *e = fp_keytab_find(&r->keys, (fp_key)code);
    if (e == NULL) {
        if (fp_keytab_add(&r->keys, (fp_key)code, (PyObject *)code) != FP_OK) {
            return 0;
        }
        e = fp_keytab_find(&r->keys, (fp_key)code);
    }
    if (e->first_resume == -1) {
        e->first_resume = find_first_resume(r, code);
    }
    return e->first_resume >= 0 && lasti > e->first_resume;
}

/* ---- events ---- */

static void
call_event(fp_recorder *r, PyFrameObject *frame)
{
    PyObject *code = fp_compat_frame_code(frame);
    /* Asked again after the plain path failed: rare, and without effect. */
    int resume = is_resume(r, (PyCodeObject *)code, frame);
    fp_recorder_enter(r, (fp_key)code, code, resume);
}

static void
c_call_event(fp_recorder *r, PyObject *function)
{
    fp_key key = r->builtins ? fp_c_function_key(function) : 0;
    if (key != 0 && !fp_is_quiet(fp_key_method(key))) {
        fp_recorder_enter(r, key, function, 0);
    }
}

/* A return whose call was not announced, from a frame that we saw begin: a
 * bound method over a builtin.  It can be counted, not timed. */
static int
count_lone_return(fp_recorder *r, PyFrameObject *frame, fp_key key,
                  PyObject *function)
{
    fp_thread *t = fp_recorder_here(r);
    if (t == NULL || t->cur->key == key ||
        t->cur->key != (fp_key)fp_compat_frame_code(frame)) {
        return 0;
    }
    fp_node *n = fp_recorder_node(r, t, key, function);
    if (n != NULL) {
        n->calls++;
    }
    return 1;
}

static void
c_return_event(fp_recorder *r, PyFrameObject *frame, PyObject *function)
{
    fp_key key = r->builtins ? fp_c_function_key(function) : 0;
    if (key == 0 || fp_is_quiet(fp_key_method(key))) {
        return;
    }
    if (FP_LONE_C_RETURN && count_lone_return(r, frame, key, function)) {
        return;
    }
    fp_recorder_leave_c(r, key, fp_compat_frame_code(frame));
}

static FP_COLD int
slow_event(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    fp_recorder *r = ((fp_hook *)self)->recorder;
    if (FP_UNLIKELY(r == NULL)) {
        fp_compat_set_profile_directly(PyThreadState_Get(), NULL, NULL);
        return 0;
    }
    switch (what) {
    case PyTrace_CALL:
        call_event(r, frame);
        break;
    case PyTrace_RETURN:
        fp_recorder_leave(r, (fp_key)fp_compat_frame_code(frame));
        break;
    case PyTrace_C_CALL:
        c_call_event(r, arg);
        break;
    case PyTrace_C_RETURN:
    case PyTrace_C_EXCEPTION:
        c_return_event(r, frame, arg);
        break;
    default:
        break;
    }
    return 0;
}

/* The plain path: 1 if it was enough. */
static inline int
plain_event(fp_recorder *r, fp_thread *t, PyFrameObject *frame, int what,
            PyObject *arg)
{
    PyCodeObject *code;
    switch (what) {
    case PyTrace_CALL:
        code = (PyCodeObject *)fp_compat_frame_code(frame);
        return fp_plain_enter(t, (fp_key)code, is_resume(r, code, frame));
    case PyTrace_RETURN:
        return fp_plain_leave(t, (fp_key)fp_compat_frame_code(frame));
    case PyTrace_C_CALL:
        return Py_TYPE(arg) == &PyCFunction_Type &&
               fp_plain_enter(t, fp_c_function_key(arg), 0);
    case PyTrace_C_RETURN:
    case PyTrace_C_EXCEPTION:
        return Py_TYPE(arg) == &PyCFunction_Type &&
               fp_plain_leave(t, fp_c_function_key(arg));
    default:
        return 0;
    }
}

static int
on_event(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    fp_thread *t = fp_plain_thread(((fp_hook *)self)->plain);
    if (FP_LIKELY(t != NULL && plain_event(((fp_hook *)self)->recorder, t,
                                           frame, what, arg))) {
        return 0;
    }
    return slow_event(self, frame, what, arg);
}

/* ---- called as a Python profile function ---- */

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

/* The first event of a new thread (threading.setprofile put us there), or of
 * one where the user put us back.  From now on the thread calls C directly. */
static PyObject *
hook_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *frame, *event, *arg;
    static char *names[] = {"frame", "event", "arg", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!UO", names,
                                     &PyFrame_Type, &frame, &event, &arg)) {
        return NULL;
    }
    int what = event_of(event);
    if (what >= 0) {
        Py_INCREF(self); /* an external timer may take us out of the slot */
        on_event(self, (PyFrameObject *)frame, what, arg);
        if (((fp_hook *)self)->recorder != NULL) {
            fp_compat_set_profile_directly(PyThreadState_Get(), on_event,
                                           self);
        }
        Py_DECREF(self);
    }
    Py_RETURN_NONE;
}

/* A new thread asks whether there is a hook before it calls sys.setprofile() with
 * it (threading.Thread._bootstrap_inner).  Where that call may fail, and the
 * thread with it, we set ourselves here and say no. */
static int
hook_bool(PyObject *self)
{
    PyObject *current;
    if (!FP_DIRECT_PROFILE) {
        return 1;
    }
    if (((fp_hook *)self)->recorder != NULL &&
        !fp_compat_has_profile_func(&current)) {
        fp_compat_set_profile_directly(PyThreadState_Get(), on_event, self);
    }
    return 0;
}

/* ---- on and off ---- */

static int
is_hook(const fp_recorder *r, PyObject *object)
{
    return object != NULL && Py_TYPE(object) == r->state->hook_type;
}

/* A hook whose recording is over does not count as another profiler. */
static int
is_dead_hook(const fp_recorder *r, PyObject *object)
{
    return is_hook(r, object) && ((fp_hook *)object)->recorder == NULL;
}

/* The same.  A thread that was idle since then has it still: it takes itself out at
 * the thread's next event only. */
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

/* Is threading's hook for new threads somebody else's? */
static int
threading_hook_taken(fp_recorder *r, PyObject *threading)
{
    PyObject *hook = PyObject_CallMethod(threading, "getprofile", NULL);
    int taken = hook != NULL && hook != Py_None && !is_dead_hook(r, hook);
    Py_XDECREF(hook);
    PyErr_Clear();
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

/* Sets or ([hook] is NULL) removes our function in this thread.  An audit hook
 * that objects, or no memory for its event, makes CPython do nothing and say
 * nothing; 3.11 then refuses once more.  So look, and try again.  -1 with an
 * exception when it did not work. */
static int
set_here(PyObject *hook)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        PyEval_SetProfile(hook != NULL ? on_event : NULL, hook);
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

static void
end(fp_hook *hook)
{
    hook->recorder = NULL;
    hook->plain = &fp_epoch_off;
}

int
fp_setprofile_start(fp_recorder *r)
{
    PyObject *other;
    if (fp_compat_has_profile_func(&other) && !is_dead_hook(r, other)) {
        return refuse_other(r, other);
    }
    int rc = -1;
    PyObject *threading = PyImport_ImportModule("threading");
    fp_hook *hook = NULL;
    if (threading == NULL) {
        goto done;
    }
    hook = PyObject_New(fp_hook, r->state->hook_type);
    if (hook == NULL) {
        goto done;
    }
    hook->recorder = r;
    hook->plain = fp_plain_epoch(r);
    hook->home = PyThread_get_thread_ident();
    /* One that a tool left behind after its end is no reason to refuse; but it
     * is not ours to take, so threads started from now on are not seen. */
    r->new_threads_lost = threading_hook_taken(r, threading);
    if (!r->new_threads_lost &&
        set_threading_hook(threading, (PyObject *)hook) < 0) {
        end(hook);
        goto done;
    }
    if (set_here((PyObject *)hook) < 0) {
        /* New threads find a hook whose recording is over. */
        end(hook);
        goto done;
    }
    r->hook = Py_NewRef((PyObject *)hook);
    fp_compat_set_profile_elsewhere(on_event, (PyObject *)hook, is_over);
    rc = 0;
done:
    Py_XDECREF((PyObject *)hook);
    Py_XDECREF(threading);
    return rc;
}

int
fp_setprofile_is_home(const fp_recorder *r)
{
    return r->hook != NULL &&
           ((fp_hook *)r->hook)->home == PyThread_get_thread_ident();
}

int
fp_setprofile_rest(fp_recorder *r)
{
    PyObject *current;
    if (!FP_DIRECT_PROFILE || !fp_setprofile_is_home(r) ||
        !fp_compat_has_profile_func(&current) || current != r->hook) {
        return 0;
    }
    fp_compat_set_profile_directly(PyThreadState_Get(), NULL, NULL);
    return 1;
}

void
fp_setprofile_wake(fp_recorder *r)
{
    PyObject *other;
    if (!fp_compat_has_profile_func(&other)) { /* else it is theirs now */
        fp_compat_set_profile_directly(PyThreadState_Get(), on_event, r->hook);
    }
}

void
fp_setprofile_stop(fp_recorder *r)
{
    PyObject *hook = r->hook, *current;
    if (hook == NULL) {
        return;
    }
    int home = fp_setprofile_is_home(r);
    int set = fp_compat_has_profile_func(&current);
    if (set && current == hook) {
        /* If even this fails, the hook takes itself out at its next event. */
        (void)set_here(NULL);
        PyErr_Clear();
    }
    else if (home && !r->resting) {
        /* Somebody took the slot, or emptied it; it is theirs now. */
        r->displaced = 1;
    }
    PyObject *threading = PyImport_ImportModule("threading");
    if (threading != NULL) {
        PyObject *theirs = PyObject_CallMethod(threading, "getprofile", NULL);
        if (theirs == hook) {
            set_threading_hook(threading, Py_None);
        }
        Py_XDECREF(theirs);
        Py_DECREF(threading);
    }
    PyErr_Clear();
    fp_setprofile_forget(r);
}

void
fp_setprofile_replan(fp_recorder *r)
{
    if (r->hook != NULL) {
        ((fp_hook *)r->hook)->plain = fp_plain_epoch(r);
    }
}

void
fp_setprofile_forget(fp_recorder *r)
{
    r->resting = 0;
    if (r->hook != NULL) {
        end((fp_hook *)r->hook);
        Py_CLEAR(r->hook);
    }
}

/* ---- type ---- */

static void
hook_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, hook_dealloc},
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
