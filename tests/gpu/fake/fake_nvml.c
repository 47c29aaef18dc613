/* fake_nvml: a libnvidia-ml.so.1 with the functions that fastprof calls.
 *
 * Devices have the bus ids of fake_cuda.  A test sets their values: a script
 * per device and figure.  Each call takes the script's next value, and the
 * last value repeats; NOT_SUPPORTED (-1) is also a value.
 *
 * Environment of a process that loads the library:
 *   FAKE_NVML_SET   figure=value,... of every device: temperature (C), clock
 *                   (MHz), power (mW), reasons (bits)
 *   FAKE_NVML_FAIL  function:code,...
 *   FAKE_NVML_HANG  function */
#define FAKE_EXPORT __attribute__((visibility("default")))

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    DEVICES = 16,
    SCRIPT = 64,
};

typedef enum figure { TEMPERATURE, CLOCK, POWER, REASONS, FIGURES } figure;

static const char *const figure_names[FIGURES] = {"temperature", "clock",
                                                  "power", "reasons"};

typedef enum function {
    INIT,
    SHUTDOWN,
    FIND,
    GET_TEMPERATURE,
    GET_TEMPERATURE_V,
    GET_CLOCK,
    GET_POWER,
    GET_EVENT_REASONS,
    GET_THROTTLE_REASONS,
    FUNCTIONS,
} function;

static const char *const function_names[FUNCTIONS] = {
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
};

typedef struct script {
    int64_t value[SCRIPT];
    int values;
    int at;
} script;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the scripts */
static script scripts[DEVICES][FIGURES];
static _Atomic int initialised; /* counts, as NVML does */
static _Atomic int hanging;     /* a function + 1 */
static _Atomic int hung;        /* calls that are inside it */
static _Atomic int code[FUNCTIONS];
static _Atomic int calls[FUNCTIONS];
static _Atomic int main_calls; /* on the program's main thread */
static char devices[DEVICES];  /* a handle is an address in here */

static int
function_of(const char *name)
{
    for (int f = 0; f < FUNCTIONS; f++) {
        if (strcmp(function_names[f], name) == 0) {
            return f;
        }
    }
    return -1;
}

/* ---- control by tests; -1: no such name ---- */

FAKE_EXPORT int
fake_nvml_script(const char *name, int device, const int64_t *values, int n)
{
    for (int f = 0; f < FIGURES; f++) {
        if (strcmp(figure_names[f], name) == 0 && n > 0 && n <= SCRIPT) {
            pthread_mutex_lock(&lock);
            script *s = &scripts[device][f];
            memcpy(s->value, values, (size_t)n * sizeof(*values));
            s->values = n;
            s->at = 0;
            pthread_mutex_unlock(&lock);
            return 0;
        }
    }
    return -1;
}

FAKE_EXPORT int
fake_nvml_fail(const char *name, int result)
{
    int f = function_of(name);
    if (f >= 0) {
        atomic_store(&code[f], result);
    }
    return f < 0 ? -1 : 0;
}

/* NULL: no function hangs any more. */
FAKE_EXPORT int
fake_nvml_hang(const char *name)
{
    int f = name != NULL ? function_of(name) : -1;
    atomic_store(&hanging, f + 1);
    return name != NULL && f < 0 ? -1 : 0;
}

FAKE_EXPORT int
fake_nvml_hung(void)
{
    return atomic_load(&hung);
}

/* NULL: of all functions. */
FAKE_EXPORT int
fake_nvml_calls(const char *name)
{
    if (name == NULL) {
        int sum = 0;
        for (int f = 0; f < FUNCTIONS; f++) {
            sum += atomic_load(&calls[f]);
        }
        return sum;
    }
    int f = function_of(name);
    return f < 0 ? -1 : atomic_load(&calls[f]);
}

FAKE_EXPORT int
fake_nvml_main_calls(void)
{
    return atomic_load(&main_calls);
}

FAKE_EXPORT int
fake_nvml_is_initialised(void)
{
    return atomic_load(&initialised);
}

/* ---- the environment ---- */

