/* library: a shared library as a table of functions, found at run time. */
#ifndef FP_GPU_LIBRARY_H
#define FP_GPU_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

enum { FP_WHY_LENGTH = 320 };

/* Why something is not available, as a sentence for the user; empty if it
 * is. */
typedef struct fp_why {
    char text[FP_WHY_LENGTH];
} fp_why;

/* Formats the sentence as printf does; longer ones are cut. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void
fp_why_set(fp_why *why, const char *format, ...);

/* A function and the offset of its pointer in the table, in bytes. */
typedef struct fp_symbol {
    const char *name;
    uint32_t offset;
    uint32_t is_needed;
} fp_symbol;

/* Opens [path]: an absolute path, or a file name that the loader searches for.
 * Refuses any other path: code must not be loaded from the working directory.
 * NULL with [why]. */
void *
fp_library_open(const char *path, fp_why *why);

/* A library and the functions of it that are wanted. */
typedef struct fp_library {
    const char *name;    /* begins an error's text, or "" */
    const char *is_none; /* "libcupti": the file is not one without them */
    const fp_symbol *symbols;
    size_t count;
} fp_library;

/* Opens [path] as fp_library_open does, and fills [table]; functions that the
 * library lacks become NULL.  Returns the handle; NULL with [why], also if a
 * required function is missing. */
void *
fp_library_load(const fp_library *l, const char *path, void *table,
                fp_why *why);

/* Writes "code (name)", or "code" if [name] is NULL, to [text]. */
void
fp_result_describe(int result, const char *name, char *text, size_t size);

#endif
