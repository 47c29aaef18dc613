#include "core/thread_sections.h"

#include "core/path.h"
#include "core/steps_split.h"

#include <string.h>

fp_status
fp_thread_reserve_section(fp_thread *t, uint32_t id)
{
    if (fp_alloc_room(&t->alloc, &t->section, &t->section_capacity, id + 1, 16,
                      sizeof(*t->section)) != FP_OK) {
        return FP_ENOMEM;
    }
    if (t->section[id] == NULL) {
        t->section[id] = fp_alloc_zeroed(&t->alloc, 1, sizeof(fp_section));
        if (t->section[id] == NULL) {
            return FP_ENOMEM;
        }
        t->section[id]->id = id;
    }
    return FP_OK;
}

static fp_status
reserve_open(fp_thread *t)
{
    if (t->open_len < t->open_capacity) {
        return FP_OK;
    }
    return fp_alloc_room(&t->alloc, &t->open, &t->open_capacity,
                         t->open_len + 1, 16, sizeof(*t->open));
}

fp_status
fp_thread_open_section(fp_thread *t, uint32_t id, fp_phase phase,
                       const void *owner, int64_t now)
{
    int known = id < t->section_capacity && t->section[id] != NULL;
    if ((FP_UNLIKELY(!known) && fp_thread_reserve_section(t, id) != FP_OK) ||
        reserve_open(t) != FP_OK) {
        t->counters.dropped++;
        return FP_ENOMEM;
    }
    fp_key key = fp_key_section(id);
    fp_node *n = fp_thread_predict(t, key);
    if (n == NULL) {
        n = fp_thread_find(t, key);
    }
    if (n == NULL) {
        n = fp_thread_add(t, key);
    }
    fp_status on_path = FP_OK;
    if (FP_UNLIKELY(n->key == FP_KEY_TRUNCATED)) {
        /* There is no room for its name either.  Its time stays with the
         * current node: on close, a node without a name would look like
         * a call. */
        on_path = FP_ENOMEM;
        t->counters.truncated++;
    }
    else if (FP_UNLIKELY(fp_node_is_flat(n))) {
        on_path = fp_thread_enter_flat(t, n, now);
    }
    else {
        fp_thread_enter(t, n, now);
    }
    n->calls++;
    fp_section *s = t->section[id];
    if (s->open++ == s->lost) {
        s->outer_since = now;
    }
    if (t->open_len == 0) {
        t->bottom_since = now;
    }
    fp_open *entry = &t->open[t->open_len++];
    entry->section = s;
    entry->key = key;
    entry->start = now;
    entry->owner = owner;
    entry->on_path = on_path == FP_OK;
    entry->phase = (uint8_t)phase;
    entry->cover = s->cover;
    if (entry->cover != FP_KIND_NONE && t->split != NULL) {
        fp_split_cover(t, (fp_kind)entry->cover, now);
    }
    if (t->open_len == 1 && FP_UNLIKELY(fp_thread_shares_cpus(t))) {
        fp_split_open_bottom(t, now);
    }
    return FP_OK;
}

/* Index of the entry to close, or -1 if none is open. */
static int64_t
find_open(const fp_thread *t, uint32_t id, const void *owner)
{
    int64_t any = -1;
    for (int64_t i = (int64_t)t->open_len - 1; i >= 0; i--) {
        if (t->open[i].section->id == id) {
            if (t->open[i].owner == owner) {
                return i;
            }
            if (any < 0) {
                any = i;
            }
        }
    }
    return any;
}

int
fp_thread_has_open_section(const fp_thread *t, uint32_t id)
{
    return find_open(t, id, NULL) >= 0;
}

fp_section *
fp_thread_touch_bottom(fp_thread *t)
{
    fp_section *s = t->open[0].section;
    if (FP_UNLIKELY(s->id >= t->section_capacity || t->section[s->id] != s) &&
        fp_thread_reserve_section(t, s->id) == FP_OK) {
        s = t->section[s->id];
    }
    if (!s->touched) {
        s->touched = 1;
        s->next_touched = t->touched;
        t->touched = s;
        if (FP_UNLIKELY(!s->has_column) && t->split != NULL) {
            fp_series *series = fp_split_series(t->split, t->run_phase);
            if (series != NULL) {
                fp_series_add_column(series, &t->alloc, s);
            }
        }
    }
    return s;
}