/* A mistake in a test's environment must not look like success. */
static void
each_item(const char *variable, char between,
          int (*use)(const char *, int64_t))
{
    const char *text = getenv(variable);
    char *copy = text != NULL ? strdup(text) : NULL, *rest = copy;
    for (char *item; rest != NULL && (item = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(item, between);
        if (value == NULL) {
            fprintf(stderr, "%s: cannot understand '%s'\n", variable, text);
            abort();
        }
        *value++ = 0;
        if (use(item, strtoll(value, NULL, 0)) != 0) {
            fprintf(stderr, "%s: cannot understand '%s'\n", variable, text);
            abort();
        }
    }
    free(copy);
}

static int
set_all(const char *name, int64_t value)
{
    int rc = 0;
    for (int device = 0; device < DEVICES; device++) {
        rc |= fake_nvml_script(name, device, &value, 1);
    }
    return rc;
}

static int
set_code(const char *name, int64_t value)
{
    return fake_nvml_fail(name, (int)value);
}

__attribute__((constructor)) static void
at_load(void)
{
    set_all("temperature", 60);
    set_all("clock", 1980);
    set_all("power", 350000);
    set_all("reasons", 0);
    each_item("FAKE_NVML_SET", '=', set_all);
    each_item("FAKE_NVML_FAIL", ':', set_code);
    const char *name = getenv("FAKE_NVML_HANG");
    if (name != NULL && fake_nvml_hang(name) != 0) {
        fprintf(stderr, "FAKE_NVML_HANG: cannot understand '%s'\n", name);
        abort();
    }
}

/* ---- NVML ---- */

static int
called(function f)
{
    atomic_fetch_add(&calls[f], 1);
    if (gettid() == getpid()) {
        atomic_fetch_add(&main_calls, 1);
    }
    if (atomic_load(&hanging) == (int)f + 1) {
        atomic_fetch_add(&hung, 1);
        while (atomic_load(&hanging) == (int)f + 1) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        atomic_fetch_sub(&hung, 1);
    }
    int result = atomic_load(&code[f]);
    if (result == OK && f != INIT && atomic_load(&initialised) <= 0) {
        result = UNINITIALIZED;
    }
    return result;
}

FAKE_EXPORT int
nvmlInit_v2(void)
{
    int result = called(INIT);
    if (result == OK) {
        atomic_fetch_add(&initialised, 1);
    }
    return result;
}

FAKE_EXPORT int
nvmlShutdown(void)
{
    int result = called(SHUTDOWN);
    if (result == OK) {
        atomic_fetch_sub(&initialised, 1);
    }
    return result;
}

FAKE_EXPORT int
nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    int result = called(FIND);
    unsigned int domain, bus, slot, part;
    if (result == OK &&
        sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &part) != 4) {
        result = INVALID_ARGUMENT;
    }
    if (result == OK && (bus < 0x10 || bus >= 0x10 + DEVICES)) {
        result = NOT_FOUND;
    }
    if (result == OK) {
        *device = &devices[bus - 0x10];
    }
    return result;
}

static int
next(function f, figure of, const void *device, int64_t *value)
{
    int result = called(f);
    if (result != OK) {
        return result;
    }
    pthread_mutex_lock(&lock);
    script *s = &scripts[(const char *)device - devices][of];
    *value = s->value[s->at];
    s->at += s->at + 1 < s->values;
    pthread_mutex_unlock(&lock);
    return *value < 0 ? NOT_SUPPORTED : OK;
}

FAKE_EXPORT int
nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius)
{
    int64_t value = 0;
    int result = sensor != 0
                     ? INVALID_ARGUMENT
                     : next(GET_TEMPERATURE, TEMPERATURE, device, &value);
    if (result == OK) {
        *celsius = (unsigned int)value;
    }
    return result;
}

typedef struct temperature {
    unsigned int version;
    int sensor;
    int celsius;
} temperature;

FAKE_EXPORT int
nvmlDeviceGetTemperatureV(void *device, temperature *t)
{
    int64_t value = 0;
    int result = t->version != (sizeof(*t) | 1u << 24) || t->sensor != 0
                     ? INVALID_ARGUMENT
                     : next(GET_TEMPERATURE_V, TEMPERATURE, device, &value);
    if (result == OK) {
        t->celsius = (int)value;
    }
    return result;
}

FAKE_EXPORT int
nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz)
{
    int64_t value = 0;
    int result =
        type != 1 ? INVALID_ARGUMENT : next(GET_CLOCK, CLOCK, device, &value);
    if (result == OK) {
        *mhz = (unsigned int)value;
    }
    return result;
}

FAKE_EXPORT int
nvmlDeviceGetPowerUsage(void *device, unsigned int *mw)
{
    int64_t value = 0;
    int result = next(GET_POWER, POWER, device, &value);
    if (result == OK) {
        *mw = (unsigned int)value;
    }
    return result;
}

FAKE_EXPORT int
nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits)
{
    int64_t value = 0;
    int result = next(GET_EVENT_REASONS, REASONS, device, &value);
    if (result == OK) {
        *bits = (unsigned long long)value;
    }
    return result;
}

FAKE_EXPORT int
nvmlDeviceGetCurrentClocksThrottleReasons(void *device,
                                          unsigned long long *bits)
{
    int64_t value = 0;
    int result = next(GET_THROTTLE_REASONS, REASONS, device, &value);
    if (result == OK) {
        *bits = (unsigned long long)value;
    }
    return result;
}

FAKE_EXPORT const char *
nvmlErrorString(int result)
{
    return result == NOT_SUPPORTED ? "Not Supported" : "Fake Error";
}
