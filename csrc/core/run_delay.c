#define _POSIX_C_SOURCE 200809L

#include "core/run_delay.h"

#include <stdlib.h>

void
fp_run_delay_open(fp_run_delay *d)
{
    /* only Linux has this file */
    fp_own_file_open(d, "/proc/thread-self/schedstat");
}

int64_t
fp_run_delay_ns(const fp_run_delay *d)
{
    /* Fields: time on the CPU, time waiting for a CPU, number of time
     * slices. */
    char text[80];
    int64_t n = fp_own_file_read(d, text, sizeof(text) - 1, 0);
    if (n <= 0) {
        return -1;
    }
    text[n] = '\0';
    char *second, *end;
    unsigned long long on_cpu = strtoull(text, &second, 10);
    unsigned long long delay = strtoull(second, &end, 10);
    /* A kernel without these statistics writes "0 0 0". */
    return end == second || on_cpu == 0 ? -1 : (int64_t)delay;
}
