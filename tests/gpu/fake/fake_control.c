/* fake_control: options, counters, the clock and names, which tests set and
 * read. */
#include "fake_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

fake_state fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .request_lock = PTHREAD_MUTEX_INITIALIZER,
    .outer = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
    .wake = PTHREAD_COND_INITIALIZER,
    .idle = PTHREAD_COND_INITIALIZER,
};

static const fake_options defaults = {
#define X(name, value) .name = value,
    FAKE_OPTIONS(X)
#undef X
};

static const char *const function_names[] = {
#define X(name) #name,
    FAKE_FUNCTIONS(X)
#undef X
};

static const char *const counter_names[] = {
#define X(name) #name,
    FAKE_COUNTERS(X)
#undef X
};

/* ---- the clock ---- */

static int64_t
system_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t
fake_device_now(void)
{
    if (fake.is_manual) {
        return fake.manual_ns;
    }
    int64_t now = system_ns();
    double drift =
        (double)(now - fake.clock_base) * (double)fake.option.drift_ppb * 1e-9;
    return now + fake.option.offset_ns + (int64_t)drift;
}

static const double foreign_ticks_per_ns = 2.1;

int64_t
fake_told(fake_clock clock, int64_t ns)
{
    const int64_t three_days = (int64_t)3 * 86400 * 1000000000;
    switch (clock) {
    case FAKE_CLOCK_SYSTEM:
        return ns + fake.option.step_ns;
    case FAKE_CLOCK_FOREIGN:
        return (int64_t)((double)(ns - fake.clock_base + three_days) *
                         foreign_ticks_per_ns);
    case FAKE_CLOCK_CLIENT:
        return (int64_t)fake.stamp() + ns - fake_device_now();
    }
    return ns;
}

int64_t
fake_now(void)
{
    return fake_told(fake.clock, fake_device_now());
}

void
fake_use_clock(fake_clock clock)
{
    fake.clock_before = fake.clock;
    fake.clock = clock;
    fake.to_spoil = fake.counter[FAKE_CTR_clocks] * fake.option.clock_spoils;
    fake_count(FAKE_CTR_clocks, 1);
}

void
fake_cupti_foreign_clock(void)
{
    pthread_mutex_lock(&fake.lock);
    fake_use_clock(FAKE_CLOCK_FOREIGN);
    pthread_mutex_unlock(&fake.lock);
}

void
fake_cupti_use_v2(int on)
{
    pthread_mutex_lock(&fake.lock);
    fake.uses_v2 = on;
    pthread_mutex_unlock(&fake.lock);
}

int
fake_per_thread(void)
{
    return fake.option.per_thread == 2 ? fake.option.release >= 13000
                                       : fake.option.per_thread != 0;
}

void
fake_sleep_ns(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

void
fake_wait_until(int64_t ns)
{
    pthread_mutex_lock(&fake.lock);
    int64_t left = ns - fake_device_now();
    if (fake.is_manual) {
        fake.manual_ns += left > 0 ? left : 0;
        left = 0;
    }
    if (left > fake.option.max_sleep_ns) {
        left = fake.option.max_sleep_ns;
    }
    pthread_mutex_unlock(&fake.lock);
    if (left > 0) {
        fake_sleep_ns(left);
    }
}

void
fake_cupti_set_time(int64_t ns)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_manual = 1;
    fake.manual_ns = ns;
    pthread_mutex_unlock(&fake.lock);
}

void
fake_cupti_advance(int64_t ns)
{
    pthread_mutex_lock(&fake.lock);
    fake.manual_ns += ns;
    pthread_mutex_unlock(&fake.lock);
}

void
fake_cupti_use_real_clock(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_manual = 0;
    pthread_mutex_unlock(&fake.lock);
}

int64_t
fake_cupti_now(void)
{
    pthread_mutex_lock(&fake.lock);
    int64_t now = fake_now();
    pthread_mutex_unlock(&fake.lock);
    return now;
}

uint64_t
fake_random(void)
{
    fake.random = fake.random * 6364136223846793005u + 1442695040888963407u;
    return fake.random >> 33;
}

uint64_t
fake_thread(void)
{
    return (uint64_t)gettid();
}

/* ---- names of kernels ---- */

