#include "gpu/cuda_driver.h"

#include <unistd.h>

enum { /* CUresult */
       CUDA_SUCCESS = 0,
       CUDA_NOT_INITIALIZED = 3,
};

enum { /* CUdevice_attribute */
       WARP_SIZE = 10,
       MULTIPROCESSORS = 16,
       THREADS_PER_MULTIPROCESSOR = 39,
       CAPABILITY_MAJOR = 75,
       CAPABILITY_MINOR = 76,
       SHARED_BYTES_PER_MULTIPROCESSOR = 81,
       REGISTERS_PER_MULTIPROCESSOR = 82,
       BLOCKS_PER_MULTIPROCESSOR = 106,
};

typedef struct calls {
    int (*init)(unsigned int flags);
    int (*get_version)(int *version);
    int (*get_count)(int *count);
    int (*get_device)(int *device, int ordinal);
    int (*get_name)(char *name, int size, int device);
    int (*get_memory)(size_t *bytes, int device);
    int (*get_attribute)(int *value, int attribute, int device);
    int (*get_bus_id)(char *id, int size, int device);      /* or NULL */
    int (*get_error_string)(int result, const char **text); /* or NULL */
} calls;

static const fp_symbol symbols[] = {
    {"cuInit", offsetof(calls, init), 1},
    {"cuDriverGetVersion", offsetof(calls, get_version), 1},
    {"cuDeviceGetCount", offsetof(calls, get_count), 1},
    {"cuDeviceGet", offsetof(calls, get_device), 1},
    {"cuDeviceGetName", offsetof(calls, get_name), 1},
    {"cuDeviceTotalMem_v2", offsetof(calls, get_memory), 1},
    {"cuDeviceGetAttribute", offsetof(calls, get_attribute), 1},
    {"cuDeviceGetPCIBusId", offsetof(calls, get_bus_id), 0},
    {"cuGetErrorString", offsetof(calls, get_error_string), 0},
};

static const fp_library library = {"the CUDA driver ", "a CUDA driver",
                                   symbols,
                                   sizeof(symbols) / sizeof(symbols[0])};

static fp_driver_state
failed(const calls *c, const char *call, int result, fp_why *why)
{
    const char *text = NULL;
    if (c->get_error_string == NULL ||
        c->get_error_string(result, &text) != CUDA_SUCCESS || text == NULL) {
        text = "no description";
    }
    fp_why_set(why,
               "the CUDA driver does not work: %s failed with %d (%.160s)",
               call, result, text);
    return FP_DRIVER_NONE;
}

static void
describe(const calls *c, int ordinal, fp_gpu_device *d)
{
    int device = 0;
    size_t bytes = 0;
    if (c->get_device(&device, ordinal) != CUDA_SUCCESS) {
        return;
    }
    (void)c->get_name(d->name, FP_GPU_NAME, device);
    d->name[FP_GPU_NAME - 1] = '\0';
    if (c->get_bus_id == NULL ||
        c->get_bus_id(d->bus_id, FP_GPU_BUS_ID, device) != CUDA_SUCCESS) {
        d->bus_id[0] = '\0';
    }
    d->bus_id[FP_GPU_BUS_ID - 1] = '\0';
    if (c->get_memory(&bytes, device) == CUDA_SUCCESS) {
        d->memory_bytes = bytes;
    }
    const struct {
        int attribute;
        int32_t *value;
    } wanted[] = {
        {CAPABILITY_MAJOR, &d->capability_major},
        {CAPABILITY_MINOR, &d->capability_minor},
        {MULTIPROCESSORS, &d->multiprocessors},
        {THREADS_PER_MULTIPROCESSOR, &d->threads_per_multiprocessor},
        {BLOCKS_PER_MULTIPROCESSOR, &d->blocks_per_multiprocessor},
        {REGISTERS_PER_MULTIPROCESSOR, &d->registers_per_multiprocessor},
        {SHARED_BYTES_PER_MULTIPROCESSOR, &d->shared_bytes_per_multiprocessor},
        {WARP_SIZE, &d->warp_size},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        int value = 0; /* an old driver may not know the attribute */
        if (c->get_attribute(&value, wanted[i].attribute, device) ==
            CUDA_SUCCESS) {
            *wanted[i].value = value;
        }
    }
}

/* Without its device file a driver fails slowly, and CUPTI may crash with
 * it. */
static int
device_file_exists(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || /* Linux */
           access("/dev/dxg", F_OK) == 0;         /* Linux under Windows */
}

static int
load(fp_cuda_driver *d, calls *c, const char *path, fp_why *why)
{
    if (path == NULL && !device_file_exists()) {
        fp_why_set(why, "no NVIDIA device in this machine: neither "
                        "/dev/nvidiactl nor /dev/dxg exists");
        return -1;
    }
    if (path != NULL && path[0] != '/') {
        fp_why_set(why,
                   "the CUDA driver \"%.200s\" is not loaded: give an "
                   "absolute path",
                   path);
        return -1;
    }
    const char *name = path != NULL ? path : "libcuda.so.1";
    d->handle = fp_library_load(&library, name, c, why);
    return d->handle != NULL ? 0 : -1;
}

fp_driver_state
fp_cuda_driver_open(fp_cuda_driver *d, const char *path, int initialise,
                    fp_why *why)
{
    calls c = {0};
    *d = (fp_cuda_driver){0};
    why->text[0] = '\0';
    if (load(d, &c, path, why) < 0) {
        return FP_DRIVER_NONE;
    }
    (void)c.get_version(&d->version);
    int count = 0;
    int result = c.get_count(&count);
    if (result == CUDA_NOT_INITIALIZED) {
        if (!initialise) {
            fp_why_set(why, "the program has not initialised CUDA yet");
            return FP_DRIVER_WAITING;
        }
        result = c.init(0);
        if (result != CUDA_SUCCESS) {
            return failed(&c, "cuInit", result, why);
        }
        result = c.get_count(&count);
    }
    if (result != CUDA_SUCCESS) {
        return failed(&c, "cuDeviceGetCount", result, why);
    }
    if (count <= 0) {
        fp_why_set(why, "the CUDA driver reports no device to this process");
        return FP_DRIVER_NONE;
    }
    d->devices = count < FP_GPU_DEVICES ? count : FP_GPU_DEVICES;
    for (int i = 0; i < d->devices; i++) {
        describe(&c, i, &d->device[i]);
    }
    return FP_DRIVER_READY;
}
