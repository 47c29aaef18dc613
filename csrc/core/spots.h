/* spots: counts at which instructions of which functions samples found a
 * thread.  A sample is the calls that were open at one moment.  Whoever adds
 * samples and whoever reads the counts take turns. */
#ifndef FP_CORE_SPOTS_H
#define FP_CORE_SPOTS_H

#include "core/alloc.h"

/* Numbers of the caller: of a function and of an instruction of it. */
typedef struct fp_spot {
    uint64_t code; /* not 0 */
    uint64_t at;
    uint64_t count;
} fp_spot;

typedef struct fp_spots {
    fp_spot *spot; /* owned; hashed by (code, at); code 0: free */
    uint32_t capacity;
    uint32_t used;
    uint64_t samples;
    uint64_t lost; /* spots without room in the table */
    fp_alloc alloc;
} fp_spots;

/* [capacity] is a power of two; three quarters of it can be used.  FP_ENOMEM:
 * [s] is empty, and takes nothing. */
fp_status
fp_spots_init(fp_spots *s, const fp_alloc *a, uint32_t capacity);

void
fp_spots_fini(fp_spots *s);

/* Adds one sample: the open calls, innermost first.  A function that is open
 * more than once counts at its innermost call only, so that its counts add up
 * to the samples that found it.  Takes no memory. */
void
fp_spots_add(fp_spots *s, const fp_spot *open, uint32_t calls);

/* Whether [need] bytes from [at] on are among the [size] bytes from [start] on.
 * [at] may be any number: what a sample reads may be no address. */
static inline int
fp_range_holds(uintptr_t start, size_t size, uintptr_t at, size_t need)
{
    return size >= need && at >= start && at - start <= size - need;
}

#endif