static fake_name *
name_of(const char *text)
{
    for (fake_name *n = fake.names; n != NULL; n = n->next) {
        if (strcmp(n->text, text) == 0) {
            return n;
        }
    }
    fake_name *n = calloc(1, sizeof(*n));
    if (n != NULL) {
        n->text = strdup(text);
        n->next = fake.names;
        fake.names = n;
    }
    return n;
}

const char *
fake_name_address(const char *text)
{
    fake_name *n = text != NULL ? name_of(text) : NULL;
    if (n == NULL) {
        return NULL;
    }
    size_t copies = (size_t)fake.option.name_copies;
    if (n->copies < copies) {
        char **grown = realloc(n->copy, copies * sizeof(*grown));
        if (grown == NULL) {
            return n->text;
        }
        n->copy = grown;
        while (n->copies < copies) {
            n->copy[n->copies++] = strdup(text);
        }
    }
    return n->copy[n->turn++ % n->copies];
}

fake_tally *
fake_name_tally(const char *address)
{
    fake_name *n = address != NULL ? name_of(address) : NULL;
    return n != NULL ? &n->tally : NULL;
}

void
fake_cupti_unload(const char *name, const char *other)
{
    pthread_mutex_lock(&fake.lock);
    fake_name *n = name_of(name);
    for (size_t i = 0; n != NULL && i < n->copies; i++) {
        snprintf(n->copy[i], strlen(n->copy[i]) + 1, "%s", other);
    }
    if (n != NULL) {
        n->copies = 0; /* never freed, like memory of another owner */
        n->copy = NULL;
    }
    pthread_mutex_unlock(&fake.lock);
}

static void
names_reset(void)
{
    while (fake.names != NULL) {
        fake_name *n = fake.names;
        fake.names = n->next;
        for (size_t i = 0; i < n->copies; i++) {
            free(n->copy[i]);
        }
        free(n->copy);
        free(n->text);
        free(n);
    }
}

/* ---- options ---- */

