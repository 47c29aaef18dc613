/* nvtx_names: domains and registered strings of the program.  Made on any
 * thread without a lock, never changed or freed: a handle is good for ever, also
 * in a forked child. */
#ifndef FP_PY_NVTX_NAMES_H
#define FP_PY_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

/* Bytes that are looked at of a name; sections cut theirs further. */
enum { FP_NVTX_MAX_TEXT = 4000 };

typedef enum fp_nvtx_kind {
    FP_NVTX_IS_DOMAIN,
    FP_NVTX_IS_STRING
} fp_nvtx_kind;

typedef struct fp_nvtx_name {
    struct fp_nvtx_name *next;
    const struct fp_nvtx_name *domain; /* a string's; NULL: the default one */
    const char *text;                  /* UTF-8, perhaps invalid */
    uint64_t hash;
    fp_nvtx_kind kind;
    /* Under the GIL: the section it became, while generation is the current. */
    uint64_t generation;
    void *section;
} fp_nvtx_name;

/* The one of that kind, domain and text, made if need be.  Beyond the limit or
 * without memory a shared one; never NULL. */
fp_nvtx_name *
fp_nvtx_name_of(fp_nvtx_kind kind, const fp_nvtx_name *domain,
                const char *text);

/* Bytes of [text] that are looked at. */
size_t
fp_nvtx_length(const char *text);

/* Writes [wide] as UTF-8, cut to [out], which has FP_NVTX_MAX_TEXT + 1 bytes;
 * what is no character becomes "?". */
void
fp_nvtx_from_wide(char *out, const wchar_t *wide);

#endif
