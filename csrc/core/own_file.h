/* own_file: a file of fastprof that stays open in the program.  A program that
 * closes foreign descriptors may close ours, and the number may then belong to
 * another file, so the file's identity is kept and compared. */
#ifndef FP_CORE_OWN_FILE_H
#define FP_CORE_OWN_FILE_H

#include "core/base.h"

#include <stddef.h>

/* All zero bytes: closed. */
typedef struct fp_own_file {
    int file; /* file descriptor + 1; 0: none */
    uint64_t device, inode;
} fp_own_file;

/* Opens [path] for reading; it stays closed if that fails. */
void
fp_own_file_open(fp_own_file *f, const char *path);

/* Reads up to [size] bytes from [offset].  Returns their number; 0 or less:
 * nothing can be read. */
int64_t
fp_own_file_read(const fp_own_file *f, void *to, size_t size, uint64_t offset);

/* Closes the file unless the descriptor is another one by now. */
void
fp_own_file_close(fp_own_file *f);

#endif
