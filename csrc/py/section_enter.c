/* Opens and closes sections. */
#include "py/section_methods.h"

#include "py/guard.h"
#include "py/paused.h"
#include "py/threads.h"

#include "core/path.h"
#include "core/section_plain.h"
#include "core/thread_sections.h"

/* Must more be done than to read the clock? */
static inline int
has_extras(const fp_recorder *r, const fp_section_object *s)
{
    return s->sync > 0 || (r->sync | r->lingering | s->state->nvtx_out) != 0;
}

/* Reports the change of section to the trace and the layers. */
FP_COLD static void
section_changed(fp_recorder *r, fp_thread *t, int64_t now)
{
    fp_recorder_trace(r, t, now);
    FP_LAYERS(r, sections_changed, r, t, now);
}

FP_COLD static fp_thread *
begin_parked(fp_recorder *r, const fp_section_object *s, fp_thread *t)
{
    fp_paused_unpark(r, t, 1);
    fp_thread *opened = fp_section_begin(r, s);
    fp_paused_park(r, t);
    return opened;
}

/* Sets the kind of time that the section covers; each phase of the run has its
 * record of the section. */
static inline void
set_cover(fp_thread *t, const fp_section_object *s)
{
    if (FP_UNLIKELY(s->cover != FP_KIND_NONE) &&
        fp_thread_reserve_section(t, s->id) == FP_OK) {
        t->section[s->id]->cover = s->cover;
    }
}

inline fp_thread *
fp_section_begin(fp_recorder *r, const fp_section_object *s)
{
    fp_thread *t = fp_recorder_section_thread(r);
    if (FP_UNLIKELY(t == NULL)) {
        return NULL;
    }
    set_cover(t, s);
    if (FP_UNLIKELY(fp_thread_is_parked(t))) {
        return begin_parked(r, s, t);
    }
    int64_t now = fp_clock_now(&r->clock);
    fp_status status = fp_thread_open_section(t, s->id, (fp_phase)s->phase,
                                              fp_compat_context(), now);
    if (FP_UNLIKELY((r->gpu_on | r->tracing) != 0)) {
        section_changed(r, t, now);
    }
    return status == FP_OK ? t : NULL;
}

/* Does the work that precedes the opening of a section.  Returns the recorder;
 * NULL: nothing records sections any more. */
FP_COLD static fp_recorder *
open_extras(fp_recorder *r, const fp_section_object *s)
{
    if (s->phase != FP_PHASE_NONE) {
        fp_section_end_lingering(r);
    }
    if (s->state->section_owner == r) {
        fp_section_synchronize(r, s);
    }
    return FP_READ(
        s->state->section_owner); /* Python code may have changed it */
}

void
fp_section_open(fp_section_object *s)
{
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (FP_FREE_THREADED && r == NULL) {
        return; /* another thread has switched sections off */
    }
    if (FP_UNLIKELY(has_extras(r, s))) {
        r = open_extras(r, s);
        if (r == NULL) {
            return;
        }
        if (s->state->nvtx_out) {
            FP_LAYERS(r, section_opens, s);
        }
    }
    (void)fp_section_begin(r, s);
}

static void
close_here(fp_recorder *r, const fp_section_object *s, unsigned flags);

/* Is the section of [s] the end of the path of [t], which is parked? */
static int
is_end_of_path(const fp_thread *t, const fp_section_object *s)
{
    return t->parked_over == 0 && t->parked->key == fp_key_section(s->id);
}

/* Which calls are open decides the place of what begins, so the opening of a
 * section reads the frames.  To close one they are needed only if functions on
 * the path began in it, and may have ended. */
FP_COLD static void
close_parked(fp_recorder *r, const fp_section_object *s, unsigned flags,
             fp_thread *t)
{
    fp_paused_unpark(r, t, t->stale && !is_end_of_path(t, s));
    close_here(r, s, flags);
    fp_paused_park(r, t);
}

