#include "core/steps_pairs.h"

#include "core/steps_split.h"

static fp_pair_block *
last_block(fp_pairs *p)
{
    return &p->block[(p->blocks - 1) % FP_PAIRS_BLOCKS];
}

static uint32_t
columns_of(const fp_series *s)
{
    return s->columns < FP_PAIRS_COLUMNS ? s->columns : FP_PAIRS_COLUMNS;
}

/* Measured steps are rows of the series. */
static void
put_measured(fp_pair_step *into, const fp_thread *t, uint64_t nth)
{
    const fp_series *s = &t->split->measured.series;
    uint64_t row = nth % FP_STEPS_RECENT;
    int64_t delay_ns = s->row[row].delay_ns;
    *into = (fp_pair_step){.ticks = t->steps->measured.recent[row],
                           .delay_ns = delay_ns > 0 ? delay_ns : 0};
    for (uint32_t i = 0; i < columns_of(s); i++) {
        into->section[i] = s->column[i].ticks[row];
    }
}

/* Steps without the hook are in another phase of the run, where each section
 * has another record. */
static void
put_plain(fp_pair_step *into, const fp_thread *t)
{
    const fp_series *series = &t->split->measured.series;
    const fp_split_sums *step = &t->split->step;
    *into =
        (fp_pair_step){.ticks = t->steps->ticks,
                       .delay_ns = step->delay_ns + step->covered_delay_ns};
    for (const fp_section *s = t->touched; s != NULL; s = s->next_touched) {
        for (uint32_t i = 0; i < columns_of(series); i++) {
            if (series->column[i].section->id == s->id) {
                into->section[i] += s->step_ticks;
            }
        }
    }
}

uint32_t
fp_pairs_settle(const fp_steps *s, int64_t ticks)
{
    int64_t recent[FP_PAIRS_NEAR];
    uint32_t n = fp_step_times_recent(&s->measured, recent, FP_PAIRS_NEAR);
    int64_t least = n != 0 ? recent[0] : ticks;
    for (uint32_t i = 1; i < n; i++) {
        least = recent[i] < least ? recent[i] : least;
    }
    if (least >= ticks) {
        return 1;
    }
    if (least <= ticks / FP_PAIRS_MOST_SETTLE) {
        return FP_PAIRS_MOST_SETTLE;
    }
    return (uint32_t)((ticks + least - 1) / least);
}

uint32_t
fp_pairs_length(uint32_t settle)
{
    uint32_t kept = settle + 1;
    return settle + (kept < FP_PAIRS_PLAIN ? kept : FP_PAIRS_PLAIN);
}

fp_status
fp_pairs_begin(fp_pairs **pairs, const fp_thread *t, uint32_t settle)
{
    if (*pairs == NULL) {
        *pairs = fp_alloc_zeroed(&t->alloc, 1, sizeof(**pairs));
        if (*pairs == NULL) {
            return FP_ENOMEM;
        }
    }
    fp_pairs *p = *pairs;
    p->state = FP_PAIRS_WITHOUT;
    p->settle = settle;
    fp_pair_block *b = &p->under_way;
    *b = (fp_pair_block){.first = t->steps->count};
    uint64_t n = t->steps->measured.count;
    while (b->near_count < FP_PAIRS_NEAR && b->near_count < n) {
        put_measured(&b->near[b->near_count], t, n - 1 - b->near_count);
        b->near_count++;
    }
    return FP_OK;
}

void
fp_pairs_end(fp_pairs *p, int valid)
{
    if (p->state != FP_PAIRS_WITHOUT) {
        return;
    }
    p->state = valid ? FP_PAIRS_WITH_AGAIN : FP_PAIRS_IDLE;
    p->nth = 0;
    if (valid) {
        p->blocks++;
        *last_block(p) = p->under_way;
    }
}

void
fp_pairs_end_step(fp_pairs *p, const fp_thread *t, fp_step_kind kind)
{
    if (p->state == FP_PAIRS_WITHOUT) {
        fp_pair_block *b = &p->under_way;
        if (kind == FP_STEP_PLAIN && b->plain_count < FP_PAIRS_PLAIN) {
            put_plain(&b->plain[b->plain_count++], t);
        }
    }
    else if (p->state == FP_PAIRS_WITH_AGAIN && p->nth++ >= p->settle &&
             kind == FP_STEP_MEASURED) {
        fp_pair_block *b = last_block(p);
        put_measured(&b->near[b->near_count++], t,
                     t->steps->measured.count - 1);
        if (b->near_count == 2 * FP_PAIRS_NEAR ||
            p->nth >= p->settle + FP_PAIRS_NEAR) {
            p->state = FP_PAIRS_IDLE;
        }
    }
}

uint32_t
fp_pairs_kept(const fp_pairs *p)
{
    return p->blocks < FP_PAIRS_BLOCKS ? (uint32_t)p->blocks : FP_PAIRS_BLOCKS;
}

/* The lower median, which a rare slow step does not change. */
static int64_t
median_ns(const fp_pair_step *step, uint32_t n, double ns_per_tick)
{
    int64_t sorted[2 * FP_PAIRS_NEAR];
    for (uint32_t i = 0; i < n; i++) {
        int64_t ns =
            (int64_t)((double)step[i].ticks * ns_per_tick) - step[i].delay_ns;
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > ns; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = ns;
    }
    return sorted[(n - 1) / 2];
}

int
fp_pairs_medians(const fp_pairs *p, uint32_t back, double ns_per_tick,
                 int64_t *plain_ns, int64_t *hooked_ns)
{
    const fp_pair_block *b =
        &p->block[(p->blocks - 1 - back) % FP_PAIRS_BLOCKS];
    if (b->plain_count == 0 || b->near_count == 0) {
        return 0;
    }
    *plain_ns = median_ns(b->plain, b->plain_count, ns_per_tick);
    *hooked_ns = median_ns(b->near, b->near_count, ns_per_tick);
    return 1;
}
