/* Copies the collector's records at one moment. */
#include "py/gpu_view.h"

#include <stdlib.h>

void
fp_gpu_view_free(fp_gpu_view *v)
{
    if (v != NULL) {
        free(v->activity);
        free(v->host);
        free(v->kernel);
        free(v->names);
        free(v->timeline);
        free(v->record);
        free(v->call);
        free(v);
    }
}

/* Copies [rows] and adds room for [more]; NULL: no memory. */
static void *
copy(const void *rows, size_t count, size_t bytes, size_t more)
{
    void *made = calloc(count + more + 1, bytes);
    if (made != NULL && count != 0) {
        memcpy(made, rows, count * bytes);
    }
    return made;
}

/* Copies the names, because another recording may free the ledger's. */
static int
copy_names(fp_gpu_view *v)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < v->kernels; i++) {
        bytes += v->kernel[i].name_bytes;
    }
    char *at = v->names = malloc(bytes);
    for (uint32_t i = 0; at != NULL && i < v->kernels; i++) {
        fp_kernel *k = &v->kernel[i];
        memcpy(at, k->name, k->name_bytes);
        k->name = at;
        at += k->name_bytes;
    }
    return at != NULL ? 0 : -1;
}

static int
copy_tables(fp_gpu_view *v, const fp_ledger *l)
{
    const fp_sums *s = &l->sums;
    v->activities = s->activity.count;
    v->hosts = s->host.count;
    v->kernels = l->kernels.count;
    v->timelines = l->timelines;
    v->activity = copy(s->activity.row, v->activities, sizeof(*v->activity),
                       FP_HOW_UNKNOWN + 1);
    v->host = copy(s->host.row, v->hosts, sizeof(*v->host), 1);
    v->kernel = copy(l->kernels.row, v->kernels, sizeof(*v->kernel), 0);
    v->timeline = copy(l->timeline, v->timelines, sizeof(*v->timeline), 0);
    if (v->activity == NULL || v->host == NULL || v->kernel == NULL ||
        v->timeline == NULL || copy_names(v) < 0) {
        return -1;
    }
    for (int how = 0; how <= FP_HOW_UNKNOWN; how++) {
        if (s->no_room[how].count != 0) {
            v->activity[v->activities++] = s->no_room[how];
        }
    }
    v->host[v->hosts++] = s->no_room_host;
    return 0;
}

static int
copy_ledger(fp_gpu_view *v, fp_gpu *g)
{
    const fp_ledger *l = &g->ledger;
    if (copy_tables(v, l) < 0) {
        return -1;
    }
    memcpy(v->section, l->section, sizeof(v->section));
    memcpy(v->device, g->driver.device, sizeof(v->device));
    v->counters = l->counters;
    v->total_ns = l->sums.total_ns;
    v->paused_ns = g->paused_ns;
    v->pauses = g->pauses;
    v->cupti_errors = g->cupti_errors + atomic_load(&g->push_errors);
    v->taken = g->taken;
    v->lost_launches = atomic_load(&g->lanes.lost) + l->launches.lost;
    v->discarded = atomic_load(&g->buffers.discarded);
    v->rows_dropped = l->sums.dropped;
    v->names_dropped = l->kernels.dropped;
    v->unheard = g->unheard;
    v->clocks_taken_back = g->clocks_taken_back;
    v->clock_steps = l->clock.steps;
    v->lost_graph_nodes = l->graphs.lost;
    v->owners_lost = l->owners.lost;
    for (uint32_t i = 0; i < l->timelines; i++) {
        v->timeline_lost += l->timeline[i].lost;
        v->late += l->timeline[i].late;
    }
    v->cupti_version = g->cupti.version;
    v->driver_version = g->driver.version;
    v->tier = g->used;
    fp_gpu_health_look(&v->health);
    return 0;
}

static int
copy_trace(fp_gpu_view *v, const fp_trace_records *t)
{
    v->records = fp_ring_count(&t->record);
    v->calls = fp_ring_count(&t->call);
    v->record = calloc(v->records + 1, sizeof(*v->record));
    v->call = calloc(v->calls + 1, sizeof(*v->call));
    if (v->record == NULL || v->call == NULL) {
        return -1;
    }
    for (uint64_t i = 0; i < v->records; i++) {
        v->record[i] = *(fp_trace_record *)fp_ring_at(&t->record, i);
    }
    for (uint64_t i = 0; i < v->calls; i++) {
        v->call[i] = *(fp_trace_call *)fp_ring_at(&t->call, i);
    }
    v->trace_lost = t->lost;
    v->trace_lost_until = t->lost_until;
    v->trace_no_memory = t->no_memory;
    v->traced = 1;
    return 0;
}

fp_gpu_view *
fp_gpu_view_take(fp_recorder *r, int with_trace)
{
    if (!r->gpu.asked) {
        return NULL;
    }
    fp_gpu *g = fp_gpu_if_any();
    fp_gpu_view *v = calloc(1, sizeof(*v));
    int ok = v != NULL;
    if (ok && g != NULL && r == fp_gpu_owner) {
        pthread_mutex_lock(&g->lock);
        v->empty = !g->has_ledger || g->ledger.begin_ns == 0;
        ok = v->empty || copy_ledger(v, g) == 0;
        if (ok && with_trace && g->ledger.trace != NULL && !v->empty) {
            ok = copy_trace(v, &g->trace) == 0;
        }
        pthread_mutex_unlock(&g->lock);
    }
    else if (ok) {
        v->empty = 1;
    }
    if (!ok) {
        fp_gpu_view_free(v);
        PyErr_NoMemory();
        return NULL;
    }
    return v;
}
