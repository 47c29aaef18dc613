/* monitoring_tool: what is asked of the module sys.monitoring (3.12 and later): an
 * id for our tool, callbacks for its events, and both given back.  Nothing here
 * runs per event. */
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
    FP_EVENTS, /* how many there are */
} fp_hook_event;

/* Returns an id that is now ours; -1 with an exception, which names the holders
 * when all are taken. */
int
fp_tool_take(fp_state *st);

/* 0: [id] is free or another tool's. */
int
fp_tool_may_be_ours(fp_state *st, int id);

/* [callback] is called for [event], or nobody if it is None.  Adds the event's bit
 * to [events]; -1 with an exception. */
int
fp_tool_register(fp_state *st, int id, fp_hook_event event, PyObject *callback,
                 long *events);

/* From now on these are sent, in every thread; -1 with an exception. */
int
fp_tool_send(fp_state *st, int id, long events);

/* Places that were switched off send events again.  Clears exceptions. */
void
fp_tool_restart_events(fp_state *st);

/* No events, no callbacks, and the id is free; one that is not ours is left
 * alone.  Clears exceptions. */
void
fp_tool_give_back(fp_state *st, int id);

#endif
