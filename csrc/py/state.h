/* state: what hangs on the module. */
#ifndef FP_PY_STATE_H
#define FP_PY_STATE_H

#include "py/pycompat.h" /* Python.h goes first */

#include "py/this_thread.h"

#include "core/thread.h"

#include <pthread.h>

struct fp_recorder;
struct fp_section_object;

/* A power of two. */
enum { FP_NEAR_SECTIONS = 64 };

enum { FP_CALL_OPCODES = 4 };

/* Methods that hooks do not record: they are the profiler's own, and run in the
 * middle of what they measure. */
typedef struct fp_quiet {
    const PyMethodDef *first;
    const PyMethodDef *end;
} fp_quiet;

typedef struct fp_state {
    PyTypeObject *recorder_type; /* owned, as all objects here */
    PyTypeObject *section_type;
    PyTypeObject *callback_type;
    PyTypeObject *hook_type;
    PyTypeObject *gc_hook_type;
    PyObject *busy_error;
    PyObject *sections;      /* dict: name or (name, sync) -> Section */
    PyObject *section_names; /* list: id -> str */
    /* Some of the former, by the address of their name; borrowed, or NULL. */
    struct fp_section_object *near_sections[FP_NEAR_SECTIONS];
    PyObject *sync_function;
    PyObject *decorator_function;
    PyObject *monitoring;               /* the module sys.monitoring */
    PyObject *missing;                  /* sys.monitoring.MISSING */
    PyObject *disable;                  /* sys.monitoring.DISABLE */
    PyObject *gc_callbacks;             /* gc.callbacks, or NULL */
    struct fp_recorder *function_owner; /* borrowed; layer is on */
    struct fp_recorder *section_owner;  /* borrowed; layer is on */
    struct fp_recorder *in_use; /* borrowed; see fp_recorder_begin_export */
    fp_clock clock; /* begins at import: the longest baseline for its scale */
    uint64_t names_dropped; /* section names beyond the limit */
    int resume_opcode;
    unsigned char call_opcodes[FP_CALL_OPCODES]; /* 0: none; call_form.h */
    int forced_off; /* FASTPROF=0: starting does nothing */
    const struct fp_layer *const *layers; /* the last one is NULL */
    fp_quiet quiet[2];
    uint8_t nvtx_out;     /* sections are NVTX ranges, too */
    int restart_events;   /* places were switched off: re-arm them first */
    unsigned unfreed_ids; /* of sys.monitoring, a bit each; ours, unwanted */
    pthread_key_t thread_key; /* see thread_life.h */
    int have_thread_key;
} fp_state;

/* The module's state; NULL without an exception when [module] is not ours. */
static inline fp_state *
fp_state_of(PyObject *module)
{
    return (fp_state *)PyModule_GetState(module);
}

static inline int
fp_is_quiet(const fp_state *st, const PyMethodDef *m)
{
    return (m >= st->quiet[0].first && m < st->quiet[0].end) ||
           (m >= st->quiet[1].first && m < st->quiet[1].end);
}

#endif
