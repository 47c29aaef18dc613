/* state: the state of the module. */
#ifndef FP_PY_STATE_H
#define FP_PY_STATE_H

#include "py/pycompat.h" /* Python.h goes first */

#include "py/this_thread.h"

#include "core/thread.h"

#include <pthread.h>

struct fp_recorder;
struct fp_section_object;

/* Number of entries; a power of two. */
enum { FP_NEAR_SECTIONS = 64 };

enum { FP_OPCODE_RESUME = 4, FP_OPCODES = 8 };

/* The profiler's own methods.  Hooks do not record them: they run in the
 * middle of the measured code. */
typedef struct fp_quiet {
    const PyMethodDef *first;
    const PyMethodDef *end;
} fp_quiet;

typedef struct fp_state {
    PyTypeObject *recorder_type; /* owned, like all objects here */
    PyTypeObject *section_type;
    PyTypeObject *callback_type;
    PyTypeObject *hook_type;
    PyTypeObject *gc_hook_type;
    PyObject *busy_error;
    PyObject *sections;      /* dict: name or (name, sync) -> Section */
    PyObject *section_names; /* list: id -> str */
    /* Cache of sections by the address of their name; borrowed or NULL. */
    struct fp_section_object *near_sections[FP_NEAR_SECTIONS];
    PyObject *sync_function;
    PyObject *decorator_function;
    PyObject *monitoring;               /* the module sys.monitoring */
    PyObject *missing;                  /* sys.monitoring.MISSING */
    PyObject *disable;                  /* sys.monitoring.DISABLE */
    PyObject *gc_callbacks;             /* gc.callbacks, or NULL */
    PyObject *threading;                /* the module, or NULL */
    struct fp_recorder *function_owner; /* borrowed; its functions are on */
    struct fp_recorder *section_owner;  /* borrowed; its sections are on */
    struct fp_recorder *in_use; /* borrowed; recorders in use: see in_use.h */
    /* started at import, for the longest baseline of its scale */
    fp_clock clock;
    uint64_t names_dropped; /* section names rejected because of the limit */
    unsigned char opcodes[FP_OPCODES]; /* 0: none; see call_form.c */
    int forced_off;                    /* FASTPROF=0: starting does nothing */
    const struct fp_layer *const *layers; /* ends with NULL */
    fp_quiet quiet[2];
    uint8_t nvtx_out; /* sections are exported as NVTX ranges */
    /* some events are disabled: restart them before the next recording */
    int restart_events;
    /* callbacks to use again, in free-threaded builds; see hook_monitoring.c */
    struct fp_callback *spare_callbacks;
    /* bit i: sys.monitoring tool id i is ours and still to be freed */
    unsigned unfreed_ids;
    pthread_key_t thread_key; /* see thread_life.h */
    int have_thread_key;
} fp_state;

/* Frees an object of a heap type that owns nothing. */
static inline void
fp_plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* Frees an object of a heap type that the collector follows. */
static inline void
fp_cleared_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)type->tp_clear(self);
    type->tp_free(self);
    Py_DECREF((PyObject *)type);
}

/* Adds a type that nothing in the module's state has to know. */
static inline int
fp_add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int added = type != NULL ? PyModule_AddObjectRef(module, name, type) : -1;
    Py_XDECREF(type);
    return added;
}

/* The module's state; NULL without an exception if [module] is another
 * module. */
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
