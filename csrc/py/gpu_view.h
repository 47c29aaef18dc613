/* gpu_view: a copy of the collector's records, taken by gpu_view.c and read by
 * gpu_export.c. */
#ifndef FP_PY_GPU_VIEW_H
#define FP_PY_GPU_VIEW_H

#include "py/export_parts.h"
#include "py/gpu_health.h"
#include "py/gpu_layer.h"

/* The copy is made under the collector's lock.  Creating Python objects may
 * run any code, and the drain thread must not wait for that. */
typedef struct fp_gpu_view {
    fp_activity_sum *activity;
    fp_host_sum *host;
    fp_kernel *kernel;
    char *names;           /* of the kernels */
    fp_timeline *timeline; /* sums only */
    uint32_t activities, hosts, kernels, timelines;
    uint16_t section[FP_TIMELINE_SECTIONS];
    fp_gpu_counters counters;
    int64_t total_ns;
    int64_t paused_ns;
    uint64_t pauses, cupti_errors, taken, lost_launches, rows_dropped,
        names_dropped, timeline_lost, late, clock_steps, clocks_taken_back,
        unheard, lost_graph_nodes, owners_lost, discarded;
    uint64_t cupti_version;
    int driver_version;
    fp_gpu_tier tier;
    fp_gpu_device device[FP_GPU_DEVICES];
    fp_health_view health;
    int empty; /* nothing was recorded */
    /* the trace's records; the fields below belong to them */
    fp_trace_record *record;
    fp_trace_call *call;
    uint64_t records, calls, trace_lost, trace_no_memory;
    int64_t trace_lost_until;
    int traced;
} fp_gpu_view;

/* Copies the collector's records at one moment.  Call it before the trees are
 * exported, so that every place has a node there.  NULL without an exception:
 * the GPU layer was never requested; with an exception: no memory. */
fp_gpu_view *
fp_gpu_view_take(fp_recorder *r, int with_trace);

void
fp_gpu_view_free(fp_gpu_view *v);

/* The dict of export()["gpu"], or None if [v] is NULL; NULL with an
 * exception. */
PyObject *
fp_gpu_view_export(fp_export *x, const fp_gpu_view *v);

/* The GPU's part of the trace: a dict or None; NULL with an exception. */
PyObject *
fp_gpu_view_trace(const fp_export *x, const fp_gpu_view *v);

#endif
