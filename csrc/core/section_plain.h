/* section_plain: the fast path for opening and closing a section.  It covers
 * the usual case: a known section whose node is the expected one, the
 * innermost section on close, a thread that is not parked, and no layer that
 * needs more than the time.  In any other case it does nothing, and the caller
 * uses fp_thread_open_section or fp_thread_close_section. */
#ifndef FP_CORE_SECTION_PLAIN_H
#define FP_CORE_SECTION_PLAIN_H

#include "core/path.h"
#include "core/thread.h"
#include "core/thread_sections.h"

/* As fp_thread_open_section, for a section that covers nothing.  Returns 1 if
 * it opened the section, at the time that it read from [clock]; 0 if it did
 * nothing. */
static inline int
fp_thread_plain_open(fp_thread *t, uint32_t id, fp_phase phase,
                     const void *owner, const fp_clock *clock)
{
    fp_key key = fp_key_section(id);
    fp_node *n = fp_thread_predict(t, key);
    if (FP_UNLIKELY(n == NULL || n->flags != 0 || t->parked != NULL ||
                    id >= t->section_capacity ||
                    t->open_len == t->open_capacity)) {
        return 0;
    }
    fp_section *s = t->section[id];
    if (FP_UNLIKELY(s == NULL)) {
        return 0;
    }
    int64_t now = fp_clock_now(clock);
    fp_thread_enter(t, n, now);
    n->calls++;
    if (s->open++ == s->lost) {
        s->outer_since = now;
    }
    if (t->open_len == 0) {
        t->bottom_since = now;
    }
    t->open[t->open_len++] = (fp_open){
        .section = s,
        .key = key,
        .start = now,
        .owner = owner,
        .on_path = 1,
        .phase = (uint8_t)phase,
        .cover = FP_KIND_NONE,
    };
    if (t->open_len == 1 && FP_UNLIKELY(fp_thread_shares_cpus(t))) {
        fp_split_open_bottom(t, now);
    }
    return 1;
}

/* As fp_thread_close_section, with FP_EXIT_ERROR or no flag.  Returns 1 or
 * 0. */
static inline int
fp_thread_plain_close(fp_thread *t, uint32_t id, const void *owner, int error,
                      const fp_clock *clock)
{
    if (FP_UNLIKELY(t->open_len == 0)) {
        return 0;
    }
    fp_open *entry = &t->open[t->open_len - 1];
    fp_key key = fp_key_section(id);
    fp_node *n = t->cur;
    if (FP_UNLIKELY(n->key != key || entry->key != key ||
                    entry->owner != owner || !entry->on_path ||
                    entry->cover != FP_KIND_NONE || t->over_len != 0 ||
                    t->parked != NULL)) {
        return 0;
    }
    int64_t now = fp_clock_now(clock);
    fp_thread_charge(t, now);
    fp_thread_stand(t, n->parent);
    fp_section *s = entry->section;
    if (t->open_len == 1) {
        fp_thread_charge_bottom(t, now);
    }
    t->open_len--;
    int64_t ticks = FP_LIKELY(now > entry->start) ? now - entry->start : 0;
    if (--s->open == s->lost) {
        s->outer_ticks += now > s->outer_since ? now - s->outer_since : 0;
    }
    fp_section_record(s, &t->alloc, ticks, error);
    fp_phase phase = (fp_phase)entry->phase;
    if (phase != FP_PHASE_NONE && !fp_thread_phase_is_open(t, phase)) {
        fp_phases_add(&t->phases, phase, ticks);
        fp_phases_mark_end(&t->phases, now);
    }
    return 1;
}

#endif
