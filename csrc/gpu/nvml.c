#include "gpu/nvml.h"

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

static const fp_library library = {"NVML ", "NVML", symbols,
                                   sizeof(symbols) / sizeof(symbols[0])};

int
fp_nvml_open(fp_nvml *n, const char *path, fp_why *why)
{
    *n = (fp_nvml){0};
    why->text[0] = '\0';
    n->handle = fp_library_load(&library, path, n, why);
    return n->handle != NULL ? 0 : -1;
}

int
fp_nvml_ask(const fp_nvml *n, void *device, fp_nvml_figure figure,
            uint64_t *value)
{
    int result = FP_NVML_FUNCTION_NOT_FOUND;
    uint32_t number = 0;
    unsigned long long bits = 0;
    fp_nvml_temperature t = {(uint32_t)sizeof(t) | 1u << 24, SENSOR_GPU, 0};
    switch (figure) {
    case FP_NVML_TEMPERATURE:
        /* The first function is deprecated; a release without it has the
         * second. */
        if (n->temperature != NULL) {
            result = n->temperature(device, SENSOR_GPU, &number);
        }
        else if (n->temperature_v != NULL) {
            result = n->temperature_v(device, &t);
            number = t.celsius > 0 ? (uint32_t)t.celsius : 0;
        }
        break;
    case FP_NVML_SM_CLOCK:
        if (n->clock != NULL) {
            result = n->clock(device, CLOCK_SM, &number);
        }
        break;
    case FP_NVML_POWER:
        if (n->power != NULL) {
            result = n->power(device, &number);
        }
        break;
    case FP_NVML_REASONS:
        if (n->event_reasons != NULL) {
            result = n->event_reasons(device, &bits);
        }
        else if (n->throttle_reasons != NULL) {
            result = n->throttle_reasons(device, &bits);
        }
        break;
    case FP_NVML_FIGURES:
        result = FP_NVML_INVALID_ARGUMENT;
    }
    *value = number | bits;
    return result;
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
    fp_result_describe(
        result, n->error_string ? n->error_string(result) : NULL, text, size);
}
