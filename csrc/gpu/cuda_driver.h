/* cuda_driver: finds out whether this process has a working CUDA driver, and
 * describes its devices.  Call it before the first CUPTI call: without a
 * driver CUPTI fails slowly or crashes. */
#ifndef FP_GPU_CUDA_DRIVER_H
#define FP_GPU_CUDA_DRIVER_H

#include "gpu/library.h"

enum { FP_GPU_DEVICES = 16, FP_GPU_NAME = 64, FP_GPU_BUS_ID = 32 };

typedef struct fp_gpu_device {
    char name[FP_GPU_NAME];
    char bus_id[FP_GPU_BUS_ID]; /* PCI address; empty: unknown */
    uint64_t memory_bytes;
    int32_t capability_major;
    int32_t capability_minor;
    int32_t multiprocessors;
    int32_t threads_per_multiprocessor;
    int32_t blocks_per_multiprocessor;
    int32_t registers_per_multiprocessor;
    int32_t shared_bytes_per_multiprocessor;
    int32_t warp_size;
} fp_gpu_device;

typedef struct fp_cuda_driver {
    void *handle;    /* never closed */
    int32_t version; /* 12080 is CUDA 12.8 */
    int32_t devices; /* described; at most FP_GPU_DEVICES */
    fp_gpu_device device[FP_GPU_DEVICES];
} fp_cuda_driver;

typedef enum fp_driver_state {
    FP_DRIVER_READY,   /* initialised; [d] is filled */
    FP_DRIVER_WAITING, /* the program has not initialised it yet */
    FP_DRIVER_NONE,    /* missing or broken; see [why] */
} fp_driver_state;

/* Opens the driver at [path], an absolute path.  If [path] is NULL, the loader
 * looks for libcuda.so.1, and only if a device file exists.  With [initialise]
 * it calls cuInit(0) if the program has not; avoid this, because a process
 * that forks after cuInit cannot use CUDA in its children. */
fp_driver_state
fp_cuda_driver_open(fp_cuda_driver *d, const char *path, int initialise,
                    fp_why *why);

#endif
