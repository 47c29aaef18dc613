#include "py/paused.h"

#include "py/guard.h"
#include "py/mode.h"
#include "py/threads.h"

#include "core/path.h"

/* ---- the interpreter's frames ---- */

typedef struct frames {
    fp_key *key; /* owned or [few]; of code objects, innermost first */
    uint32_t count;
    uint32_t capacity;
    fp_key few[128];
} frames;

static void
frames_fini(frames *f)
{
    if (f->key != f->few) {
        PyMem_RawFree(f->key);
    }
}

static int
frames_add(frames *f, fp_key key)
{
    if (f->count == f->capacity) {
        uint32_t capacity = f->capacity * 2;
        fp_key *more = PyMem_RawMalloc(capacity * sizeof(*more));
        if (more == NULL) {
            return -1;
        }
        memcpy(more, f->key, f->count * sizeof(*more));
        frames_fini(f);
        f->key = more;
        f->capacity = capacity;
    }
    f->key[f->count++] = key;
    return 0;
}

/* Reads the calling thread's Python functions that send events, at most the
 * innermost [most].  Skips [started] if it is the innermost. */
static void
frames_take(frames *f, fp_recorder *r, fp_key started, uint32_t most)
{
    f->key = f->few;
    f->count = 0;
    f->capacity = sizeof(f->few) / sizeof(f->few[0]);
    fp_frame_walk walk;
    PyObject *code = fp_compat_walk_begin(&walk);
    if (code != NULL && (fp_key)code == started) {
        code = fp_compat_walk_next(&walk);
    }
    while (code != NULL && f->count < most) {
        if (frames_add(f, (fp_key)code) < 0) {
            break;
        }
        code = fp_compat_walk_next(&walk);
    }
    fp_compat_walk_end(&walk);
}

/* Makes the outermost function the first. */
static void
frames_reverse(frames *f)
{
    for (uint32_t i = 0; i < f->count / 2; i++) {
        fp_key key = f->key[i];
        f->key[i] = f->key[f->count - 1 - i];
        f->key[f->count - 1 - i] = key;
    }
}

/* ---- rebuilding the path ---- */

/* Index in [f] of the outermost function that belongs on the path. */
static uint32_t
first_wanted(const fp_recorder *r, const fp_thread *t, const frames *f)
{
    fp_key bottom = 0;
    if (r->config.callers) {
        return 0;
    }
    if (fp_thread_python_depth(t, &bottom) == 0) {
        return t->before < f->count ? t->before : f->count;
    }
    if (t->before < f->count && f->key[t->before] == bottom) {
        return t->before;
    }
    uint32_t i = 0;
    while (i < f->count && f->key[i] != bottom) {
        i++;
    }
    /* Every call of the path has ended; the functions that run now are
     * newer. */
    return i == f->count && t->before < i ? t->before : i;
}

void
fp_paused_catch_up(fp_recorder *r, fp_thread *t, fp_key started)
{
    fp_thread_unpark(t, fp_recorder_now_of(r, t));
    if (t->stale || t->unseen != 0) {
        frames f;
        frames_take(&f, r, started, t->stale ? UINT32_MAX : t->unseen);
        frames_reverse(&f);
        uint32_t i = 0;
        if (t->stale) {
            i = first_wanted(r, t, &f);
            i = fp_thread_keep_live(t, f.key, i, f.count);
        }
        for (; i < f.count; i++) {
            /* Create the node first: it keeps the key valid. */
            if (fp_recorder_node(r, t, f.key[i], (PyObject *)f.key[i])) {
                (void)fp_thread_rejoin(t, f.key[i]);
            }
        }
        frames_fini(&f);
        t->unseen = 0;
        t->stale = 0;
    }
    fp_thread_mark_refound(t);
    fp_recorder_trace(r, t, t->last);
}

/* ---- while calls are not recorded ---- */

static void
expect_callers(void *arg)
{
    fp_recorder *r = arg;
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        t->before = UINT32_MAX;
        if (r->config.callers && r->config.timer == NULL) {
            t->stale = 1;
            fp_thread_park(t, fp_recorder_now_of(r, t));
        }
    }
}

void
fp_paused_expect_callers(fp_recorder *r)
{
    fp_world_stopped(expect_callers, r);
}

/* Counts the open functions of this thread that are not on its path. */
static void
count_before(fp_recorder *r, fp_thread *t)
{
    frames f;
    fp_key bottom;
    frames_take(&f, r, 0, UINT32_MAX);
    uint32_t known = fp_thread_python_depth(t, &bottom) + t->unseen;
    t->before = f.count > known ? f.count - known : 0;
    frames_fini(&f);
}

typedef struct beginning {
    fp_recorder *r;
    const fp_thread *own;
    int blind, pauses;
} beginning;

