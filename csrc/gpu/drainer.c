#define _POSIX_C_SOURCE 200809L

/* The thread: does what it is asked for, and else drains. */
#include "gpu/drainer.h"
#include "gpu/worker.h"

#include <poll.h>
#include <unistd.h>

static void
answer(fp_gpu *g)
{
    pthread_mutex_lock(&g->talk);
    g->request = FP_GPU_NOTHING;
    g->answered = g->asked;
    pthread_cond_broadcast(&g->answer);
    pthread_mutex_unlock(&g->talk);
}

static fp_gpu_request
asked_for(fp_gpu *g)
{
    pthread_mutex_lock(&g->talk);
    fp_gpu_request request = g->request;
    pthread_mutex_unlock(&g->talk);
    return request;
}

static void
sleep_until_needed(fp_gpu *g)
{
    int64_t left_ms = -1;
    if (g->attached) {
        left_ms = (g->next_flush - fp_drainer_monotonic_ns()) / 1000000 + 1;
        left_ms = left_ms < 0 ? 0 : left_ms;
    }
    struct pollfd fd = {.fd = g->wake[0], .events = POLLIN};
    if (poll(&fd, 1, (int)(left_ms < INT32_MAX ? left_ms : INT32_MAX)) > 0) {
        char bytes[64];
        while (read(g->wake[0], bytes, sizeof(bytes)) > 0) {
        }
    }
    atomic_store(&g->woken, 0);
}

static void *
run(void *collector)
{
    fp_gpu *g = collector;
    for (;;) {
        fp_gpu_request request = asked_for(g);
        switch (request) {
        case FP_GPU_ATTACH:
            fp_drainer_attach(g);
            break;
        case FP_GPU_DETACH:
            fp_drainer_detach(g);
            g->pauses++;
            break;
        case FP_GPU_FLUSH:
            fp_drainer_flush(g, 0);
            break;
        case FP_GPU_FINISH:
            fp_drainer_finish(g);
            break;
        case FP_GPU_NOTHING:
            break;
        }
        if (request != FP_GPU_NOTHING) {
            answer(g);
        }
        if (request == FP_GPU_FINISH) {
            return NULL;
        }
        if (atomic_load(&g->state) == FP_GPU_DEAD) {
            fp_drainer_detach(g); /* nobody waits for it any more */
            return NULL;
        }
        sleep_until_needed(g);
        if (!g->attached) {
            fp_drainer_read_while_paused(g);
            continue;
        }
        if (fp_drainer_monotonic_ns() >= g->next_flush) {
            fp_drainer_end_period(g);
        }
        else {
            fp_drainer_drain(g);
        }
    }
}

int
fp_gpu_begin_thread(fp_gpu *g)
{
    return fp_worker_begin(&g->thread, run, g);
}
