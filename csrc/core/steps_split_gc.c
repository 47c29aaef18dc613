#include "core/steps_split_gc.h"

#include "core/path.h"
#include "core/steps_split.h"

void
fp_split_gc_charge(fp_thread *t, int64_t now)
{
    fp_split *s = t->split;
    int64_t ticks = now > s->gc_since ? now - s->gc_since : 0;
    int64_t cpu_ns = fp_usage_cpu(&s->usage, now, s->usage.near_ticks);
    int64_t used_ns = cpu_ns - s->gc_cpu_ns;
    used_ns = used_ns > 0 ? used_ns : 0;
    s->cover_since =
        s->cover_since < s->gc_since ? s->cover_since + ticks : now;
    s->cover_cpu_ns += used_ns;
    s->gc_since = now;
    s->gc_cpu_ns = cpu_ns;
    fp_split_add_place(s, s->gc_node, FP_KIND_GC, ticks);
    s->step.gc_cpu_ns += used_ns;
    fp_thread_charge(t, now);
    fp_waits_take(&t->waits, s->gc_node,
                  s->gc_node->self_ticks - s->gc_self_ticks);
    s->gc_self_ticks = s->gc_node->self_ticks;
}

void
fp_split_gc_begin(fp_thread *t, int64_t now)
{
    fp_split *s = t->split;
    if (!s->in_gc) {
        fp_thread_charge(t, now);
        s->in_gc = t->waits.deaf = 1;
        s->gc_steps = 0;
        s->gc_since = now;
        s->gc_node = t->cur;
        s->gc_self_ticks = t->cur->self_ticks;
        s->gc_cpu_ns = fp_usage_cpu(&s->usage, now, s->usage.near_ticks);
    }
}

void
fp_split_gc_end(fp_thread *t, int64_t now, int generation)
{
    fp_split *s = t->split;
    if (!s->in_gc) {
        return;
    }
    fp_split_gc_charge(t, now);
    s->in_gc = t->waits.deaf = 0;
    if (generation >= 0 && generation < FP_GC_GENERATIONS) {
        s->step.gc_runs[generation]++;
    }
}

void
fp_split_gc_forget(fp_thread *t)
{
    t->split->in_gc = t->waits.deaf = 0;
}
