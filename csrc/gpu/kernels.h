/* kernels: one row per kernel and launch shape: name, device, threads per
 * block, registers, shared memory.  The grid, which varies with the data, is
 * summed up.  Names are copied: CUPTI may free its own. */
#ifndef FP_GPU_KERNELS_H
#define FP_GPU_KERNELS_H

#include "core/alloc.h"
#include "gpu/communication.h"
#include "core/base.h"

enum {
    FP_KERNELS_MAX = 1 << 14,
    FP_KERNEL_NAME_MAX = 4096,
    FP_KERNEL_NAMES_BYTES = 1 << 24,
    FP_KERNEL_CACHE = 1 << 10,
    FP_SMALL_KERNEL_NS = 100000,
};

typedef struct fp_kernel_shape {
    uint32_t device;
    int32_t block[3];
    uint32_t registers;
    uint32_t static_shared;
    uint32_t dynamic_shared;
} fp_kernel_shape;

typedef struct fp_kernel {
    char *name;          /* owned; mangled */
    uint32_t name_bytes; /* including the final zero */
    uint32_t hash;
    fp_kernel_shape shape;
    int32_t grid[3]; /* of the last launch */
    uint8_t grid_varied;
    uint8_t communicates; /* an fp_communication */
    uint64_t count;
    int64_t sum_ns;
    int64_t min_ns;
    int64_t max_ns;
    uint64_t small_count;
    int64_t small_ns;
    double blocks_ns; /* sum of blocks x duration */
} fp_kernel;

typedef struct fp_kernel_memo {
    const char *name; /* CUPTI's; compared, never kept */
    uint32_t kernel;  /* index + 1; 0: empty */
    uint32_t buffer;  /* in which its text was last compared */
} fp_kernel_memo;

typedef struct fp_kernels {
    fp_alloc alloc;
    fp_kernel *row; /* owned, with the names */
    uint32_t count;
    uint32_t capacity;
    uint32_t *index; /* owned; row + 1, open addressing */
    uint32_t index_capacity;
    size_t name_bytes;
    uint64_t dropped; /* kernels that are in no row */
    uint32_t buffer;  /* number of the current buffer; 0: none */
    fp_kernel_memo memo[FP_KERNEL_CACHE];
} fp_kernels;

void
fp_kernels_init(fp_kernels *k, const fp_alloc *a);

void
fp_kernels_fini(fp_kernels *k);

/* The next records come from another buffer: compare names again.  Within one
 * buffer an address has one name, so one comparison is enough. */
void
fp_kernels_begin_buffer(fp_kernels *k);

/* Returns the row of a kernel, added if it is new.  -1: too many kernels or no
 * memory (counted).  [name] may be NULL. */
int32_t
fp_kernels_find(fp_kernels *k, const char *name, const fp_kernel_shape *shape);

/* Adds one launch of [ns] to a row. */
void
fp_kernels_count(fp_kernel *row, const int32_t grid[3], int64_t ns);

#endif
