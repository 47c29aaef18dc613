/* layer: what watches a recording beside its functions and sections: the trace, the
 * GPU, collections, NVTX.  The recorder knows none of them by name: it walks a table
 * (fp_state.layers, made by module.c) and calls what is there.
 *
 * All of it runs under the GIL, raises nothing and keeps a live exception. */
#ifndef FP_PY_LAYER_H
#define FP_PY_LAYER_H

#include "core/thread.h"

struct fp_recorder;
struct fp_section_object;

/* Any of these may be NULL. */
typedef struct fp_layer {
    /* Functions are about to be switched off. */
    void (*functions_stop)(struct fp_recorder *r);
    /* Sections were switched on, or are about to be switched off. */
    void (*sections_start)(struct fp_recorder *r);
    void (*sections_stop)(struct fp_recorder *r);
    /* The recorder's epochs, or what it knows of functions, have changed. */
    void (*epochs)(struct fp_recorder *r);
    /* The records of all threads are about to be freed; then it gets new epochs. */
    void (*hide_all)(struct fp_recorder *r);
    /* The record of [t], whose thread has ended, is about to go.  Node i of it became
     * node became[i] of [into]. */
    void (*thread_ended)(struct fp_recorder *r, fp_thread *t);
    void (*renamed)(struct fp_recorder *r, const fp_thread *t,
                    const fp_thread *into, const uint32_t *became);
    /* What was recorded is forgotten. */
    void (*cleared)(struct fp_recorder *r);
    /* What it tells of a step: FP_SIGNAL_... of core/steps_split.h. */
    unsigned (*signals)(const struct fp_recorder *r);
    /* While gpu_external: the calling thread has entered [key], or left it, in which
     * it stood if [paired]. */
    void (*entered)(struct fp_recorder *r, fp_thread *t, fp_key key);
    void (*left)(struct fp_recorder *r, fp_thread *t, fp_key key, int paired);
    /* While gpu_on or tracing: the calling thread stands in other sections. */
    void (*sections_changed)(struct fp_recorder *r, fp_thread *t, int64_t now);
    /* While nvtx_out: around a section. */
    void (*section_opens)(const struct fp_section_object *s);
    void (*section_closed)(const struct fp_section_object *s,
                           struct fp_recorder *r);
    /* The step of [t] that began at [began] has ended. */
    void (*stepped)(struct fp_recorder *r, fp_thread *t, int64_t began,
                    int64_t now);
    /* A window of the trace has begun, or ended. */
    void (*traced)(struct fp_recorder *r, int64_t now);
    /* What it counts is about to be read. */
    void (*exporting)(struct fp_recorder *r);
    /* The recorder goes. */
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
