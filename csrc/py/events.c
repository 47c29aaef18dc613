#include "py/events.h"

#include "py/threads.h"
#include "py/timer.h"

#include "core/path.h"

static void
enter_at(fp_thread *t, fp_node *n, int resume, int64_t now)
{
    if (resume) {
        n->resumes++;
    }
    else {
        n->calls++;
    }
    fp_waits_enter(&t->waits, n);
    if (fp_node_is_flat(n)) {
        (void)fp_thread_enter_flat(t, n, now); /* a failure is counted */
    }
    else {
        fp_thread_enter(t, n, now);
    }
}

int
fp_known_enter(fp_thread *t, fp_key key, int resume)
{
    fp_node *n = fp_thread_predict(t, key);
    n = n != NULL ? n : fp_thread_find(t, key);
    if (n == NULL) {
        return 0;
    }
    enter_at(t, n, resume, fp_clock_counter());
    return 1;
}

int
fp_known_leave(fp_thread *t, fp_key key)
{
    if (t->cur->key != key) {
        return 0;
    }
    fp_thread_leave(t, key, fp_clock_counter());
    return 1;
}

void
fp_recorder_enter(fp_recorder *r, fp_key key, PyObject *object, int resume)
{
    fp_thread *t = fp_recorder_at(r, FP_HOOK_ENTER, key);
    int64_t now = 0;
    int timed = r->config.timer != NULL;
    if (t != NULL && FP_UNLIKELY(timed)) {
        t = fp_timer_read(r, &now) == 0 ? fp_recorder_here(r) : NULL;
    }
    if (FP_UNLIKELY(t == NULL)) {
        return;
    }
    fp_node *n = fp_thread_predict(t, key);
    if (n == NULL && (n = fp_recorder_node(r, t, key, object)) == NULL) {
        return;
    }
    if (timed) {
        fp_timer_first(t, now);
    }
    enter_at(t, n, resume, timed ? now : fp_clock_now(&r->clock));
    if (FP_UNLIKELY(r->gpu.external)) {
        FP_LAYERS(r, entered, r, t, key);
    }
    fp_recorder_trace(r, t, t->last);
}

static void
leave_when(fp_recorder *r, fp_thread *t, fp_key key, int64_t now)
{
    int paired = t->cur->key == key;
    fp_thread_leave(t, key, now);
    if (FP_UNLIKELY(r->gpu.external)) {
        FP_LAYERS(r, left, r, t, key, paired);
    }
    fp_recorder_trace(r, t, t->last);
}

void
fp_recorder_leave_unseen(fp_recorder *r, fp_thread *t, fp_key key)
{
    leave_when(r, t, key, t->last);
}

/* Records the end of [key] in [t], or nothing if [t] is NULL. */
static void
leave_at(fp_recorder *r, fp_thread *t, fp_key key)
{
    int64_t now = 0;
    int timed = r->config.timer != NULL;
    if (t != NULL && FP_UNLIKELY(timed)) {
        /* A return without a call must not read the timer. */
        t = fp_thread_in_function(t) && fp_timer_read(r, &now) == 0
                ? fp_recorder_here(r)
                : NULL;
    }
    if (FP_UNLIKELY(t == NULL)) {
        return;
    }
    if (timed) {
        fp_timer_first(t, now);
    }
    leave_when(r, t, key, timed ? now : fp_clock_now(&r->clock));
}

void
fp_recorder_leave(fp_recorder *r, fp_key key)
{
    leave_at(r, fp_recorder_at(r, FP_HOOK_LEAVE, key), key);
}

void
fp_recorder_count(fp_recorder *r, fp_key key, PyObject *object)
{
    fp_thread *t = fp_recorder_at(r, FP_HOOK_ENTER, key);
    fp_node *n = t != NULL ? fp_recorder_node(r, t, key, object) : NULL;
    if (n != NULL) {
        n->calls++;
    }
}

int
fp_recorder_leave_c(fp_recorder *r, fp_key key, PyObject *caller)
{
    fp_thread *t = fp_recorder_at(r, FP_HOOK_LEAVE, key);
    if (t != NULL && t->cur->key != key &&
        fp_thread_innermost(t)->key == (fp_key)caller) {
        return !fp_thread_unseen_ends(t, (fp_key)caller);
    }
    leave_at(r, t, key);
    return 0;
}
