/* library: a shared library as a table of functions, found at run time. */
#ifndef FP_GPU_LIBRARY_H
#define FP_GPU_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

enum { FP_WHY_LENGTH = 320 };

/* Why something cannot be had: one sentence for the user; empty: it can. */
typedef struct fp_why {
    char text[FP_WHY_LENGTH];
} fp_why;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void
fp_why_set(fp_why *why, const char *format, ...);

/* A function, and where its address goes: bytes from the table's beginning. */
typedef struct fp_symbol {
    const char *name;
    uint32_t offset;
    uint32_t is_needed;
} fp_symbol;

/* Opens [path]: absolute, or a bare file name for the loader's own search.
 * Anything else is refused: the working directory is no place to load code from.
 * NULL with [why]. */
void *
fp_library_open(const char *path, fp_why *why);

/* Fills [table]; what the library lacks becomes NULL.  Returns the name of the
 * first needed one that is missing, or NULL. */
const char *
fp_library_find(void *handle, const fp_symbol *symbols, size_t n, void *table);

#endif
