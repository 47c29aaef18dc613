/* The functions of the GPU layer that a recorder calls: see layer.h. */
#include "py/gpu_layer_parts.h"

#include "py/gpu_health.h"
#include "py/mode.h"

#include "core/steps_split.h"

static void
cleared(fp_recorder *r)
{
    if (r == fp_gpu_owner) {
        fp_gpu_clear(fp_gpu_if_any());
        fp_gpu_health_clear();
        if (r->gpu.lines != NULL) {
            PyDict_Clear(r->gpu.lines);
        }
        r->gpu.partial = 1;
    }
}

static void
stop_quietly(fp_recorder *r)
{
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    fp_gpu_layer_stop_within(r, 0.5);
    PyErr_Restore(type, exc, tb);
}

/* Waits for at most half a second. */
static void
end(fp_recorder *r)
{
    stop_quietly(r);
    if (fp_gpu_owner == r) {
        fp_gpu_owner = NULL;
        if (!fp_gpu_starting) {
            fp_gpu_forget(fp_gpu_if_any());
        }
    }
}

static unsigned
signals(const fp_recorder *r)
{
    /* With correlation ids, a wait becomes known long after its step. */
    return r->gpu_on && !r->gpu.external ? FP_SIGNAL_GPU : 0;
}

const fp_layer fp_gpu_layer = {
    .epochs = fp_gpu_layer_epochs,
    .hide_all = fp_gpu_layer_hide_all,
    .thread_ended = fp_gpu_layer_hide,
    .renamed = fp_gpu_layer_renamed,
    .cleared = cleared,
    .signals = signals,
    .entered = fp_gpu_layer_entered,
    .left = fp_gpu_layer_left,
    .sections_changed = fp_gpu_layer_section,
    .stepped = fp_gpu_layer_step,
    .traced = fp_gpu_layer_traced,
    .end = end,
};

void
fp_gpu_layer_end_any(void)
{
    if (fp_gpu_owner != NULL) {
        fp_recorder *r = fp_gpu_owner;
        Py_INCREF((PyObject *)r);
        stop_quietly(r);
        Py_DECREF((PyObject *)r);
    }
    if (fp_gpu_starting) { /* its thread will never finish the start */
        Py_BEGIN_ALLOW_THREADS
        fp_gpu_stop(fp_gpu_if_any(), 0);
        Py_END_ALLOW_THREADS
    }
}

void
fp_gpu_layer_forked(void)
{
    /* pthread_atfork has informed the collector. */
    fp_gpu_starting = 0;
    if (fp_gpu_owner != NULL) {
        fp_gpu_owner->gpu_on = fp_gpu_owner->gpu.external =
            fp_gpu_owner->gpu.switching = 0;
        fp_recorder_set_mode(fp_gpu_owner);
        fp_gpu_layer_set_reason(
            fp_gpu_owner, "this process was forked from one that had the GPU");
        fp_gpu_owner = NULL;
        fp_gpu_lines_for(NULL);
    }
}
