/* threads: the records of a recorder's threads. */
#ifndef FP_PY_THREADS_H
#define FP_PY_THREADS_H

#include "py/recorder.h"

/* The calling thread's record; NULL: it has none. */
fp_thread *
fp_recorder_own_thread(fp_recorder *r);

/* The calling thread's record, created if needed.  NULL: out of memory
 * (counted), or the thread is excluded. */
fp_thread *
fp_recorder_make_own_thread(fp_recorder *r);

/* The record with this serial number; NULL: it was joined or cleared. */
fp_thread *
fp_recorder_thread_numbered(const fp_recorder *r, uint64_t serial);

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

/* Frees every thread's record.  Sets new epochs, so that no thread's slot
 * leads to a freed record.  Unless it is NULL, [keys] gets the recorder's
 * table, which is empty afterwards.  Returns -1 if the recorder is being read;
 * nothing has changed then. */
int
fp_recorder_free_threads(fp_recorder *r, fp_keytab *keys);

/* The node for [key] below the current node of [t], created if needed.  NULL:
 * no memory for the key (counted). */
fp_node *
fp_recorder_node(fp_recorder *r, fp_thread *t, fp_key key, PyObject *object);

/* [t] ends section [id], which is not open in it.  Counts a stray exit, or a
 * wrong thread if another thread has opened the section. */
FP_COLD void
fp_recorder_count_stray_exit(fp_recorder *r, fp_thread *t, uint32_t id);

#endif