static void
park_all(void *arg)
{
    const beginning *b = arg;
    fp_recorder *r = b->r;
    /* Another thread may have paused or stopped the recording meanwhile. */
    int pauses = b->pauses && r->function_epoch != FP_EPOCH_OFF;
    if (!r->functions_on || (b->pauses && !pauses && !b->blind)) {
        return;
    }
    for (fp_thread *t = r->threads; t != NULL; t = t->next) {
        if (b->blind && !t->stale) {
            t->stale = 1;
            t->before = t == b->own ? t->before : UINT32_MAX;
        }
        fp_thread_park(t, fp_recorder_now_of(r, t));
        fp_recorder_trace(r, t, t->last);
    }
    if (pauses) {
        r->paused = 1;
        r->paused_epoch = r->function_epoch;
        fp_recorder_set_epoch(r, FP_EPOCH_OFF);
    }
}

void
fp_paused_begin(fp_recorder *r, int blind, int pauses)
{
    fp_thread *own = fp_recorder_own_thread(r);
    if (blind && own != NULL && !own->stale) {
        fp_thread_unpark(own, fp_recorder_now_of(r, own));
        count_before(r, own);
    }
    fp_world_stopped(park_all, &(beginning){r, own, blind, pauses});
}

/* The calling thread's record, parked; NULL: out of memory. */
static fp_thread *
paused_thread(fp_recorder *r)
{
    const fp_tls *me = fp_this_thread;
    if (FP_LIKELY(me->functions.epoch == r->paused_epoch)) {
        return me->functions.thread;
    }
    fp_thread *t = fp_recorder_make_own_thread(r);
    if (t != NULL) {
        fp_thread_park(t, fp_recorder_now_of(r, t));
    }
    fp_tls *own = fp_tls_own();
    if (own != NULL && r->paused_epoch != FP_EPOCH_OFF) {
        own->functions = (fp_slot){r->paused_epoch, t};
    }
    return t;
}

/* Is [key] the innermost function on the path of [t], which is parked? */
static int
is_innermost(const fp_thread *t, fp_key key)
{
    fp_path_walk w = fp_path_walk_begin(t);
    const fp_node *n = fp_path_walk_function(t, &w);
    return n != NULL && n->key == key;
}

/* Handles an event while calls are not recorded. */
static void
paused_event(fp_recorder *r, fp_hook_kind kind, fp_key key)
{
    int python = fp_key_tag(key) == FP_TAG_PYTHON;
    if (kind == FP_HOOK_ASKED || (kind == FP_HOOK_ENTER && !python)) {
        return;
    }
    if (r->config.timer != NULL) {
        /* the next reading would charge the whole pause to the caller */
        return;
    }
    fp_thread *t = paused_thread(r);
    if (t == NULL || t->stale) {
        return;
    }
    if (kind == FP_HOOK_ENTER) {
        t->unseen++;
    }
    else if (t->unseen != 0) {
        t->unseen -= python;
    }
    else if (python || is_innermost(t, key)) {
        int64_t now = fp_recorder_now_of(r, t);
        fp_thread_unpark(t, now);
        fp_thread_leave(t, key, now);
        fp_thread_park(t, now);
        fp_recorder_trace(r, t, now);
    }
}

/* ---- first event of a thread ---- */

FP_COLD fp_thread *
fp_recorder_arrive(fp_recorder *r, fp_hook_kind kind, fp_key key)
{
    if (r->function_epoch == FP_EPOCH_OFF) {
        if (r->paused && r->functions_on) {
            paused_event(r, kind, key);
        }
        return NULL;
    }
    fp_thread *t = fp_recorder_make_own_thread(r);
    if (t != NULL && kind != FP_HOOK_ASKED) {
        int starts = kind == FP_HOOK_ENTER && fp_key_tag(key) == FP_TAG_PYTHON;
        fp_tls_own()->functions = (fp_slot){r->function_epoch, t};
        fp_paused_catch_up(r, t, starts ? key : 0);
    }
    return t;
}

/* ---- sections ---- */

void
fp_paused_unpark(fp_recorder *r, fp_thread *t, int find)
{
    if (!r->paused) {
        (void)fp_recorder_arrive(r, FP_HOOK_LEAVE, 0);
    }
    else if (find) {
        uint8_t blind = t->stale;
        (void)paused_thread(r);
        fp_paused_catch_up(r, t, 0);
        t->stale = blind && r->unhooked;
    }
    fp_thread_unpark(t, fp_recorder_now_of(r, t)); /* if it is still parked */
}

void
fp_paused_park(fp_recorder *r, fp_thread *t)
{
    if (r->paused) {
        fp_thread_park(t, fp_clock_now(&r->clock));
        fp_recorder_trace(r, t, t->last);
    }
}
