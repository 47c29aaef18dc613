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

/* ---- events ---- */

static void
call_event(fp_recorder *r, PyFrameObject *frame)
{
    PyObject *code = fp_compat_frame_code(frame);
    /* The plain path has tested this already; the second test is rare and
     * harmless.  Nobody needs it in a pause. */
    int resume = fp_recorder_here(r) != NULL &&
                 is_resume(r, (PyCodeObject *)code, frame);
    fp_recorder_enter(r, (fp_key)code, code, resume);
}

static void
c_call_event(fp_recorder *r, PyObject *function)
{
    fp_key key = r->config.builtins ? fp_c_function_key(function) : 0;
    if (key != 0 && !fp_is_quiet(r->state, fp_key_method(key))) {
        fp_recorder_enter(r, key, function, 0);
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
