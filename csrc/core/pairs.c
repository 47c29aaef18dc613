#include "core/pairs.h"

/* The free slot or the one of the pair. */
static uint32_t *
slot_of(const fp_pairs *p, int32_t caller, int32_t callee)
{
    uint64_t key = (uint64_t)(uint32_t)caller << 32 | (uint32_t)callee;
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = (uint32_t)(hash >> 32);; i++) {
        uint32_t *slot = &p->slot[i & (p->slots - 1)];
        const fp_pair *here = &p->pair[*slot];
        if (*slot == 0 || (here->caller == caller && here->callee == callee)) {
            return slot;
        }
    }
}

/* Keeps half of the slots free. */
static fp_status
more_slots(fp_pairs *p)
{
    uint32_t slots = p->slots == 0 ? 64 : 2 * p->slots;
    uint32_t *slot = fp_alloc_zeroed(&p->alloc, slots, sizeof(*slot));
    if (slot == NULL) {
        return FP_ENOMEM;
    }
    fp_alloc_give(&p->alloc, p->slot, p->slots, sizeof(*slot));
    p->slot = slot;
    p->slots = slots;
    for (uint32_t i = 1; i < p->count; i++) {
        *slot_of(p, p->pair[i].caller, p->pair[i].callee) = i;
    }
    return FP_OK;
}

/* Sets *number. */
static fp_status
find_pair(fp_pairs *p, int32_t caller, int32_t callee, uint32_t *number)
{
    if (2 * p->count >= p->slots && more_slots(p) != FP_OK) {
        return FP_ENOMEM;
    }
    uint32_t *slot = slot_of(p, caller, callee);
    if (*slot == 0) {
        if (fp_alloc_room(&p->alloc, &p->pair, &p->capacity, p->count + 1, 64,
                          sizeof(*p->pair)) != FP_OK) {
            return FP_ENOMEM;
        }
        p->pair[p->count] = (fp_pair){.caller = caller, .callee = callee};
        *slot = p->count++;
    }
    *number = *slot;
    return FP_OK;
}

/* A transparent node belongs to its parent's pair. */
static fp_status
sum_nodes(fp_pairs *p, fp_pairs_node *node, uint32_t count)
{
    node[0].pair = 0;
    for (uint32_t i = 1; i < count; i++) {
        fp_pairs_node *n = &node[i];
        uint32_t above = node[n->parent].pair;
        if (n->group < 0) {
            n->pair = above;
        }
        else if (find_pair(p, p->pair[above].callee, n->group, &n->pair) !=
                 FP_OK) {
            return FP_ENOMEM;
        }
        else {
            if (p->pair[n->pair].first == 0) {
                p->pair[n->pair].first = i;
            }
            p->pair[n->pair].calls += n->calls;
            p->pair[n->pair].resumes += n->resumes;
        }
        p->pair[n->pair].self_ns += n->self_ns;
        p->pair[n->pair].raw_ns += n->raw_ns;
    }
    return FP_OK;
}

/* Sets the sums of subtrees, and by_place[]: each place's node. */
static void
order_nodes(fp_pairs_node *node, uint32_t count, uint32_t *by_place)
{
    for (uint32_t i = 0; i < count; i++) {
        node[i].cum_ns = node[i].self_ns;
        node[i].raw_cum_ns = node[i].raw_ns;
        node[i].size = 1;
    }
    for (uint32_t i = count - 1; i > 0; i--) {
        fp_pairs_node *above = &node[node[i].parent];
        above->cum_ns += node[i].cum_ns;
        above->raw_cum_ns += node[i].raw_cum_ns;
        above->size += node[i].size;
    }
    node[0].place = 0;
    node[0].next = 1;
    for (uint32_t i = 1; i < count; i++) {
        fp_pairs_node *above = &node[node[i].parent];
        node[i].place = above->next;
        node[i].next = above->next + 1;
        above->next += node[i].size;
        by_place[node[i].place] = i;
    }
}

static void
add_outer(fp_pairs_outer *o, const fp_pairs_node *n)
{
    o->calls += n->calls;
    o->resumes += n->resumes;
    o->cum_ns += n->cum_ns;
    o->raw_cum_ns += n->raw_cum_ns;
}

/* An activation is inside another one of its function until the place at which
 * that one ends: ends[] by function.  An activation that is outermost of its
 * function is outermost of its pair, too. */
static void
sum_outermost(fp_pairs *p, const fp_pairs_node *node, uint32_t count,
              const uint32_t *by_place, uint32_t *ends)
{
    for (uint32_t place = 1; place < count; place++) {
        const fp_pairs_node *n = &node[by_place[place]];
        if (n->group < 0) {
            continue;
        }
        fp_pair *pair = &p->pair[n->pair];
        if (place >= ends[n->group]) {
            ends[n->group] = pair->end = place + n->size;
            add_outer(&pair->outer, n);
        }
        else if (place >= pair->end) {
            pair->end = place + n->size;
            p->nested += !pair->nested;
            pair->nested = 1;
            add_outer(&pair->more, n);
        }
    }
}

fp_status
fp_pairs_sum(fp_pairs *p, const fp_alloc *a, fp_pairs_node *node,
             uint32_t count, uint32_t groups)
{
    *p = (fp_pairs){.alloc = *a};
    uint32_t *by_place = fp_alloc_zeroed(a, count, sizeof(*by_place));
    uint32_t *ends = fp_alloc_zeroed(a, groups, sizeof(*ends));
    fp_status status = by_place == NULL || ends == NULL ? FP_ENOMEM : FP_OK;
    if (status == FP_OK) {
        status =
            fp_alloc_room(a, &p->pair, &p->capacity, 1, 64, sizeof(*p->pair));
    }
    if (status == FP_OK) {
        p->pair[0] = (fp_pair){.caller = -1, .callee = -1};
        p->count = 1;
        status = sum_nodes(p, node, count);
    }
    if (status == FP_OK) {
        order_nodes(node, count, by_place);
        sum_outermost(p, node, count, by_place, ends);
    }
    fp_alloc_give(a, by_place, count, sizeof(*by_place));
    fp_alloc_give(a, ends, groups, sizeof(*ends));
    if (status != FP_OK) {
        fp_pairs_fini(p);
    }
    return status;
}

void
fp_pairs_fini(fp_pairs *p)
{
    fp_alloc_give(&p->alloc, p->pair, p->capacity, sizeof(*p->pair));
    fp_alloc_give(&p->alloc, p->slot, p->slots, sizeof(*p->slot));
    *p = (fp_pairs){.alloc = p->alloc};
}
