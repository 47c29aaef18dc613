/* fake_cuda: a libcuda.so.1 with the functions that fastprof calls.
 *
 * Environment: FAKE_CUDA_INIT (result of cuInit), FAKE_CUDA_DEVICES (1),
 * FAKE_CUDA_VERSION (13000), FAKE_CUDA_READY (1: the program seems to have
 * initialised CUDA already), FAKE_CUDA_FIRST (0: number of the machine's
 * device that is this process's first, like CUDA_VISIBLE_DEVICES). */
#define FAKE_EXPORT __attribute__((visibility("default")))

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
};

/* The process that called cuInit: CUDA does not survive a fork. */
static _Atomic int initialised_in;
static _Atomic int init_calls;
static _Atomic int calls;
static char context;

static int
setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

FAKE_EXPORT int
fake_cuda_is_initialised(void)
{
    return atomic_load(&initialised_in) == (int)getpid();
}

/* Acts as if the program had used CUDA. */
FAKE_EXPORT void
fake_cuda_program_init(void)
{
    atomic_store(&initialised_in, (int)getpid());
}

FAKE_EXPORT void
fake_cuda_reset(void)
{
    atomic_store(&initialised_in, 0);
    atomic_store(&init_calls, 0);
    atomic_store(&calls, 0);
    if (setting("FAKE_CUDA_READY", 0)) {
        fake_cuda_program_init();
    }
}

__attribute__((constructor)) static void
at_load(void)
{
    fake_cuda_reset();
}

/* Number of the client's calls of cuInit, and of all functions. */
FAKE_EXPORT int
fake_cuda_init_calls(void)
{
    return atomic_load(&init_calls);
}

FAKE_EXPORT int
fake_cuda_calls(void)
{
    return atomic_load(&calls);
}

static int
check(void)
{
    atomic_fetch_add(&calls, 1);
    return fake_cuda_is_initialised() ? CUDA_OK : CUDA_NOT_INITIALIZED;
}

static int
check_device(int device)
{
    int result = check();
    if (result == CUDA_OK &&
        (device < 0 || device >= setting("FAKE_CUDA_DEVICES", 1))) {
        result = CUDA_INVALID_DEVICE;
    }
    return result;
}

FAKE_EXPORT int
cuInit(unsigned int flags)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&init_calls, 1);
    int result =
        flags != 0 ? CUDA_INVALID_VALUE : setting("FAKE_CUDA_INIT", CUDA_OK);
    if (result == CUDA_OK) {
        fake_cuda_program_init();
    }
    return result;
}

/* Only this function works before cuInit, as in the real driver. */
FAKE_EXPORT int
cuDriverGetVersion(int *version)
{
    atomic_fetch_add(&calls, 1);
    *version = setting("FAKE_CUDA_VERSION", 13000);
    return CUDA_OK;
}

FAKE_EXPORT int
cuDeviceGetCount(int *count)
{
    int result = check();
    if (result == CUDA_OK) {
        *count = setting("FAKE_CUDA_DEVICES", 1);
    }
    return result;
}

FAKE_EXPORT int
cuDeviceGet(int *device, int ordinal)
{
    int result = check_device(ordinal);
    if (result == CUDA_OK) {
        *device = ordinal;
    }
    return result;
}

FAKE_EXPORT int
cuDeviceGetPCIBusId(char *id, int length, int device)
{
    int result = check_device(device);
    if (result == CUDA_OK) {
        int number = device + setting("FAKE_CUDA_FIRST", 0);
        snprintf(id, (size_t)length, "0000:%02X:00.0", 0x10 + number);
    }
    return result;
}

FAKE_EXPORT int
cuDeviceGetName(char *name, int length, int device)
{
    int result = check_device(device);
    if (result == CUDA_OK) {
        snprintf(name, (size_t)length, "Fake H200 %d", device);
    }
    return result;
}

FAKE_EXPORT int
cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    int result = check_device(device);
    if (result == CUDA_OK) {
        *bytes = (size_t)139 << 30;
    }
    return result;
}

FAKE_EXPORT int
cuDeviceGetAttribute(int *value, int attribute, int device)
{
    static const struct {
        int attribute; /* CUdevice_attribute */
        int value;
    } known[] = {
        {1, 1024},                    /* threads per block */
        {8, 49152},                   /* shared bytes per block */
        {10, 32},                     /* warp size */
        {12, 65536},                  /* registers per block */
        {13, 1980000},                /* kHz */
        {16, 132},                    /* multiprocessors */
        {36, 3201000},                /* memory kHz */
        {37, 6144},                   /* memory bus bits */
        {38, 62914560},               /* L2 bytes */
        {39, 2048},                   /* threads per multiprocessor */
        {75, 9},                      /* compute capability */
        {76, 0},        {81, 233472}, /* shared bytes per multiprocessor */
        {82, 65536},                  /* registers per multiprocessor */
        {97, 232448},                 /* shared bytes per block, on request */
        {106, 32},                    /* blocks per multiprocessor */
        {111, 1024}, /* shared bytes that the system keeps per block */
    };
    int result = check_device(device);
    if (result != CUDA_OK) {
        return result;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].attribute == attribute) {
            *value = known[i].value;
            return CUDA_OK;
        }
    }
    return CUDA_INVALID_VALUE;
}

FAKE_EXPORT int
cuCtxGetCurrent(void **current)
{
    int result = check();
    if (result == CUDA_OK) {
        *current = &context;
    }
    return result;
}

FAKE_EXPORT int
cuCtxGetDevice(int *device)
{
    int result = check();
    if (result == CUDA_OK) {
        *device = 0;
    }
    return result;
}
