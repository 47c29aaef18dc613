/* layer: the interface of the parts that observe a recording besides its
 * functions and sections: the trace, the GPU, garbage collections and NVTX.
 * The recorder knows no layer by name: it walks a table (fp_state.layers,
 * built by module.c) and calls the functions that are set.
 *
 * Every function runs under the GIL, raises nothing and keeps a live
 * exception. */
#ifndef FP_PY_LAYER_H
#define FP_PY_LAYER_H

#include "core/thread.h"

struct fp_recorder;
struct fp_section_object;

/* Each function may be NULL. */
typedef struct fp_layer {
    /* Functions are about to be switched off. */
    void (*functions_stop)(struct fp_recorder *r);
    /* Sections were switched on, or are about to be switched off. */
    void (*sections_start)(struct fp_recorder *r);
    void (*sections_stop)(struct fp_recorder *r);
    /* The recorder's epochs, or its switches for functions, have changed. */
    void (*epochs)(struct fp_recorder *r);
    /* The records of all threads are about to be freed.  Afterwards the
     * recorder has new epochs. */
    void (*hide_all)(struct fp_recorder *r);
    /* thread_ended: the record of [t], whose thread has ended, is about to be
     * freed.  renamed: node i of [t] became node became[i] of [into]. */
    void (*thread_ended)(struct fp_recorder *r, fp_thread *t);
    void (*renamed)(struct fp_recorder *r, const fp_thread *t,
                    const fp_thread *into, const uint32_t *became);
    /* The recording was cleared. */
    void (*cleared)(struct fp_recorder *r);
    /* Returns the signals that the layer records for each step: FP_SIGNAL_...
     * of core/steps_split.h. */
    unsigned (*signals)(const struct fp_recorder *r);
    /* While gpu.external is set: the calling thread has entered or left [key].
     * [paired]: its current node was the call of [key]. */
    void (*entered)(struct fp_recorder *r, fp_thread *t, fp_key key);
    void (*left)(struct fp_recorder *r, fp_thread *t, fp_key key, int paired);
    /* While gpu_on or tracing is set: the open sections of the calling thread
     * have changed. */
    void (*sections_changed)(struct fp_recorder *r, fp_thread *t, int64_t now);
    /* While nvtx_out is set: before a section opens and after it has
     * closed. */
    void (*section_opens)(const struct fp_section_object *s);
    void (*section_closed)(const struct fp_section_object *s,
                           struct fp_recorder *r);
    /* The step of [t] that began at [began] has ended.  [measured]: it is
     * neither warm-up nor without the hook. */
    void (*stepped)(struct fp_recorder *r, fp_thread *t, int64_t began,
                    int64_t now, int measured);
    /* A window of the trace has begun or ended. */
    void (*traced)(struct fp_recorder *r, int64_t now);
    /* The recorder is about to export; the layer adds its counters. */
    void (*exporting)(struct fp_recorder *r);
    /* The recorder is about to be freed. */
    void (*end)(struct fp_recorder *r);
} fp_layer;

/* Calls [event] of every layer of [r] that has it. */
#define FP_LAYERS(r, event, ...) \
    do { \
        for (const fp_layer *const *layer_ = (r)->layers; *layer_ != NULL; \
             layer_++) { \
            if ((*layer_)->event != NULL) { \
                (*layer_)->event(__VA_ARGS__); \
            } \
        } \
    } while (0)

#endif
