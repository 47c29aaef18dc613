/* An NVTX tool for tests: stores its calls as lines of text.
 *
 *     LISTENER=refuse    it does not start
 *     LISTENER=core      it knows no domains
 *     LISTENER=deaf      it takes no ranges
 *     LISTENER=late      it takes them after attach_now()
 *     LISTENER=strict    it starts only for a complete client
 */
#include "gpu/nvtx_abi.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 20, DOMAINS = 8 };

static char text[ROOM];
static size_t length;
static char domains[DOMAINS][64];
static int domain_count;
static unsigned starts, threads;
static const fp_nvtx_callbacks *known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local unsigned thread, depth;

static void
say(const char *what, const char *domain, const char *name)
{
    pthread_mutex_lock(&lock);
    if (thread == 0) {
        thread = ++threads;
    }
    length += (size_t)snprintf(text + length, ROOM - length, "%u %s %s %s\n",
                               thread, what, domain, name);
    pthread_mutex_unlock(&lock);
}

static int
push(const char *name)
{
    say("push", "-", name);
    return (int)depth++;
}

static int
pop(void)
{
    say("pop", "-", depth > 0 ? "-" : "UNBALANCED");
    return depth > 0 ? (int)--depth : -1;
}

static int
domain_push(void *domain, const fp_nvtx_event *e)
{
    int good = e->version == 3 && e->size == sizeof(*e) &&
               e->message_type == FP_NVTX_MESSAGE_ASCII;
    say("push", domain, good ? e->message.ascii : "BAD");
    return (int)depth++;
}

static int
domain_pop(void *domain)
{
    say("pop", domain, depth > 0 ? "-" : "UNBALANCED");
    return depth > 0 ? (int)--depth : -1;
}

static void *
domain_create(const char *name)
{
    char *domain = domains[domain_count++ % DOMAINS];
    (void)snprintf(domain, sizeof(domains[0]), "%s", name);
    return domain;
}

static int
attach(int module, unsigned id, fp_nvtx_function f)
{
    fp_nvtx_table table;
    unsigned count;
    if (!known->get_module(module, &table, &count) || id >= count ||
        table[0] != NULL) {
        return 0;
    }
    *table[id] = f;
    return 1;
}

#define ATTACH(module, id, f) \
    attach(module, id, (fp_nvtx_function)(void (*)(void))f)

static int
attach_core(void)
{
    return ATTACH(FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_A, push) &&
           ATTACH(FP_NVTX_CORE, FP_NVTX_RANGE_POP, pop);
}

static int
attach_domains(void)
{
    return ATTACH(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_PUSH_EX, domain_push) &&
           ATTACH(FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_POP, domain_pop) &&
           ATTACH(FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_A, domain_create);
}

/* The functions of a client built on NVIDIA's headers. */
static int
is_complete(fp_nvtx_get_export get_export, const fp_nvtx_callbacks *callbacks)
{
    const fp_nvtx_version_info *info = get_export(FP_NVTX_EXPORT_VERSION);
    if (info == NULL || info->size != sizeof(*info) || info->version != 3) {
        return 0;
    }
    info->set_tool_version(3);
    for (int module = 1; module < 7; module++) {
        fp_nvtx_table table;
        unsigned count = 0;
        if (!callbacks->get_module(module, &table, &count) || count < 7 ||
            !callbacks->get_module(module, NULL, NULL)) {
            return 0;
        }
        for (unsigned id = 1; id < count; id++) {
            if (table[id] == NULL) {
                return 0;
            }
        }
    }
    return get_export(99) == NULL && !callbacks->get_module(0, NULL, NULL) &&
           !callbacks->get_module(7, NULL, NULL);
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(fp_nvtx_get_export get_export)
{
    const char *mode = getenv("LISTENER") ? getenv("LISTENER") : "";
    const fp_nvtx_callbacks *callbacks = get_export(FP_NVTX_EXPORT_CALLBACKS);
    starts++;
    if (strcmp(mode, "refuse") == 0) {
        return 0;
    }
    if (strcmp(mode, "strict") == 0 && !is_complete(get_export, callbacks)) {
        return 0;
    }
    known = callbacks;
    if (strcmp(mode, "deaf") == 0 || strcmp(mode, "late") == 0) {
        return 1;
    }
    return attach_core() && (strcmp(mode, "core") == 0 || attach_domains());
}

__attribute__((visibility("default"))) int
attach_now(void)
{
    return attach_core() && attach_domains();
}

__attribute__((visibility("default"))) const char *
heard(void)
{
    return text;
}

__attribute__((visibility("default"))) unsigned
started(void)
{
    return starts;
}
