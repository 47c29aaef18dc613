#define _GNU_SOURCE /* RTLD_NOLOAD */

#include "gpu/kineto_slot.h"

#include "gpu/cupti_abi.h"

#include <dlfcn.h>
#include <string.h>

/* The handle is word 23 in torch 2.4 and word 27 in later releases, whose object
 * has 28 words.  Behind an older, smaller one there is the allocator's memory.
 */
enum { WORDS = 28 };

#if defined(__x86_64__)
/* Kineto's CuptiCallbackApi; NULL: there is none. */
static uint64_t *
find_object(void)
{
    void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (torch == NULL) {
        return NULL;
    }
    void *symbol = dlsym(torch, "_ZN9libkineto16CuptiCallbackApi9singletonEv");
    dlclose(torch); /* torch stays loaded */
    if (symbol == NULL) {
        return NULL;
    }
    /* It returns a reference, or, up to torch 2.11, a std::shared_ptr, which
     * the caller provides memory for.  That one is never destroyed: the object
     * lives as long as the process. */
    uint64_t *(*singleton)(void *result);
    memcpy(&singleton, &symbol, sizeof(singleton));
    uint64_t *result[4] = {NULL, NULL, NULL, NULL};
    uint64_t *object = singleton(result);
    return (void *)object == (void *)result ? result[0] : object;
}
#else
/* Elsewhere the memory for the std::shared_ptr is not an argument in C. */
static uint64_t *
find_object(void)
{
    return NULL;
}
#endif

static int
may_be_handle(uint64_t word)
{
    return word > 65536 && word % sizeof(void *) == 0 && word >> 47 == 0;
}

int
fp_kineto_slot_take(const fp_cupti *c)
{
    uint64_t *word = find_object();
    if (word == NULL) {
        return 0;
    }
    /* CUPTI compares a handle with those that it has given before it follows
     * it, so it refuses the other words. */
    for (int i = WORDS; i-- > 0;) {
        if (may_be_handle(word[i]) &&
            c->unsubscribe((void *)(uintptr_t)word[i]) == FP_CUPTI_SUCCESS) {
            /* Else Kineto could end a later subscription: CUPTI may give
             * another client the same handle. */
            word[i] = 0;
            return 1;
        }
    }
    return 0;
}