static void
close_here(fp_recorder *r, const fp_section_object *s, unsigned flags)
{
    fp_thread *t = fp_recorder_section_thread(r);
    if (FP_UNLIKELY(t == NULL)) {
        return;
    }
    if (FP_UNLIKELY(fp_thread_is_parked(t))) {
        close_parked(r, s, flags, t);
        return;
    }
    int64_t now = fp_clock_now(&r->clock);
    if (FP_UNLIKELY(fp_thread_close_section(t, s->id, fp_compat_context(),
                                            flags, now) != FP_OK)) {
        fp_recorder_count_stray_exit(r, t, s->id);
    }
    if (FP_UNLIKELY((r->gpu_on | r->tracing) != 0)) {
        section_changed(r, t, now);
    }
}

static void
end_lingering_inside(fp_recorder *r, const fp_section_object *s);

FP_COLD static void
close_with_extras(fp_recorder *r, const fp_section_object *s, unsigned flags)
{
    end_lingering_inside(r, s);
    if (s->state->section_owner == r) {
        fp_section_synchronize(r, s);
    }
    r = FP_READ(s->state->section_owner);
    if (r == NULL) {
        return;
    }
    close_here(r, s, flags);
    if (s->state->nvtx_out) {
        FP_LAYERS(r, section_closed, s, r);
    }
}

/* ---- lingering: a section stays open until another begins or ends ---- */

static int
lingers_here(fp_recorder *r)
{
    return r->lingering && r->lingers.epoch == r->section_epoch &&
           r->lingers.in == fp_recorder_section_thread(r);
}

void
fp_section_end_lingering(fp_recorder *r)
{
    if (!lingers_here(r)) {
        return;
    }
    const fp_section_object *s = r->lingers.section;
    FP_WRITE(r->lingering, 0);
    if (r->lingers.parked) {
        r->lingers.parked = 0;
        fp_thread *t = fp_recorder_section_thread(r);
        if (t != NULL) {
            fp_thread_end_parked_section(t, (fp_phase)s->phase);
        }
        return;
    }
    if (s->sync > 0 || (r->sync | s->state->nvtx_out) != 0) {
        close_with_extras(r, s, 0);
    }
    else {
        close_here(r, s, 0);
    }
}

/* Ends the lingering section if it is directly inside [s], which is about to
 * end. */
static void
end_lingering_inside(fp_recorder *r, const fp_section_object *s)
{
    if (!lingers_here(r) || r->lingers.section == s || r->lingers.parked) {
        return;
    }
    const fp_thread *t = r->lingers.in;
    if (t->open_len > 0 &&
        t->open[t->open_len - 1].section->id == r->lingers.section->id &&
        fp_thread_has_open_section(t, s->id)) {
        fp_section_end_lingering(r);
    }
}

void
fp_section_close(fp_section_object *s, unsigned flags)
{
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (FP_FREE_THREADED && r == NULL) {
        return;
    }
    if (FP_UNLIKELY(has_extras(r, s))) {
        close_with_extras(r, s, flags);
        return;
    }
    close_here(r, s, flags);
}

/* ---- methods ---- */

/* Can the plain path be taken?  The thread's record is known, and only the
 * clock must be read. */
static inline int
is_plain(const fp_recorder *r, const fp_section_object *s, const fp_tls *me)
{
    return FP_LIKELY(FP_READ(s->plain) && FP_READ(r->section_extras) == 0 &&
                     me->sections.epoch == FP_READ(r->section_epoch));
}

static inline int
plain_open(const fp_recorder *r, const fp_section_object *s, const fp_tls *me)
{
    return fp_thread_plain_open(me->sections.thread, s->id, (fp_phase)s->phase,
                                fp_compat_context(), &r->clock);
}

/* In a free-threaded build the plain path serves every known node: it is made
 * the expected one, so that the guard is not needed. */
static int
known_open(const fp_recorder *r, const fp_section_object *s, const fp_tls *me)
{
    return FP_FREE_THREADED && is_plain(r, s, me) &&
           fp_thread_find(me->sections.thread, fp_key_section(s->id)) !=
               NULL &&
           plain_open(r, s, me);
}

