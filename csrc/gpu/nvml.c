#include "gpu/nvml.h"

#include <stdio.h>

enum { SENSOR_GPU = 0, CLOCK_SM = 1 };

#define NEEDED(name, field) {name, offsetof(fp_nvml, field), 1}
#define WANTED(name, field) {name, offsetof(fp_nvml, field), 0}

static const fp_symbol symbols[] = {
    NEEDED("nvmlInit_v2", init),
    NEEDED("nvmlShutdown", shutdown),
    NEEDED("nvmlDeviceGetHandleByPciBusId_v2", find),
    WANTED("nvmlDeviceGetTemperature", temperature),
    WANTED("nvmlDeviceGetTemperatureV", temperature_v),
    WANTED("nvmlDeviceGetClockInfo", clock),
    WANTED("nvmlDeviceGetPowerUsage", power),
    WANTED("nvmlDeviceGetCurrentClocksEventReasons", event_reasons),
    WANTED("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons),
    WANTED("nvmlErrorString", error_string),
};

int
fp_nvml_open(fp_nvml *n, const char *path, fp_why *why)
{
    *n = (fp_nvml){0};
    why->text[0] = '\0';
    fp_why reason;
    n->handle = fp_library_open(path, &reason);
    if (n->handle == NULL) {
        fp_why_set(why, "NVML %.300s", reason.text);
        return -1;
    }
    const char *missing = fp_library_find(
        n->handle, symbols, sizeof(symbols) / sizeof(symbols[0]), n);
    if (missing != NULL) {
        fp_why_set(why, "%.200s has no function %s: it is not NVML", path,
                   missing);
        return -1;
    }
    return 0;
}

static int
ask_temperature(const fp_nvml *n, void *device, uint64_t *value)
{
    /* The first function is deprecated; a release without it has the
     * second. */
    if (n->temperature != NULL) {
        uint32_t celsius = 0;
        int result = n->temperature(device, SENSOR_GPU, &celsius);
        *value = celsius;
        return result;
    }
    if (n->temperature_v == NULL) {
        return FP_NVML_FUNCTION_NOT_FOUND;
    }
    fp_nvml_temperature t = {(uint32_t)sizeof(t) | 1u << 24, SENSOR_GPU, 0};
    int result = n->temperature_v(device, &t);
    *value = t.celsius > 0 ? (uint64_t)t.celsius : 0;
    return result;
}

static int
ask_clock(const fp_nvml *n, void *device, uint64_t *value)
{
    if (n->clock == NULL) {
        return FP_NVML_FUNCTION_NOT_FOUND;
    }
    uint32_t mhz = 0;
    int result = n->clock(device, CLOCK_SM, &mhz);
    *value = mhz;
    return result;
}

static int
ask_power(const fp_nvml *n, void *device, uint64_t *value)
{
    if (n->power == NULL) {
        return FP_NVML_FUNCTION_NOT_FOUND;
    }
    uint32_t mw = 0;
    int result = n->power(device, &mw);
    *value = mw;
    return result;
}

static int
ask_reasons(const fp_nvml *n, void *device, uint64_t *value)
{
    int (*f)(void *, unsigned long long *) =
        n->event_reasons != NULL ? n->event_reasons : n->throttle_reasons;
    unsigned long long bits = 0;
    int result = f != NULL ? f(device, &bits) : FP_NVML_FUNCTION_NOT_FOUND;
    *value = bits;
    return result;
}

int
fp_nvml_ask(const fp_nvml *n, void *device, fp_nvml_figure figure,
            uint64_t *value)
{
    *value = 0;
    switch (figure) {
    case FP_NVML_TEMPERATURE:
        return ask_temperature(n, device, value);
    case FP_NVML_SM_CLOCK:
        return ask_clock(n, device, value);
    case FP_NVML_POWER:
        return ask_power(n, device, value);
    case FP_NVML_REASONS:
        return ask_reasons(n, device, value);
    case FP_NVML_FIGURES:
        break;
    }
    return FP_NVML_INVALID_ARGUMENT;
}

int
fp_nvml_is_final(int result)
{
    return result == FP_NVML_INVALID_ARGUMENT ||
           result == FP_NVML_NOT_SUPPORTED ||
           result == FP_NVML_NO_PERMISSION ||
           result == FP_NVML_FUNCTION_NOT_FOUND ||
           result == FP_NVML_GPU_IS_LOST;
}

void
fp_nvml_describe(const fp_nvml *n, int result, char *text, size_t size)
{
    const char *name =
        n->error_string != NULL ? n->error_string(result) : NULL;
    if (name != NULL) {
        (void)snprintf(text, size, "%d (%.80s)", result, name);
    }
    else {
        (void)snprintf(text, size, "%d", result);
    }
}