int
fake_cupti_set(const char *option, int64_t value)
{
    int rc = -1;
    pthread_mutex_lock(&fake.lock);
#define X(name, unused) \
    if (strcmp(option, #name) == 0) { \
        fake.option.name = value; \
        rc = 0; \
    }
    FAKE_OPTIONS(X)
#undef X
    if (strcmp(option, "correlation") == 0) {
        fake.correlation = (uint32_t)value;
    }
    if (strncmp(option, "shuffle", 7) == 0) {
        fake.random = (uint64_t)value;
    }
    pthread_mutex_unlock(&fake.lock);
    if (rc == 0 && strcmp(option, "deliver_thread") == 0 && value != 0) {
        fake_worker_start();
    }
    return rc;
}

int
fake_cupti_set_version(uint32_t version)
{
    int release = fake_cupti_release_of(version);
    return release < 0 ? -1 : fake_cupti_set("release", release);
}

static fake_plan *
plan_of(const char *function)
{
    for (int i = 0; i < FAKE_FN_COUNT; i++) {
        if (strcmp(function_names[i], function) == 0) {
            return &fake.plan[i];
        }
    }
    return NULL;
}

int
fake_cupti_fail(const char *function, int code, int64_t after)
{
    fake_plan *plan = plan_of(function);
    if (plan == NULL) {
        return -1;
    }
    pthread_mutex_lock(&fake.lock);
    plan->code = code;
    plan->after = plan->calls + after;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int
fake_cupti_slow(const char *function, int64_t milliseconds)
{
    fake_plan *plan = plan_of(function);
    if (plan == NULL) {
        return -1;
    }
    pthread_mutex_lock(&fake.lock);
    plan->slow_ms = milliseconds;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

/* A mistake in a test's environment must not look like success. */
static void
refuse(const char *variable, const char *item)
{
    fprintf(stderr, "%s: cannot understand '%s'\n", variable, item);
    abort();
}

static void
each_item(const char *variable, const char *separators,
          int (*use)(char *key, char *value, char *more))
{
    const char *text = getenv(variable);
    char *copy = text != NULL ? strdup(text) : NULL;
    char *rest = copy;
    for (char *item; rest != NULL && (item = strsep(&rest, ",")) != NULL;) {
        char *key = strsep(&item, separators);
        char *value = item != NULL ? strsep(&item, separators) : NULL;
        if (*key != 0 && (value == NULL || use(key, value, item) != 0)) {
            refuse(variable, text);
        }
    }
    free(copy);
}

static int
use_option(char *key, char *value, char *more)
{
    return more != NULL ? -1 : fake_cupti_set(key, strtoll(value, NULL, 0));
}

static int
use_failure(char *key, char *value, char *more)
{
    int64_t after = more != NULL ? strtoll(more, NULL, 0) : 0;
    return fake_cupti_fail(key, atoi(value), after);
}

static int
use_delay(char *key, char *value, char *more)
{
    return more != NULL ? -1 : fake_cupti_slow(key, atoi(value));
}

static void
read_environment(void)
{
    const char *release = getenv("FAKE_CUPTI_RELEASE");
    if (release != NULL) {
        fake_cupti_set("release", atoi(release));
    }
    const char *version = getenv("FAKE_CUPTI_VERSION");
    if (version != NULL &&
        fake_cupti_set_version((uint32_t)atoi(version)) != 0) {
        refuse("FAKE_CUPTI_VERSION", version);
    }
    each_item("FAKE_CUPTI_SET", "=", use_option);
    each_item("FAKE_CUPTI_FAIL", ":", use_failure);
    each_item("FAKE_CUPTI_SLOW", ":", use_delay);
    if (fake.option.foreign_at_load) {
        fake_use_clock(FAKE_CLOCK_FOREIGN);
    }
    const char *holder = getenv("FAKE_CUPTI_HOLDER");
    if (holder != NULL) {
        fake_cupti_hold_subscriber(holder);
    }
}

static void
initialise(void)
{
    fake.option = defaults;
    fake.clock_base = system_ns();
    fake.correlation = (uint32_t)defaults.correlation;
    fake.attribute[0] = 3200000; /* bytes of a buffer on the device ... */
    fake.attribute[2] = 250;     /* ... and the most buffers */
    fake.attribute[9] = 1;       /* buffers per thread, see per_thread */
    fake.pid = getpid();
    fake.epoch++;
    read_environment();
}

void
fake_cupti_reset(void)
{
    fake_buffers_reset();
    fake_device_reset();
    names_reset();
    fake_state blank = {.epoch = fake.epoch};
    /* The locks and conditions stay unchanged. */
    pthread_mutex_t lock = fake.lock;
    pthread_mutex_t request_lock = fake.request_lock;
    pthread_mutex_t outer = fake.outer;
    pthread_cond_t wake = fake.wake;
    pthread_cond_t idle = fake.idle;
    fake = blank;
    fake.lock = lock;
    fake.request_lock = request_lock;
    fake.outer = outer;
    fake.wake = wake;
    fake.idle = idle;
    initialise();
}

/* ---- counters ---- */

static int64_t
total_calls(void)
{
    int64_t sum = 0;
    for (int i = 0; i < FAKE_FN_COUNT; i++) {
        sum += fake.plan[i].calls;
    }
    return sum;
}

static int64_t
outstanding(void)
{
    return fake.counter[FAKE_CTR_buffers_requested] -
           fake.counter[FAKE_CTR_buffers_completed] -
           fake.counter[FAKE_CTR_buffers_stolen];
}

static int64_t
tally_field(const fake_tally *t, const char *field)
{
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {
        {"count", t->count},         {"sum_ns", t->sum_ns},
        {"bytes", t->bytes},         {"incomplete", t->incomplete},
        {"zero_time", t->zero_time}, {"backwards", t->backwards},
        {"spoiled", t->spoiled},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(fields[i].name, field) == 0) {
            return fields[i].value;
        }
    }
    return -1;
}

static int64_t
get_locked(const char *name)
{
    if (strcmp(name, "calls") == 0) {
        return total_calls();
    }
    if (strncmp(name, "calls.", 6) == 0) {
        const fake_plan *plan = plan_of(name + 6);
        return plan != NULL ? plan->calls : -1;
    }
    if (strcmp(name, "buffers_outstanding") == 0) {
        return outstanding();
    }
    for (int i = 0; i < FAKE_CTR_COUNT; i++) {
        if (strcmp(counter_names[i], name) == 0) {
            return fake.counter[i];
        }
    }
    char *dot;
    unsigned long kind = strtoul(name, &dot, 10);
    if (*dot == '.' && kind < FAKE_KINDS) {
        return tally_field(&fake.tally[kind], dot + 1);
    }
    return -1;
}

int64_t
fake_cupti_get(const char *name)
{
    pthread_mutex_lock(&fake.lock);
    int64_t value = get_locked(name);
    pthread_mutex_unlock(&fake.lock);
    return value;
}

int64_t
fake_cupti_kernel(const char *name, int64_t *sum_ns)
{
    pthread_mutex_lock(&fake.lock);
    const fake_tally *t = fake_name_tally(name);
    int64_t count = t != NULL ? t->count : 0;
    *sum_ns = t != NULL ? t->sum_ns : 0;
    pthread_mutex_unlock(&fake.lock);
    return count;
}

/* ---- the report ---- */

typedef struct writer {
    char *text;
    size_t size;
    size_t length;
    int is_first;
} writer;

static void
put_text(writer *w, const char *text)
{
    for (; *text != 0; text++) {
        if (w->length + 1 < w->size) {
            w->text[w->length] = *text;
        }
        w->length++;
    }
}

/* Writes a key; kernels' names are mangled, so they need no escaping. */
static void
put_key(writer *w, const char *key)
{
    put_text(w, w->is_first ? "\"" : ", \"");
    put_text(w, key);
    put_text(w, "\": ");
    w->is_first = 0;
}

static void
put(writer *w, const char *key, int64_t value)
{
    char number[32];
    snprintf(number, sizeof(number), "%" PRId64, value);
    put_key(w, key);
    put_text(w, number);
}

static void
open_object(writer *w, const char *key)
{
    if (key != NULL) {
        put_key(w, key);
    }
    put_text(w, "{");
    w->is_first = 1;
}

static void
close_object(writer *w)
{
    put_text(w, "}");
    w->is_first = 0;
}

static void
put_tally(writer *w, const char *name, const fake_tally *t)
{
    open_object(w, name);
    put(w, "count", t->count);
    put(w, "sum_ns", t->sum_ns);
    put(w, "bytes", t->bytes);
    put(w, "incomplete", t->incomplete);
    put(w, "zero_time", t->zero_time);
    put(w, "backwards", t->backwards);
    put(w, "spoiled", t->spoiled);
    close_object(w);
}

static void
report_locked(writer *w)
{
    open_object(w, NULL);
    put(w, "release", fake.option.release);
    put(w, "buffers_outstanding", outstanding());
    for (int i = 0; i < FAKE_CTR_COUNT; i++) {
        put(w, counter_names[i], fake.counter[i]);
    }
    put(w, "total_calls", total_calls());
    open_object(w, "calls");
    for (int i = 0; i < FAKE_FN_COUNT; i++) {
        put(w, function_names[i], fake.plan[i].calls);
    }
    close_object(w);
    open_object(w, "kinds");
    for (int i = 0; i < FAKE_KINDS; i++) {
        if (fake.tally[i].count != 0) {
            char name[16];
            snprintf(name, sizeof(name), "%d", i);
            put_tally(w, name, &fake.tally[i]);
        }
    }
    close_object(w);
    open_object(w, "kernels");
    for (const fake_name *n = fake.names; n != NULL; n = n->next) {
        put_tally(w, n->text, &n->tally);
    }
    close_object(w);
    close_object(w);
}

size_t
fake_cupti_report(char *text, size_t size)
{
    writer w = {text, size, 0, 1};
    pthread_mutex_lock(&fake.lock);
    report_locked(&w);
    pthread_mutex_unlock(&fake.lock);
    if (size > 0) {
        text[w.length < size ? w.length : size - 1] = 0;
    }
    return w.length;
}

__attribute__((constructor)) static void
at_load(void)
{
    initialise();
}

__attribute__((destructor)) static void
at_exit(void)
{
    const char *path = getenv("FAKE_CUPTI_REPORT");
    if (path == NULL || fake.pid != getpid()) {
        return;
    }
    size_t size = fake_cupti_report(NULL, 0) + 1024;
    char *text = malloc(size);
    FILE *file = text != NULL ? fopen(path, "w") : NULL;
    if (file != NULL) {
        fake_cupti_report(text, size);
        fputs(text, file);
        fclose(file);
    }
    free(text);
}
