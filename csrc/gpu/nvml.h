/* nvml: NVIDIA's management library as a table of functions, found at run time
 * without linking and without NVIDIA's headers.  Its calls enter the kernel's
 * driver and may hang with a broken GPU, so only a thread that others wait for
 * with a limit may make them.  All functions return an nvmlReturn_t. */
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

/* Why a device's clock is reduced (nvmlClocksEventReasons). */
enum {
    FP_NVML_GPU_IDLE = 0x01,
    FP_NVML_APPLICATION_CLOCKS = 0x02, /* set by a user */
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
    void *handle; /* never closed: the program may use it, too */
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus_id, void **device);
    /* NULL if the release lacks it */
    int (*temperature)(void *device, int sensor, uint32_t *celsius);
    int (*temperature_v)(void *device, fp_nvml_temperature *t);
    int (*clock)(void *device, int type, uint32_t *mhz);
    int (*power)(void *device, uint32_t *mw);
    int (*event_reasons)(void *device, unsigned long long *bits);
    int (*throttle_reasons)(void *device, unsigned long long *bits);
    const char *(*error_string)(int result);
} fp_nvml;

/* Opens the library at [path] (see fp_library_open) without calling it.
 * Returns 0, or -1 with [why]. */
int
fp_nvml_open(fp_nvml *n, const char *path, fp_why *why);

/* Reads one figure of a device into [value].  Returns an nvmlReturn_t:
 * FP_NVML_FUNCTION_NOT_FOUND if the library lacks the function; [value] is
 * valid with FP_NVML_SUCCESS only. */
int
fp_nvml_ask(const fp_nvml *n, void *device, fp_nvml_figure figure,
            uint64_t *value);

/* Is the error permanent?  After any other a later call may succeed. */
int
fp_nvml_is_final(int result);

/* Writes "code (text)" of a result to [text]. */
void
fp_nvml_describe(const fp_nvml *n, int result, char *text, size_t size);

#endif
