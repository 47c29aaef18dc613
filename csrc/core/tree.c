#include "core/tree.h"

#include <string.h>

/* Chunk i holds FIRST << i nodes up to 1024, then 1024 each: an idle thread
 * takes 4 KiB, and a large tree wastes at most 64 KiB. */
enum { FIRST_BITS = 6, FULL_BITS = 10, GROWING = FULL_BITS - FIRST_BITS };
enum { GROWING_TOTAL = (1 << FULL_BITS) - (1 << FIRST_BITS) };
enum { FIRST_SLOTS = 64 };

/* No key has these low bits, so no lookup finds this node. */
const fp_node fp_node_none = {
    .key = (fp_key)FP_TAG_MASK,
    .parent = (fp_node *)&fp_node_none,
    .last_child = (fp_node *)&fp_node_none,
    .successor = (fp_node *)&fp_node_none,
};

static uint32_t
chunk_size(uint32_t chunk)
{
    return chunk < GROWING ? 1u << (FIRST_BITS + chunk) : 1u << FULL_BITS;
}

fp_node *
fp_tree_node(const fp_tree *t, uint32_t index)
{
    if (index < GROWING_TOTAL) {
        /* Chunk c begins at FIRST * (2^c - 1). */
        uint32_t c = 31 - (uint32_t)__builtin_clz((index >> FIRST_BITS) + 1);
        return t->chunk[c] + (index - (((1u << c) - 1) << FIRST_BITS));
    }
    uint32_t rest = index - GROWING_TOTAL;
    return t->chunk[GROWING + (rest >> FULL_BITS)] +
           (rest & ((1u << FULL_BITS) - 1));
}

static uint32_t
hash(const fp_node *parent, fp_key key)
{
    uint64_t h = ((uint64_t)(uintptr_t)parent >> 6) * 0x9E3779B97F4A7C15u;
    h = (h ^ (key >> 3) ^ (key << 61)) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h >> 32);
}

fp_node *
fp_tree_find(const fp_tree *t, const fp_node *parent, fp_key key)
{
    uint32_t mask = t->slots - 1;
    for (uint32_t i = hash(parent, key) & mask;; i = (i + 1) & mask) {
        fp_node *n = t->slot[i];
        if (n == NULL || (n->key == key && n->parent == parent)) {
            return n;
        }
    }
}

static void
put(fp_node **slot, uint32_t slots, fp_node *n)
{
    uint32_t mask = slots - 1;
    uint32_t i = hash(n->parent, n->key) & mask;
    while (slot[i] != NULL) {
        i = (i + 1) & mask;
    }
    slot[i] = n;
}

static fp_status
grow_slots(fp_tree *t)
{
    uint32_t slots = t->slots * 2;
    fp_node **slot = fp_alloc_zeroed(&t->alloc, slots, sizeof(*slot));
    if (slot == NULL) {
        return FP_ENOMEM;
    }
    for (uint32_t i = 0; i < t->slots; i++) {
        if (t->slot[i] != NULL) {
            put(slot, slots, t->slot[i]);
        }
    }
    fp_alloc_give(&t->alloc, t->slot, t->slots, sizeof(*t->slot));
    t->slot = slot;
    t->slots = slots;
    return FP_OK;
}

/* Adds a chunk, and room for its pointer. */
static fp_status
grow_arena(fp_tree *t)
{
    if (fp_alloc_room(&t->alloc, &t->chunk, &t->chunk_capacity, t->chunks + 1,
                      8, sizeof(*t->chunk)) != FP_OK) {
        return FP_ENOMEM;
    }
    fp_node *nodes =
        fp_alloc_zeroed(&t->alloc, chunk_size(t->chunks), sizeof(fp_node));
    if (nodes == NULL) {
        return FP_ENOMEM;
    }
    t->chunk[t->chunks++] = nodes;
    return FP_OK;
}

static uint32_t
arena_capacity(const fp_tree *t)
{
    if (t->chunks <= GROWING) {
        return ((1u << t->chunks) - 1) << FIRST_BITS;
    }
    return GROWING_TOTAL + ((t->chunks - GROWING) << FULL_BITS);
}

fp_node *
fp_tree_add(fp_tree *t, fp_node *parent, fp_key key)
{
    /* At most two thirds full, which keeps probes short. */
    if (t->count + 1 > t->slots - t->slots / 3 && grow_slots(t) != FP_OK) {
        return NULL;
    }
    if (t->count == arena_capacity(t) && grow_arena(t) != FP_OK) {
        return NULL;
    }
    fp_node *n = fp_tree_node(t, t->count);
    n->key = key;
    n->parent = parent;
    n->last_child = (fp_node *)&fp_node_none;
    n->successor = (fp_node *)&fp_node_none;
    n->index = t->count++;
    n->depth = parent == NULL ? 0 : (uint16_t)(parent->depth + 1);
    put(t->slot, t->slots, n);
    return n;
}

fp_status
fp_tree_init(fp_tree *t, const fp_alloc *a)
{
    memset(t, 0, sizeof(*t));
    t->alloc = *a;
    t->slots = FIRST_SLOTS;
    t->slot = fp_alloc_zeroed(a, t->slots, sizeof(*t->slot));
    if (t->slot == NULL || grow_arena(t) != FP_OK) {
        fp_tree_fini(t);
        return FP_ENOMEM;
    }
    /* Both fit in the first chunk, so neither can fail. */
    fp_node *root = fp_tree_add(t, NULL, FP_KEY_ROOT);
    fp_tree_add(t, root, FP_KEY_TRUNCATED)->flags = FP_NODE_FLAT;
    return FP_OK;
}

void
fp_tree_fini(fp_tree *t)
{
    for (uint32_t i = 0; i < t->chunks; i++) {
        fp_alloc_give(&t->alloc, t->chunk[i], chunk_size(i), sizeof(fp_node));
    }
    fp_alloc_give(&t->alloc, t->chunk, t->chunk_capacity, sizeof(*t->chunk));
    fp_alloc_give(&t->alloc, t->slot, t->slots, sizeof(*t->slot));
    memset(t, 0, sizeof(*t));
}

size_t
fp_tree_bytes(const fp_tree *t)
{
    return arena_capacity(t) * sizeof(fp_node) +
           t->chunk_capacity * sizeof(*t->chunk) + t->slots * sizeof(*t->slot);
}
