/* tree: the calling-context tree of one thread.
 *
 * A node is identified by (parent, key): one function, called along one path.
 * It stores exclusive time only.  The inclusive time is the sum over the
 * subtree, so a call that is still open needs no special treatment.
 *
 * Finding a child takes one comparison if the program repeats its last calls:
 * the parent remembers its last child, and each child remembers the sibling
 * that was entered after it.  Otherwise a hash table finds the child, so 10
 * 000 children are no slower than ten.
 *
 * One thread writes.  A thread that reads meanwhile must hold the lock that
 * serialises both; in the extension that is the GIL. */
#ifndef FP_CORE_TREE_H
#define FP_CORE_TREE_H

#include "core/alloc.h"
#include "core/base.h"
#include "core/key.h"

enum {
    FP_NODE_FLAT = 1, /* child of a truncated node; has no children */
    /* The bits above store a number: see waits.h. */
    FP_NODE_FLAG_BITS = 4,
};

/* 64 bytes on 64-bit machines: one cache line. */
typedef struct fp_node {
    fp_key key;
    struct fp_node *parent;     /* borrowed, as all here: the arena owns */
    struct fp_node *last_child; /* never NULL: &fp_node_none if it has none */
    struct fp_node *successor;  /* sibling entered after this one last time */
    uint64_t calls;
    uint64_t resumes;
    int64_t self_ticks;
    uint32_t index; /* in creation order; parents come first */
    uint16_t depth;
    uint16_t flags;
} fp_node;

static inline int
fp_node_is_flat(const fp_node *n)
{
    return (n->flags & FP_NODE_FLAT) != 0;
}

typedef struct fp_tree {
    fp_alloc alloc;
    fp_node **chunk; /* owned, with the nodes */
    uint32_t chunks;
    uint32_t chunk_capacity;
    uint32_t count;
    fp_node **slot; /* owned; open addressing, power of two */
    uint32_t slots;
} fp_tree;

/* Creates the root and the truncated node under it, so that there is always a
 * node to count into.  FP_ENOMEM: nothing is held. */
fp_status
fp_tree_init(fp_tree *t, const fp_alloc *a);

/* Frees all nodes. */
void
fp_tree_fini(fp_tree *t);

/* Stands for "no node", so that pointers can be followed without a test.  No
 * lookup finds its key, and it is never written to. */
extern const fp_node fp_node_none;

/* The node with [index], which must exist. */
fp_node *
fp_tree_node(const fp_tree *t, uint32_t index);

static inline fp_node *
fp_tree_root(const fp_tree *t)
{
    return t->chunk[0];
}

/* The truncated node under the root. */
static inline fp_node *
fp_tree_truncated(const fp_tree *t)
{
    return t->chunk[0] + 1;
}

/* The child of [parent] with [key]; NULL if it does not exist. */
fp_node *
fp_tree_find(const fp_tree *t, const fp_node *parent, fp_key key);

/* Adds the child [key] of [parent], which must not exist.  NULL: no memory;
 * nothing has changed. */
fp_node *
fp_tree_add(fp_tree *t, fp_node *parent, fp_key key);

/* Expect [n] as the next child of [parent]. */
static inline void
fp_tree_learn(fp_node *parent, fp_node *n)
{
    if (parent->last_child != &fp_node_none) {
        parent->last_child->successor = n;
    }
    parent->last_child = n;
}

/* The child of [parent] with [key] if it is the expected one; else NULL. */
static inline fp_node *
fp_tree_predict(fp_node *parent, fp_key key)
{
    fp_node *n = parent->last_child;
    if (FP_LIKELY(n->key == key)) {
        return n;
    }
    n = n->successor;
    if (FP_LIKELY(n->key == key)) {
        parent->last_child = n;
        return n;
    }
    return NULL;
}

/* Bytes of memory held. */
size_t
fp_tree_bytes(const fp_tree *t);

#endif
