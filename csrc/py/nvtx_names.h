/* nvtx_names: the NVTX domains and registered strings of the program.  They
 * are created on any thread without a lock, and never changed or freed: a
 * handle stays valid forever, also in a forked child. */
#ifndef FP_PY_NVTX_NAMES_H
#define FP_PY_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

/* Longest name in bytes; sections cut names further. */
enum { FP_NVTX_MAX_TEXT = 4000 };

typedef enum fp_nvtx_kind {
    FP_NVTX_IS_DOMAIN,
    FP_NVTX_IS_STRING
} fp_nvtx_kind;

typedef struct fp_nvtx_name {
    struct fp_nvtx_name *next;
    /* of a string; NULL: the default domain */
    const struct fp_nvtx_name *domain;
    const char *text; /* UTF-8, perhaps invalid */
    uint64_t hash;
    fp_nvtx_kind kind;
    /* Guarded by the GIL: the section of this name, valid in this generation
     * only. */
    uint64_t generation;
    void *section;
} fp_nvtx_name;

/* The name of that kind, domain and text, created if needed.  Beyond the limit
 * or without memory a shared one; never NULL. */
fp_nvtx_name *
fp_nvtx_name_of(fp_nvtx_kind kind, const fp_nvtx_name *domain,
                const char *text);

/* Length of [text] in bytes, at most FP_NVTX_MAX_TEXT. */
size_t
fp_nvtx_length(const char *text);

/* Writes [wide] to [out] as UTF-8, cut to its size of FP_NVTX_MAX_TEXT + 1
 * bytes.  Invalid characters become "?". */
void
fp_nvtx_from_wide(char *out, const wchar_t *wide);

#endif
