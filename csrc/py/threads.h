/* threads: the records of a recorder's threads. */
#ifndef FP_PY_THREADS_H
#define FP_PY_THREADS_H

#include "py/recorder.h"

/* This thread's record, if it has one. */
fp_thread *
fp_recorder_own_thread(fp_recorder *r);

/* The same, made if need be; NULL: without memory (counted), or it is left out. */
fp_thread *
fp_recorder_make_own_thread(fp_recorder *r);

fp_thread *
fp_recorder_section_thread_slow(fp_recorder *r);

static inline fp_thread *
fp_recorder_section_thread(fp_recorder *r)
{
    const fp_tls *me = fp_this_thread;
    if (FP_LIKELY(me->sections.epoch == r->section_epoch)) {
        return me->sections.thread;
    }
    return fp_recorder_section_thread_slow(r);
}

/* Frees every thread's record.  No layer's slots may match afterwards: the
 * caller takes new epochs. */
void
fp_recorder_free_threads(fp_recorder *r);

/* Serial number of `ended`. */
#define FP_ENDED_SERIAL 0x7FFFFFFF

/* Joins ended threads into `ended` and frees them. */
void
fp_recorder_sweep(fp_recorder *r);

/* [t] ends section [id], which is not open in it: counts a stray exit, or the
 * wrong thread if another thread has opened it. */
FP_COLD void
fp_recorder_count_stray_exit(fp_recorder *r, fp_thread *t, uint32_t id);

/* Has the code [caller] called a C function, in some thread, that goes on?  With the
 * place of that call its end is switched off, too.  *nodes is how many were
 * looked at. */
int
fp_recorder_has_open_c_call(const fp_recorder *r, fp_key caller,
                            uint32_t *nodes);

#endif
