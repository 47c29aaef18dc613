/* monitoring_tool: claims and releases a tool id of sys.monitoring (3.12 and
 * later), and registers callbacks for its events.  Nothing here runs per
 * event. */
#ifndef FP_PY_MONITORING_TOOL_H
#define FP_PY_MONITORING_TOOL_H

#include "py/state.h"

typedef enum fp_hook_event {
    FP_PY_START,
    FP_PY_RESUME,
    FP_PY_THROW,
    FP_PY_RETURN,
    FP_PY_YIELD,
    FP_PY_UNWIND,
    FP_CALL,
    FP_C_RETURN,
    FP_C_RAISE,
    FP_EVENTS, /* number of events */
} fp_hook_event;

/* Claims a tool id and returns it; -1 with an exception, which names the
 * holders if all ids are taken. */
int
fp_tool_take(fp_state *st);

/* Returns 0 if [id] is free or another tool's, otherwise 1. */
int
fp_tool_may_be_ours(fp_state *st, int id);

/* Registers [callback] for [event]; None removes it.  Adds the event's bit to
 * *events.  Returns 0, or -1 with an exception. */
int
fp_tool_register(fp_state *st, int id, fp_hook_event event, PyObject *callback,
                 long *events);

/* Turns on exactly the events in [events], in every thread.  Returns 0, or -1
 * with an exception. */
int
fp_tool_send(fp_state *st, int id, long events);

/* Makes places that were switched off send events again.  Clears
 * exceptions. */
void
fp_tool_restart_events(fp_state *st);

/* Turns off the events, removes the callbacks and frees the id.  Does nothing
 * if the id is not ours.  Clears exceptions. */
void
fp_tool_give_back(fp_state *st, int id);

#endif
