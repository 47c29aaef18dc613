#include "py/monitoring_tool.h"

#include "py/guard.h"
#include "py/interrupts.h"

#if FP_HAVE_MONITORING

static const char *const event_names[FP_EVENTS] = {
    [FP_PY_START] = "PY_START", [FP_PY_RESUME] = "PY_RESUME",
    [FP_PY_THROW] = "PY_THROW", [FP_PY_RETURN] = "PY_RETURN",
    [FP_PY_YIELD] = "PY_YIELD", [FP_PY_UNWIND] = "PY_UNWIND",
    [FP_CALL] = "CALL",         [FP_C_RETURN] = "C_RETURN",
    [FP_C_RAISE] = "C_RAISE",
};

static const char tool_name[] = "fastprof";

/* 2 is reserved for profilers (cProfile takes it) and 5 for optimizers.  3 and
 * 4 are unassigned; 3 is the one that hypothesis always takes, and that tools
 * which look for a free id try first. */
static const int tool_ids[] = {4, 3, 2, 5};

static int
event_mask(PyObject *monitoring, fp_hook_event event, long *mask)
{
    PyObject *all = PyObject_GetAttrString(monitoring, "events");
    PyObject *one =
        all ? PyObject_GetAttrString(all, event_names[event]) : NULL;
    Py_XDECREF(all);
    if (one == NULL) {
        return -1;
    }
    *mask = PyLong_AsLong(one);
    Py_DECREF(one);
    return *mask == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Calls a function of sys.monitoring and ignores its result. */
static int
done(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int
take_free_id(fp_state *st)
{
    char holders[256] = "";
    for (size_t i = 0; i < sizeof(tool_ids) / sizeof(tool_ids[0]); i++) {
        PyObject *got = PyObject_CallMethod(st->monitoring, "use_tool_id",
                                            "is", tool_ids[i], tool_name);
        if (got != NULL) {
            Py_DECREF(got);
            return tool_ids[i];
        }
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
            return -1;
        }
        PyErr_Clear();
        PyObject *who =
            PyObject_CallMethod(st->monitoring, "get_tool", "i", tool_ids[i]);
        const char *name =
            who && PyUnicode_Check(who) ? PyUnicode_AsUTF8(who) : NULL;
        size_t len = strlen(holders);
        snprintf(holders + len, sizeof(holders) - len, "%s%d is %.40s",
                 len ? ", " : "", tool_ids[i], name ? name : "taken");
        PyErr_Clear();
        Py_XDECREF(who);
    }
    PyErr_Format(st->busy_error,
                 "every sys.monitoring tool id is taken (%s): stop one of "
                 "these tools, or use backend=\"setprofile\"",
                 holders);
    return -1;
}

/* Is [id] in use under our name?  -1: out of memory. */
static int
is_ours(PyObject *monitoring, int id)
{
    PyObject *who = PyObject_CallMethod(monitoring, "get_tool", "i", id);
    int ours = who == NULL
                   ? -1
                   : PyUnicode_Check(who) &&
                         PyUnicode_CompareWithASCIIString(who, tool_name) == 0;
    Py_XDECREF(who);
    PyErr_Clear();
    return ours;
}

/* An audit hook in Python runs in it, and signal handlers in that. */
static int
free_id(fp_state *st, int id)
{
    (void)fp_tool_send(st, id, 0);
    (void)fp_error_drop();
    for (int i = 0; i < FP_EVENTS; i++) {
        long unused = 0;
        (void)fp_tool_register(st, id, i, Py_None, &unused);
        (void)fp_error_drop();
    }
    int rc =
        done(PyObject_CallMethod(st->monitoring, "free_tool_id", "i", id));
    (void)fp_error_drop();
    return rc;
}

enum { ATTEMPTS = 3 };

/* If there is no memory to free an id, fp_tool_take() and
 * fp_tool_may_be_ours() try again.  Otherwise the id would stay in use until
 * the process ends. */
void
fp_tool_give_back(fp_state *st, int id)
{
    unsigned bit = 1u << id;
    int ours = -1;
    if (fp_guard_is_alone()) {
        st->unfreed_ids |= bit; /* its callbacks switch its events off */
        return;
    }
    for (int i = 0; i < ATTEMPTS && ours != 0; i++) {
        ours = is_ours(st->monitoring, id);
        if (ours == 1 && free_id(st, id) == 0) {
            ours = 0;
        }
    }
    st->unfreed_ids =
        ours == 0 ? st->unfreed_ids & ~bit : st->unfreed_ids | bit;
}

static void
give_back_unfreed(fp_state *st)
{
    for (size_t i = 0; i < sizeof(tool_ids) / sizeof(tool_ids[0]); i++) {
        if (st->unfreed_ids >> tool_ids[i] & 1) {
            fp_tool_give_back(st, tool_ids[i]);
        }
    }
}

int
fp_tool_take(fp_state *st)
{
    give_back_unfreed(st);
    return take_free_id(st);
}

int
fp_tool_may_be_ours(fp_state *st, int id)
{
    give_back_unfreed(st);
    return is_ours(st->monitoring, id) != 0;
}

int
fp_tool_register(fp_state *st, int id, fp_hook_event event, PyObject *callback,
                 long *events)
{
    long mask;
    if (event_mask(st->monitoring, event, &mask) < 0 ||
        done(PyObject_CallMethod(st->monitoring, "register_callback", "ilO",
                                 id, mask, callback)) < 0) {
        return -1;
    }
    *events |= mask;
    return 0;
}

int
fp_tool_send(fp_state *st, int id, long events)
{
    return done(
        PyObject_CallMethod(st->monitoring, "set_events", "il", id, events));
}

void
fp_tool_restart_events(fp_state *st)
{
    done(PyObject_CallMethod(st->monitoring, "restart_events", NULL));
    PyErr_Clear();
}

#endif
