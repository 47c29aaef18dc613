/* plain_steps: ends the steps of a loop whose optimizer steps as before.
 *
 * Its methods before() and after() take the place of fastprof's hooks on
 * torch's optimizers, and call these for whatever is not such a step. */
#ifndef FP_PY_PLAIN_STEPS_H
#define FP_PY_PLAIN_STEPS_H

#include "py/recorder.h"

/* The arguments of PlainSteps(), before the recorder. */
typedef enum fp_plain_object {
    FP_PLAIN_BEFORE,
    FP_PLAIN_AFTER,
    FP_PLAIN_LEFT,
    FP_PLAIN_DUE,
    FP_PLAIN_LOADING,
    FP_PLAIN_CLAIMS,
    FP_PLAIN_FLAGS,
    FP_PLAIN_OBJECTS,
} fp_plain_object;

/* Its attributes: of LOADING, and two of FLAGS. */
typedef enum fp_plain_name {
    FP_PLAIN_TRAIN_TAG,
    FP_PLAIN_FETCHED,
    FP_PLAIN_BACKWARD,
    FP_PLAIN_NAMES,
} fp_plain_name;

typedef struct fp_plain_steps {
    PyObject_HEAD
    fp_recorder *recorder; /* owned, like the objects; all immutable */
    PyObject *object[FP_PLAIN_OBJECTS];
    PyObject *name[FP_PLAIN_NAMES];
    PyObject *tag;            /* owned or NULL: that of the loader */
    const void *optimizer;    /* an address, not used as an object */
    unsigned long thread;     /* of the program's loop */
    uint64_t seen;            /* steps at the end of the last one */
    unsigned long long taken; /* steps ended here since the last take() */
    int64_t ticks;            /* ... and their own time */
    int64_t usual_ticks;      /* that of the last end of a step */
    uint64_t begins;          /* calls of begin() */
    char on;
    char stepping; /* the optimizer's step has begun */
} fp_plain_steps;

int
fp_is_plain_steps(const PyObject *object);

/* Has other code claimed the program's phases? */
static inline int
fp_plain_is_claimed(const fp_plain_steps *p)
{
    return PyList_GET_SIZE(p->object[FP_PLAIN_CLAIMS]) != 0;
}

/* Adds time of fastprof's own, in ticks.  More than 1 ms, where a few us are
 * usual, is a wait for a CPU, and the program would have waited, too: then
 * 'usual', the last such time, is counted.  Otherwise it is set. */
void
fp_plain_took(fp_plain_steps *p, int64_t ticks, int64_t *usual);

int
fp_plain_steps_add_type(PyObject *module);

#endif
