/* nvml: NVIDIA's management library as a table of functions, found at run time.
 * Nothing is linked and no NVIDIA header is needed.  Its calls go to the kernel's
 * driver and may hang with a sick GPU: they are for a thread that nobody waits
 * for without a limit.  All of them return an nvmlReturn_t. */
#ifndef FP_GPU_NVML_H
#define FP_GPU_NVML_H

#include "gpu/library.h"

enum { /* nvmlReturn_t */
       FP_NVML_SUCCESS = 0,
       FP_NVML_INVALID_ARGUMENT = 2,
       FP_NVML_NOT_SUPPORTED = 3,
       FP_NVML_NO_PERMISSION = 4,
       FP_NVML_FUNCTION_NOT_FOUND = 13,
       FP_NVML_GPU_IS_LOST = 15,
};

/* Why a device's clock is lower than it could be (nvmlClocksEventReasons). */
enum {
    FP_NVML_GPU_IDLE = 0x01,
    FP_NVML_APPLICATION_CLOCKS = 0x02, /* somebody has set them */
    FP_NVML_SW_POWER_CAP = 0x04,
    FP_NVML_HW_SLOWDOWN = 0x08,
    FP_NVML_SYNC_BOOST = 0x10,
    FP_NVML_SW_THERMAL = 0x20,
    FP_NVML_HW_THERMAL = 0x40,
    FP_NVML_HW_POWER_BRAKE = 0x80,
};

typedef enum fp_nvml_figure {
    FP_NVML_TEMPERATURE, /* C */
    FP_NVML_SM_CLOCK,    /* MHz */
    FP_NVML_POWER,       /* mW */
    FP_NVML_REASONS,     /* bits of the enum above */
    FP_NVML_FIGURES,
} fp_nvml_figure;

typedef struct fp_nvml_temperature { /* nvmlTemperature_v1_t */
    uint32_t version;
    int32_t sensor;
    int32_t celsius;
} fp_nvml_temperature;

typedef struct fp_nvml {
    void *handle; /* never closed: the program may use it too */
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus_id, void **device);
    /* NULL where this release has none */
    int (*temperature)(void *device, int sensor, uint32_t *celsius);
    int (*temperature_v)(void *device, fp_nvml_temperature *t);
    int (*clock)(void *device, int type, uint32_t *mhz);
    int (*power)(void *device, uint32_t *mw);
    int (*event_reasons)(void *device, unsigned long long *bits);
    int (*throttle_reasons)(void *device, unsigned long long *bits);
    const char *(*error_string)(int result);
} fp_nvml;

/* Opens the library at [path] (see fp_library_open); makes no call of it.  0, or
 * -1 with [why]. */
int
fp_nvml_open(fp_nvml *n, const char *path, fp_why *why);

/* One figure of a device.  FP_NVML_FUNCTION_NOT_FOUND where the library lacks
 * the function; [value] holds only with FP_NVML_SUCCESS. */
int
fp_nvml_ask(const fp_nvml *n, void *device, fp_nvml_figure figure,
            uint64_t *value);

/* Is that answer for good?  Others may be better the next time. */
int
fp_nvml_is_final(int result);

/* "code (text)" of a result, for a sentence. */
void
fp_nvml_describe(const fp_nvml *n, int result, char *text, size_t size);

#endif
