/* thread_sections: the open sections of a thread. */
#ifndef FP_CORE_THREAD_SECTIONS_H
#define FP_CORE_THREAD_SECTIONS_H

#include "core/steps_split.h"
#include "core/thread.h"

/* Creates the record of section [id] if needed.  FP_ENOMEM: no memory. */
fp_status
fp_thread_reserve_section(fp_thread *t, uint32_t id);

/* Opens section [id] at [now].  [owner] is compared, never followed.
 * FP_ENOMEM: not opened; counted as dropped. */
fp_status
fp_thread_open_section(fp_thread *t, uint32_t id, fp_phase phase,
                       const void *owner, int64_t now);

enum {
    FP_EXIT_ERROR = 1,     /* closed by an exception */
    FP_EXIT_CANCEL = 2,    /* keep its time, but record no entry */
    FP_EXIT_ELSEWHERE = 4, /* called by another thread */
    FP_EXIT_PARK = 8,      /* record no entry yet: it resumes or ends later */
};

/* Closes the innermost open entry of section [id], preferring entries of
 * [owner].  FP_ENOTFOUND: none is open in this thread; nothing changed. */
fp_status
fp_thread_close_section(fp_thread *t, uint32_t id, const void *owner,
                        unsigned flags, int64_t now);

/* Is an entry of section [id] open? */
int
fp_thread_has_open_section(const fp_thread *t, uint32_t id);

/* Reopens the section that was closed with FP_EXIT_PARK: the time that follows
 * belongs to the same entry, not to another call. */
fp_status
fp_thread_resume_section(fp_thread *t, uint32_t id, fp_phase phase,
                         const void *owner, int64_t now);

/* Records the entry that was closed with FP_EXIT_PARK and not resumed, in the
 * phase of the run in which it was closed.  [phase] is its phase of the
 * step. */
void
fp_thread_end_parked_section(fp_thread *t, fp_phase phase);

/* Closes all sections at [now] without recording them; they stay counted as
 * open. */
void
fp_thread_drop_sections(fp_thread *t, int64_t now);

/* Returns the record, in the current phase of the run, of the section at the
 * bottom of the stack, and links it to the current step.  The section may have
 * been opened in another phase. */
fp_section *
fp_thread_touch_bottom(fp_thread *t);

/* Whether sections read how long the thread waited for a CPU. */
static inline int
fp_thread_shares_cpus(const fp_thread *t)
{
    return t->split != NULL && t->split->shares_cpus;
}

/* Charges the section at the bottom of the stack, for the rows of steps. */
static inline void
fp_thread_charge_bottom(fp_thread *t, int64_t now)
{
    if (t->steps == NULL || t->steps->paused) {
        return; /* fp_thread_resume_step sets bottom_since */
    }
    fp_section *s = t->open[0].section;
    if (FP_UNLIKELY(!s->touched || s->id >= t->section_capacity ||
                    t->section[s->id] != s)) {
        s = fp_thread_touch_bottom(t);
    }
    if (now > t->bottom_since) {
        s->step_ticks += now - t->bottom_since;
    }
    t->bottom_since = now;
    if (FP_UNLIKELY(fp_thread_shares_cpus(t))) {
        fp_split_charge_bottom(t, now);
    }
}

/* A phase inside the same phase (`forward` in `forward_pass`) counts once. */
static inline int
fp_thread_phase_is_open(const fp_thread *t, fp_phase phase)
{
    for (uint32_t i = 0; i < t->open_len; i++) {
        if (t->open[i].phase == phase) {
            return 1;
        }
    }
    return 0;
}

#endif
