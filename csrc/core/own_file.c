#define _FILE_OFFSET_BITS 64
#define _POSIX_C_SOURCE 200809L

#include "core/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int
is_ours(const fp_own_file *f)
{
    struct stat st;
    return f->file != 0 && fstat(f->file - 1, &st) == 0 &&
           st.st_dev == f->device && st.st_ino == f->inode;
}

void
fp_own_file_open(fp_own_file *f, const char *path)
{
    *f = (fp_own_file){0, 0, 0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (file < 0) {
        return;
    }
    if (fstat(file, &st) != 0) {
        close(file);
        return;
    }
    *f = (fp_own_file){file + 1, st.st_dev, st.st_ino};
}

int64_t
fp_own_file_read(const fp_own_file *f, void *to, size_t size, uint64_t offset)
{
    return is_ours(f) ? pread(f->file - 1, to, size, (off_t)offset) : -1;
}

void
fp_own_file_close(fp_own_file *f)
{
    if (is_ours(f)) {
        close(f->file - 1);
    }
    *f = (fp_own_file){0, 0, 0};
}
