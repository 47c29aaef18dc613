#define _POSIX_C_SOURCE 200809L

#include "core/run_delay.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int
is_ours(const fp_run_delay *d)
{
    struct stat st;
    return d->file != 0 && fstat(d->file - 1, &st) == 0 &&
           st.st_dev == d->device && st.st_ino == d->inode;
}

void
fp_run_delay_open(fp_run_delay *d)
{
    *d = (fp_run_delay){0, 0, 0};
    /* only Linux has this file */
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (file < 0) {
        return;
    }
    if (fstat(file, &st) != 0) {
        close(file);
        return;
    }
    *d = (fp_run_delay){file + 1, st.st_dev, st.st_ino};
}

int64_t
fp_run_delay_ns(const fp_run_delay *d)
{
    /* Fields: time on the CPU, time waiting for a CPU, number of time
     * slices. */
    char text[80];
    ssize_t n = is_ours(d) ? pread(d->file - 1, text, sizeof(text) - 1, 0) : 0;
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

void
fp_run_delay_close(fp_run_delay *d)
{
    if (is_ours(d)) {
        close(d->file - 1);
    }
    *d = (fp_run_delay){0, 0, 0};
}
