/* Stands in for libtorch_cpu.so: an object like Kineto's CuptiCallbackApi that
 * subscribes and never unsubscribes.  Compile with -DWORD=N for the place of
 * the handle, and -DSHARED for a singleton() that returns a std::shared_ptr, as
 * up to torch 2.11. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#define KINETO_EXPORT __attribute__((visibility("default")))

enum { WORDS = 28 };

static uint64_t object[WORDS];

#ifdef SHARED
KINETO_EXPORT void **
_ZN9libkineto16CuptiCallbackApi9singletonEv(void **result)
{
    result[0] = object;
    result[1] = NULL; /* the count of references */
    return result;
}
#else
KINETO_EXPORT uint64_t *
_ZN9libkineto16CuptiCallbackApi9singletonEv(void)
{
    return object;
}
#endif

/* The first session of torch.profiler; returns CUPTI's result. */
KINETO_EXPORT int
fake_kineto_session(void)
{
    int (*subscribe)(uint64_t *, void *, void *);
    void *cupti = dlopen(getenv("FASTPROF_CUPTI"), RTLD_NOW);
    *(void **)&subscribe = dlsym(cupti, "cuptiSubscribe");
    for (int i = 0; i < WORDS; i++) { /* list heads, a table, numbers */
        object[i] =
            i % 3 == 2 ? (uint64_t)i * 977 : (uint64_t)(uintptr_t)&object[i];
    }
    return subscribe(&object[WORD], NULL, NULL);
}

KINETO_EXPORT uint64_t
fake_kineto_handle(void)
{
    return object[WORD];
}
