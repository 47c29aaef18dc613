/* The time that a thread was ready to run without a CPU, from the operating
 * system. */
#define _POSIX_C_SOURCE 200809L

#include "core/run_delay.h"

#include "fp_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

FP_TEST(run_delay_closed_is_unknown)
{
    fp_run_delay d = {0, 0, 0};
    CHECK_INT(fp_run_delay_ns(&d), -1);
    fp_own_file_close(&d);
}

FP_TEST(run_delay_never_falls)
{
    fp_run_delay d;
    fp_run_delay_open(&d);
    int64_t last = fp_run_delay_ns(&d);
    for (int i = 0; i < 100; i++) {
        int64_t now = fp_run_delay_ns(&d);
        CHECK(now >= last);
        last = now;
    }
    fp_own_file_close(&d);
    CHECK_INT(fp_run_delay_ns(&d), -1);
}

/* A program may close all descriptors and open others. */
FP_TEST(run_delay_does_not_close_a_reused_descriptor)
{
    fp_run_delay d;
    fp_run_delay_open(&d);
    if (d.file == 0) {
        return; /* the kernel does not count it */
    }
    int file = d.file - 1;
    int other = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    CHECK_INT(dup2(other, file), file);
    CHECK_INT(fp_run_delay_ns(&d), -1);
    fp_own_file_close(&d);
    CHECK(fcntl(file, F_GETFD) >= 0); /* still open */
    close(file);
    close(other);
    fp_run_delay_open(&d);
    close(d.file - 1); /* closed and not reused */
    CHECK_INT(fp_run_delay_ns(&d), -1);
    fp_own_file_close(&d);
}

static void *
open_one(void *d)
{
    fp_run_delay_open(d);
    return NULL;
}

FP_TEST(run_delay_of_an_ended_thread_is_unknown)
{
    fp_run_delay d;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, open_one, &d), 0);
    pthread_join(thread, NULL);
    const struct timespec nap = {0, 1000000};
    while (fp_run_delay_ns(&d) != -1) {
        nanosleep(&nap, NULL); /* a joined thread exists for a moment */
    }
    fp_own_file_close(&d);
    CHECK_INT(d.file, 0);
}