static void
remove_node(fp_thread *t, uint32_t i, int64_t now)
{
    fp_open *entry = &t->open[i];
    fp_node *n = t->cur;
    fp_thread_charge(t, now);
    if (FP_LIKELY(i + 1 == t->open_len && n->key == entry->key &&
                  t->over_len == 0)) {
        fp_thread_stand(t, n->parent);
        return;
    }
    fp_thread_take_off_path(t, i);
}

fp_status
fp_thread_close_section(fp_thread *t, uint32_t id, const void *owner,
                        unsigned flags, int64_t now)
{
    if (FP_UNLIKELY(t->open_len == 0)) {
        return FP_ENOTFOUND;
    }
    uint32_t i = t->open_len - 1;
    if (FP_UNLIKELY(t->open[i].section->id != id ||
                    t->open[i].owner != owner)) {
        int64_t found = find_open(t, id, owner);
        if (found < 0) {
            return FP_ENOTFOUND;
        }
        i = (uint32_t)found;
        t->counters.out_of_order +=
            i + 1 != t->open_len && t->open[t->open_len - 1].owner == owner;
    }
    fp_section *s = t->open[i].section;
    int64_t start = t->open[i].start;
    fp_phase phase = (fp_phase)t->open[i].phase;
    if (t->open[i].cover != FP_KIND_NONE && t->split != NULL) {
        fp_split_uncover(t, now, (flags & FP_EXIT_ELSEWHERE) != 0);
    }
    if (FP_LIKELY(t->open[i].on_path)) {
        remove_node(t, i, now);
    }
    if (i == 0) {
        fp_thread_charge_bottom(t, now);
    }
    if (FP_UNLIKELY(i + 1 != t->open_len)) {
        memmove(&t->open[i], &t->open[i + 1],
                (t->open_len - 1 - i) * sizeof(t->open[0]));
    }
    t->open_len--;
    s->open--;
    int64_t ticks = now > start ? now - start : 0;
    if (s->open == s->lost) {
        s->outer_ticks += now > s->outer_since ? now - s->outer_since : 0;
    }
    if (flags & FP_EXIT_CANCEL) {
        return FP_OK;
    }
    if (flags & FP_EXIT_PARK) {
        t->parked_ticks = ticks;
        t->parked_section = s;
    }
    else {
        fp_section_record(s, &t->alloc, ticks, (flags & FP_EXIT_ERROR) != 0);
    }
    if (phase != FP_PHASE_NONE && !fp_thread_phase_is_open(t, phase)) {
        if (!(flags & FP_EXIT_PARK)) {
            fp_phases_add(&t->phases, phase, ticks);
        }
        if (phase != FP_PHASE_DATA) {
            fp_phases_mark_end(&t->phases, now);
        }
    }
    return FP_OK;
}

fp_status
fp_thread_resume_section(fp_thread *t, uint32_t id, fp_phase phase,
                         const void *owner, int64_t now)
{
    fp_status status = fp_thread_open_section(t, id, phase, owner, now);
    if (status != FP_OK) {
        return status;
    }
    fp_open *entry = &t->open[t->open_len - 1];
    if (entry->on_path) {
        t->cur->calls--;
        t->cur->resumes++;
    }
    /* The entry continues the parked one: move its start back. */
    if (t->parked_section != NULL) {
        entry->start -= t->parked_ticks;
        t->parked_ticks = 0;
        t->parked_section = NULL;
    }
    return FP_OK;
}

void
fp_thread_end_parked_section(fp_thread *t, fp_phase phase)
{
    fp_section *s = t->parked_section;
    if (s == NULL) {
        return;
    }
    t->parked_section = NULL;
    int64_t ticks = t->parked_ticks;
    t->parked_ticks = 0;
    fp_section_record(s, &t->alloc, ticks, 0);
    if (phase != FP_PHASE_NONE && !fp_thread_phase_is_open(t, phase)) {
        fp_phases_add(&t->phases, phase, ticks);
    }
}

void
fp_thread_drop_sections(fp_thread *t, int64_t now)
{
    while (t->open_len > 0) {
        uint32_t i = t->open_len - 1;
        if (t->open[i].on_path) {
            remove_node(t, i, now);
        }
        if (i == 0) {
            fp_thread_charge_bottom(t, now);
        }
        if (t->open[i].cover != FP_KIND_NONE && t->split != NULL) {
            /* another thread may end the recording */
            fp_split_uncover(t, now, 1);
        }
        t->open[i].section->lost++;
        t->open_len = i;
    }
}
