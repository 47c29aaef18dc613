/* thread_sections: the sections that a thread has open. */
#ifndef FP_CORE_THREAD_SECTIONS_H
#define FP_CORE_THREAD_SECTIONS_H

#include "core/thread.h"

/* Room for section [id]; FP_ENOMEM otherwise. */
fp_status
fp_thread_reserve_section(fp_thread *t, uint32_t id);

/* Opens section [id].  [owner] is compared, never followed.  FP_ENOMEM: it is
 * not open, and was counted as dropped. */
fp_status
fp_thread_open_section(fp_thread *t, uint32_t id, fp_phase phase,
                       const void *owner, int64_t now);

enum {
    FP_EXIT_ERROR = 1,     /* left by an exception */
    FP_EXIT_CANCEL = 2,    /* keep its time on the path, but it is no sample */
    FP_EXIT_ELSEWHERE = 4, /* another thread calls */
    FP_EXIT_PARK = 8,      /* no sample yet: it is resumed, or ended, later */
};

/* Closes the innermost open entry of section [id], one of [owner]'s if there
 * is one.  FP_ENOTFOUND: this thread has none open; nothing changed. */
fp_status
fp_thread_close_section(fp_thread *t, uint32_t id, const void *owner,
                        unsigned flags, int64_t now);

int
fp_thread_has_open_section(const fp_thread *t, uint32_t id);

/* Opens again the section that was closed with FP_EXIT_PARK: what follows is
 * part of the same entry, not another call. */
fp_status
fp_thread_resume_section(fp_thread *t, uint32_t id, fp_phase phase,
                         const void *owner, int64_t now);

/* The entry that was closed with FP_EXIT_PARK, and not resumed, is a sample: of the
 * phase of the run in which it was closed. */
void
fp_thread_end_parked_section(fp_thread *t, fp_phase phase);

/* Forgets the open sections at [now]; their entries stay counted as open. */
void
fp_thread_drop_sections(fp_thread *t, int64_t now);

/* What is kept in this phase of the run of the section at the bottom of the stack,
 * which may have been opened in another one; it is one of the step under way. */
fp_section *
fp_thread_touch_bottom(fp_thread *t);

/* Time of the section at the bottom of the stack, for the step's rows. */
static inline void
fp_thread_charge_bottom(fp_thread *t, int64_t now)
{
    if (t->steps == NULL || t->steps->paused) {
        return; /* resuming the step sets bottom_since */
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
}

/* A phase inside the same phase (`forward` in `forward_pass`) is one sample. */
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
