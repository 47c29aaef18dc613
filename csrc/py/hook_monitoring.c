/* hook_monitoring: turns the hook of sys.monitoring (3.12 and later) on and
 * off.
 *
 * Each event has its callback object, of a type with a vectorcall: that is
 * cheaper than a builtin method and needs no argument parsing.  A callback
 * gets the code object, so no frame object is ever created.  See
 * monitoring_events.h. */
#include "py/guard.h"
#include "py/hooks.h"
#include "py/monitoring_events.h"

#if FP_HAVE_MONITORING

static const uint64_t never = FP_EPOCH_OFF;

/* ---- starting and stopping ---- */

static int
is_of_builtins(fp_hook_event event)
{
    return event == FP_CALL || event == FP_C_RETURN || event == FP_C_RAISE;
}

/* CPython calls a callback without a reference to it.  In a free-threaded
 * build a thread may still run one that another thread has removed, so there
 * callbacks are never freed; the next recording uses them again. */
static fp_callback *
take_callback(fp_state *st)
{
    fp_callback *cb = st->spare_callbacks;
    if (cb != NULL) {
        st->spare_callbacks = cb->next;
        return cb;
    }
    cb = PyObject_New(fp_callback, st->callback_type);
    if (cb != NULL) {
        cb->next = NULL;
        fp_compat_immortal((PyObject *)cb);
    }
    return cb;
}

static void
give_callback(fp_state *st, fp_callback *cb)
{
    if (FP_FREE_THREADED) {
        cb->next = st->spare_callbacks;
        st->spare_callbacks = cb;
    }
    else {
        Py_DECREF((PyObject *)cb);
    }
}

static int
register_events(fp_recorder *r)
{
    long set = 0;
    for (int i = 0; i < FP_EVENTS; i++) {
        if (is_of_builtins(i) && !r->config.builtins) {
            continue;
        }
        fp_callback *cb = take_callback(r->state);
        if (cb == NULL) {
            return -1;
        }
        cb->vectorcall = fp_monitoring_handlers[i];
        cb->missing = r->state->missing;
        cb->disable = r->state->disable;
        FP_WRITE(cb->recorder, r);
        FP_WRITE(cb->plain, &r->plain_epoch);
        r->hooks.callback[i] = (PyObject *)cb;
        if (fp_tool_register(r->state, r->hooks.tool_id, i,
                             r->hooks.callback[i], &set) < 0) {
            return -1;
        }
    }
    return fp_tool_send(r->state, r->hooks.tool_id, set);
}

/* Undoes the part of the start that was done.  Clears exceptions. */
static void
take_back(fp_recorder *r)
{
    fp_monitoring_forget(r);
    fp_tool_give_back(r->state, r->hooks.tool_id);
    r->hooks.tool_id = -1;
}

int
fp_monitoring_start(fp_recorder *r)
{
    r->hooks.tool_id = fp_tool_take(r->state);
    if (r->hooks.tool_id < 0) {
        return -1;
    }
    if (r->state->unfreed_ids != 0) {
        /* Spare callbacks may still be registered for such an id. */
        r->state->spare_callbacks = NULL;
    }
    if (r->state->restart_events) {
        r->state->restart_events = 0;
        fp_tool_restart_events(r->state);
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
        fp_monitoring_forget(r); /* the interpreter is shutting down */
        return;
    }
    if (!fp_tool_may_be_ours(r->state, r->hooks.tool_id)) {
        /* Another tool freed or took the id: the current tool is not ours. */
        r->recording.displaced = 1;
    }
    take_back(r);
}

void
fp_monitoring_forget(fp_recorder *r)
{
    for (int i = 0; i < FP_EVENTS; i++) {
        fp_callback *cb = (fp_callback *)r->hooks.callback[i];
        if (cb != NULL) {
            r->hooks.callback[i] = NULL;
            FP_WRITE(cb->plain, &never);
            FP_WRITE(cb->recorder, NULL);
            give_callback(r->state, cb);
        }
    }
}

/* ---- type ---- */

static PyMemberDef callback_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(fp_callback, vectorcall),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot callback_slots[] = {
    {Py_tp_dealloc, fp_plain_dealloc},
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

#endif
