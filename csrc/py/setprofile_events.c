#include "py/setprofile_events.h"

#include "py/guard.h"
#include "py/events.h"
#include "py/threads.h"

/* ---- generators: a call or a resume? ---- */

/* Offset of the RESUME that starts the function: the first one with argument
 * 0. In 3.15 a generator expression has another RESUME before it, which
 * creates the generator and sends no event to the hook. */
static int32_t
find_first_resume(fp_recorder *r, PyCodeObject *code)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyObject *bytes = fp_compat_code_bytes(code);
    int32_t found = -2; /* there is none: every event is a start */
    if (bytes != NULL && PyBytes_Check(bytes)) {
        const unsigned char *op = (unsigned char *)PyBytes_AS_STRING(bytes);
        for (Py_ssize_t i = 0; i + 1 < PyBytes_GET_SIZE(bytes); i += 2) {
            if (op[i] == r->state->opcodes[FP_OPCODE_RESUME] &&
                op[i + 1] == 0) {
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
    /* Only a node's key is kept, so that a full tree bounds the table. */
    fp_keyent *e = fp_keytab_find(&r->keys, (fp_key)code);
    int32_t first = e != NULL ? e->first_resume : -1;
    if (first == -1) {
        first = find_first_resume(r, code);
        if (e != NULL) {
            e->first_resume = first;
        }
    }
    return first >= 0 && lasti > first;
}

/* ---- builtins that end without an event ----
 *
 * 3.12.5 and later send no c_return for a bound method over a builtin that is
 * called as `f(*args)`.  But when the caller's frame makes the next event, a C
 * function that it called has ended. */

static inline void
remember_call(fp_thread *t, PyFrameObject *frame)
{
    if (FP_HAVE_MONITORING) {
        t->c_node = t->cur;
        t->c_offset = fp_compat_frame_lasti(frame);
    }
}

/* The innermost function of [t] if it is a C function that the code of [frame]
 * called; else NULL. */
static const fp_node *
called_by(const fp_thread *t, PyFrameObject *frame)
{
    fp_path_walk w = fp_path_walk_begin(t);
    const fp_node *c = fp_path_walk_function(t, &w);
    if (c == NULL || fp_key_tag(c->key) != FP_TAG_C) {
        return NULL;
    }
    const fp_node *caller = fp_path_walk_function(t, &w);
    return caller != NULL && caller->key == (fp_key)fp_compat_frame_code(frame)
               ? c
               : NULL;
}

/* The thread's record if such calls may be open; NULL: they are not. */
static fp_thread *
unseen_thread(fp_recorder *r)
{
    fp_thread *t = FP_HAVE_MONITORING ? fp_recorder_here(r) : NULL;
    return t != NULL && !fp_thread_is_parked(t) ? t : NULL;
}

/* [frame] makes an event. */
static void
end_unseen(fp_recorder *r, PyFrameObject *frame)
{
    fp_thread *t = unseen_thread(r);
    const fp_node *c = t != NULL ? called_by(t, frame) : NULL;
    if (c != NULL) {
        fp_recorder_leave_unseen(r, t, c->key);
    }
}

/* [callee] begins.  Its caller may be a C function; that one has ended if the
 * frame of its own caller has moved on. */
static void
end_unseen_before(fp_recorder *r, PyFrameObject *callee)
{
    fp_thread *t = unseen_thread(r);
    if (t == NULL || fp_thread_innermost(t) != t->c_node) {
        return;
    }
    PyFrameObject *frame = PyFrame_GetBack(callee);
    if (frame != NULL && fp_compat_frame_lasti(frame) != t->c_offset) {
        end_unseen(r, frame);
    }
    Py_XDECREF(frame);
}

/* ---- events ---- */

static void
call_event(fp_recorder *r, PyFrameObject *frame)
{
    PyObject *code = fp_compat_frame_code(frame);
    end_unseen_before(r, frame);
    /* The plain path has tested this already; the second test is rare and
     * harmless.  Nobody needs it in a pause. */
    int resume = fp_recorder_here(r) != NULL &&
                 is_resume(r, (PyCodeObject *)code, frame);
    fp_recorder_enter(r, (fp_key)code, code, resume);
}

static void
c_call_event(fp_recorder *r, PyFrameObject *frame, PyObject *function)
{
    fp_key key = r->config.builtins ? fp_c_function_key(function) : 0;
    end_unseen(r, frame);
    if (key == 0 || fp_is_quiet(r->state, fp_key_method(key))) {
        return;
    }
    fp_recorder_enter(r, key, function, 0);
    fp_thread *t = unseen_thread(r);
    if (t != NULL) {
        remember_call(t, frame);
    }
}

static void
c_return_event(fp_recorder *r, PyFrameObject *frame, PyObject *function)
{
    fp_key key = r->config.builtins ? fp_c_function_key(function) : 0;
    if (key == 0 || fp_is_quiet(r->state, fp_key_method(key))) {
        return;
    }
    if (fp_recorder_leave_c(r, key, fp_compat_frame_code(frame))) {
        /* 3.12.0 to 3.12.4: a bound method over a builtin sent no c_call */
        fp_recorder_count(r, key, function);
    }
}

static FP_COLD int
slow_event(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    FP_GUARD();
    fp_recorder *r = ((fp_hook *)self)->recorder;
    if (FP_UNLIKELY(r == NULL)) {
        if (fp_guard_is_alone()) {
            return 0;
        }
        fp_compat_set_profile_directly(PyThreadState_Get(), NULL, NULL);
        return 0;
    }
    switch (what) {
    case PyTrace_CALL:
        call_event(r, frame);
        break;
    case PyTrace_RETURN:
        end_unseen(r, frame);
        fp_recorder_leave(r, (fp_key)fp_compat_frame_code(frame));
        break;
    case PyTrace_C_CALL:
        c_call_event(r, frame, arg);
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

/* The plain path.  Returns 1 if it handled the event. */
static inline int
plain_event(fp_recorder *r, fp_thread *t, PyFrameObject *frame, int what,
            PyObject *arg)
{
    PyCodeObject *code;
    switch (what) {
    case PyTrace_CALL:
        code = (PyCodeObject *)fp_compat_frame_code(frame);
        if (FP_FREE_THREADED && fp_code_can_suspend(code)) {
            return 0; /* is_resume() needs the guard */
        }
        return fp_plain_enter(t, (fp_key)code, is_resume(r, code, frame));
    case PyTrace_RETURN:
        return fp_plain_leave(t, (fp_key)fp_compat_frame_code(frame));
    case PyTrace_C_CALL:
        if (Py_TYPE(arg) != &PyCFunction_Type ||
            !fp_plain_enter(t, fp_c_function_key(arg), 0)) {
            return 0;
        }
        remember_call(t, frame);
        return 1;
    case PyTrace_C_RETURN:
    case PyTrace_C_EXCEPTION:
        return Py_TYPE(arg) == &PyCFunction_Type &&
               fp_plain_leave(t, fp_c_function_key(arg));
    default:
        return 0;
    }
}

int
fp_setprofile_event(PyObject *self, PyFrameObject *frame, int what,
                    PyObject *arg)
{
    fp_thread *t = fp_plain_thread(FP_READ(((fp_hook *)self)->plain));
    if (FP_LIKELY(t != NULL && plain_event(((fp_hook *)self)->recorder, t,
                                           frame, what, arg))) {
        return 0;
    }
    return slow_event(self, frame, what, arg);
}