PyObject *
fp_section_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (r != NULL) {
        const fp_tls *me = fp_this_thread;
        if ((!is_plain(r, s, me) || !plain_open(r, s, me)) &&
            !known_open(r, s, me)) {
            FP_GUARD();
            fp_section_open(s);
        }
    }
    return Py_NewRef(self);
}

PyObject *
fp_section_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (r != NULL) {
        const fp_tls *me = fp_this_thread;
        int error = nargs > 0 && args[0] != Py_None;
        if (!is_plain(r, s, me) ||
            !fp_thread_plain_close(me->sections.thread, s->id,
                                   fp_compat_context(), error, &r->clock)) {
            FP_GUARD();
            fp_section_close(s, error ? FP_EXIT_ERROR : 0);
        }
    }
    Py_RETURN_NONE;
}

int
fp_section_is_open(const fp_section_object *s)
{
    fp_recorder *r = FP_READ(s->state->section_owner);
    const fp_thread *t = r != NULL ? fp_recorder_section_thread(r) : NULL;
    for (uint32_t i = 0; t != NULL && i < t->open_len; i++) {
        if (t->open[i].section->id == s->id ||
            (s->phase != FP_PHASE_NONE && t->open[i].phase == s->phase)) {
            return 1;
        }
    }
    return 0;
}

PyObject *
fp_section_enter_phase(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_section_object *s = (fp_section_object *)self;
    if (FP_READ(s->state->section_owner) == NULL || fp_section_is_open(s)) {
        Py_RETURN_FALSE;
    }
    fp_section_open(s);
    Py_RETURN_TRUE;
}

PyObject *
fp_section_phase_is_open(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    return PyBool_FromLong(fp_section_is_open((fp_section_object *)self));
}

PyObject *
fp_section_leave_later(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = FP_READ(s->state->section_owner);
    fp_thread *t = r == NULL ? NULL : fp_recorder_section_thread(r);
    if (t != NULL && fp_thread_has_open_section(t, s->id)) {
        if (r->lingers.parked) {
            fp_section_end_lingering(r);
        }
        r->lingers.section = s;
        r->lingers.in = t;
        r->lingers.epoch = r->section_epoch;
        FP_WRITE(r->lingering, 1);
        r->lingers.parked = 0;
    }
    Py_RETURN_NONE;
}

PyObject *
fp_section_leave_now(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (r != NULL && r->lingers.section == s) {
        fp_section_end_lingering(r);
    }
    Py_RETURN_NONE;
}

PyObject *
fp_section_park(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (r != NULL && lingers_here(r) && r->lingers.section == s &&
        !r->lingers.parked &&
        fp_thread_has_open_section(r->lingers.in, s->id)) {
        /* Set this first: the close may run Python code. */
        r->lingers.parked = 1;
        fp_section_close(s, FP_EXIT_PARK);
    }
    Py_RETURN_NONE;
}

PyObject *
fp_section_resume(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_section_object *s = (fp_section_object *)self;
    fp_recorder *r = FP_READ(s->state->section_owner);
    if (r == NULL || !lingers_here(r) || r->lingers.section != s ||
        !r->lingers.parked) {
        Py_RETURN_FALSE;
    }
    if (s->state->nvtx_out) {
        FP_LAYERS(r, section_opens, s);
    }
    fp_thread *t = fp_recorder_section_thread(r);
    int paused = fp_thread_is_parked(t);
    if (FP_UNLIKELY(paused)) {
        fp_paused_unpark(r, t, 1);
    }
    set_cover(t, s);
    int64_t now = fp_clock_now(&r->clock);
    fp_status status = fp_thread_resume_section(t, s->id, (fp_phase)s->phase,
                                                fp_compat_context(), now);
    if (FP_UNLIKELY(paused)) {
        fp_paused_park(r, t);
    }
    if (FP_UNLIKELY((r->gpu_on | r->tracing) != 0)) {
        section_changed(r, t, now);
    }
    r->lingers.parked = status != FP_OK;
    return PyBool_FromLong(status == FP_OK);
}
