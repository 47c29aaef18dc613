/* pairs: the nodes of a finished tree, summed per caller and callee.  A
 * function that is in its own subtree counts its inclusive time once. */
#ifndef FP_CORE_PAIRS_H
#define FP_CORE_PAIRS_H

#include "core/alloc.h"

/* One node; a node comes after its parent, node 0 is the root. */
typedef struct fp_pairs_node {
    uint32_t parent;
    int32_t group; /* its function; -1: transparent, its caller's */
    int64_t calls;
    int64_t resumes;
    int64_t self_ns;
    int64_t raw_ns;
    /* Set by fp_pairs_sum(): */
    int64_t cum_ns; /* of the subtree */
    int64_t raw_cum_ns;
    uint32_t size;  /* of the subtree, in nodes */
    uint32_t place; /* callers first: a subtree follows its node */
    uint32_t next;  /* the place of the next callee */
    uint32_t pair;  /* that gets its time */
} fp_pairs_node;

/* Activations of a pair: those that are in no other activation of ... */
typedef struct fp_pairs_outer {
    int64_t calls;
    int64_t resumes;
    int64_t cum_ns;
    int64_t raw_cum_ns;
} fp_pairs_outer;

typedef struct fp_pair {
    int32_t caller; /* -1: called from outside of all functions */
    int32_t callee;
    int64_t calls;
    int64_t resumes;
    int64_t self_ns;
    int64_t raw_ns;
    fp_pairs_outer outer; /* ... the function, */
    fp_pairs_outer more;  /* ... the pair, but in one of the function */
    uint32_t first;       /* its first node */
    uint32_t end;         /* the place at which the last of them ends */
    uint32_t nested;      /* is there one in [more]? */
} fp_pair;

/* Pair 0 has the time outside of all functions. */
typedef struct fp_pairs {
    fp_pair *pair; /* owned, in the order of their first nodes */
    uint32_t count;
    uint32_t capacity;
    uint32_t nested; /* the number of nested ones */
    uint32_t *slot;  /* owned: numbers of pairs, hashed; 0: free */
    uint32_t slots;  /* a power of two */
    fp_alloc alloc;
} fp_pairs;

/* Sums [count] nodes, at least 1, whose groups are less than [groups].  No
 * count or time is negative, and the sum of each column is an int64_t.
 * FP_ENOMEM: [p] is empty. */
fp_status
fp_pairs_sum(fp_pairs *p, const fp_alloc *a, fp_pairs_node *node,
             uint32_t count, uint32_t groups);

void
fp_pairs_fini(fp_pairs *p);

#endif
