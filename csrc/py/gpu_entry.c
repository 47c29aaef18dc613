/* gpu_entry: the functions that CUPTI calls, and the collector that they
 * serve.  CUPTI's buffer callbacks have no user pointer, and buffers may come
 * back long after the recording, so the process has one collector, which is
 * never freed. */
#include "py/gpu_layer.h"

#include "core/path.h"
#include "core/steps_split.h"

#include <stdlib.h>

static fp_gpu *collector; /* owned; written once, under the GIL */
static _Atomic uint64_t function_epoch = FP_EPOCH_OFF;
static _Atomic uint64_t section_epoch = FP_EPOCH_OFF;
static pthread_key_t lane_key;

fp_gpu *
fp_gpu_if_any(void)
{
    return collector;
}

void
fp_gpu_set_epochs(uint64_t functions, uint64_t sections)
{
    atomic_store(&function_epoch, functions);
    atomic_store(&section_epoch, sections);
}

/* ---- threads ---- */

static void
forget_lane(void)
{
    fp_tls *me = fp_tls_if_any();
    if (me != NULL) {
        me->lane = NULL;
    }
}

static void
thread_ended(void *lane)
{
    forget_lane();
    atomic_store(&((fp_lane *)lane)->ended, 1);
}

fp_lane *
fp_gpu_own_lane(fp_gpu *g)
{
    fp_lane *lane = fp_this_thread->lane;
    if (FP_UNLIKELY(lane == NULL)) {
        fp_tls *me = fp_tls_own();
        lane = me != NULL ? fp_lane_create(&g->lanes) : NULL;
        if (lane != NULL && pthread_setspecific(lane_key, lane) == 0) {
            me->lane = lane;
        }
        else if (lane != NULL) {
            atomic_store(&lane->ended, 1);
            lane = NULL;
        }
    }
    return lane;
}

/* The calling thread's record in the recorder whose epochs are set. */
static fp_thread *
own_record(void)
{
    const fp_tls *me = fp_this_thread;
    if (me->sections.epoch == atomic_load(&section_epoch)) {
        return me->sections.thread;
    }
    if (me->functions.epoch == atomic_load(&function_epoch)) {
        return me->functions.thread;
    }
    return NULL;
}

/* ---- what CUPTI calls ---- */

static void
on_call(void *user, int domain, uint32_t cbid, const void *data)
{
    fp_gpu *g = user;
    if (!atomic_load_explicit(&g->accept, memory_order_relaxed)) {
        return;
    }
    fp_lane *lane = fp_gpu_own_lane(g);
    if (lane == NULL) {
        atomic_fetch_add(&g->lanes.lost, 1);
        return;
    }
    fp_lane_enter(lane);
    fp_thread *self = own_record();
    int64_t blocked = fp_gpu_on_call(g, lane, self, domain, cbid, data);
    fp_place place = blocked != 0 && self != NULL
                         ? fp_place_of(self, fp_thread_stands(self))
                         : 0;
    if (blocked != 0 && self != NULL && self->split != NULL) {
        fp_split_gpu(self, blocked);
    }
    fp_lane_exit(lane);
    /* Only that thread runs the pending calls that read source lines. */
    if (place != 0 && fp_is_main_thread()) {
        fp_gpu_lines_note(place, blocked);
    }
}

static void
on_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = fp_buffers_lend(&collector->buffers, size,
                              fp_clock_now(&collector->clock));
    *max_records = 0; /* as many as fit */
}

static void
on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
            size_t valid)
{
    (void)size;
    if (fp_buffers_accept(&collector->buffers, buffer, valid, context,
                          stream)) {
        fp_gpu_wake(collector);
    }
}

/* ---- backward ---- */

/* Is [key] torch._C._EngineBase.run_backward, or another function with that
 * name?  The key is the address of a method definition, which is not freed
 * while it is a key. */
static int
is_backward(fp_key key)
{
    const char *name = fp_key_method(key)->ml_name;
    return name != NULL && strcmp(name, "run_backward") == 0;
}

/* ---- life cycle ---- */

static void
forked(void)
{
    fp_gpu_set_epochs(FP_EPOCH_OFF, FP_EPOCH_OFF);
    fp_gpu_forked(collector);
    forget_lane();
}

fp_gpu *
fp_gpu_the_collector(const fp_clock *clock)
{
    if (collector != NULL) {
        return collector;
    }
    static const fp_gpu_entries entries = {on_call, on_request, on_complete};
    /* Python's allocator cannot be used: its tracing takes the GIL. */
    fp_alloc libc = fp_alloc_libc();
    fp_gpu *g = calloc(1, sizeof(*g));
    if (g == NULL ||
        fp_gpu_init(g, &libc, clock, &entries, is_backward) != FP_OK) {
        free(g);
        return NULL;
    }
    if (pthread_key_create(&lane_key, thread_ended) != 0) {
        free(g);
        return NULL;
    }
    collector = g;
    pthread_atfork(NULL, NULL, forked);
    return g;
}
