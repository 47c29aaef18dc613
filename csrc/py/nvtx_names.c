#include "py/nvtx_names.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, MAX_NAMES = 20000 };

static _Atomic(fp_nvtx_name *) bucket[BUCKETS];
static atomic_uint names;

static fp_nvtx_name other_domain = {
    .text = "(other domains)",
    .kind = FP_NVTX_IS_DOMAIN,
};
static fp_nvtx_name other_string = {
    .text = "(other NVTX ranges)",
    .kind = FP_NVTX_IS_STRING,
};

/* FNV-1a. */
static uint64_t
hash_of(const char *text, size_t length)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    }
    return hash;
}

static fp_nvtx_name *
find(fp_nvtx_name *n, fp_nvtx_kind kind, const fp_nvtx_name *domain,
     const char *text, size_t length, uint64_t hash)
{
    while (n != NULL &&
           (n->hash != hash || n->kind != kind || n->domain != domain ||
            strncmp(n->text, text, length) != 0 || n->text[length] != '\0')) {
        n = n->next;
    }
    return n;
}

static fp_nvtx_name *
make(fp_nvtx_kind kind, const fp_nvtx_name *domain, const char *text,
     size_t length, uint64_t hash)
{
    if (atomic_load_explicit(&names, memory_order_relaxed) >= MAX_NAMES) {
        return NULL;
    }
    fp_nvtx_name *n = calloc(1, sizeof(*n) + length + 1);
    if (n == NULL) {
        return NULL;
    }
    char *copy = (char *)(n + 1);
    memcpy(copy, text, length);
    n->text = copy;
    n->domain = domain;
    n->kind = kind;
    n->hash = hash;
    atomic_fetch_add_explicit(&names, 1, memory_order_relaxed);
    return n;
}

size_t
fp_nvtx_length(const char *text)
{
    /* memchr stops at the first 0. */
    const char *end = memchr(text, '\0', FP_NVTX_MAX_TEXT);
    return end != NULL ? (size_t)(end - text) : FP_NVTX_MAX_TEXT;
}

fp_nvtx_name *
fp_nvtx_name_of(fp_nvtx_kind kind, const fp_nvtx_name *domain,
                const char *text)
{
    size_t length = fp_nvtx_length(text);
    uint64_t hash = hash_of(text, length);
    _Atomic(fp_nvtx_name *) *head = &bucket[hash % BUCKETS];
    fp_nvtx_name *first = atomic_load_explicit(head, memory_order_acquire);
    fp_nvtx_name *n = find(first, kind, domain, text, length, hash);
    if (n != NULL) {
        return n;
    }
    n = make(kind, domain, text, length, hash);
    if (n == NULL) {
        return kind == FP_NVTX_IS_DOMAIN ? &other_domain : &other_string;
    }
    /* Another thread may create the same name meanwhile; two handles of one
     * name are harmless. */
    n->next = first;
    while (!atomic_compare_exchange_weak_explicit(
        head, &n->next, n, memory_order_release, memory_order_relaxed)) {
    }
    return n;
}

/* Returns the number of bytes written, at most 4. */
static size_t
encode(char *out, uint32_t c)
{
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    size_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out[0] = (char)(lead[more] | c >> 6 * more);
    for (size_t i = 1; i <= more; i++) {
        out[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3F));
    }
    return more + 1;
}

void
fp_nvtx_from_wide(char *out, const wchar_t *wide)
{
    size_t length = 0;
    for (; *wide != L'\0' && length + 4 <= FP_NVTX_MAX_TEXT; wide++) {
        uint32_t c = (uint32_t)*wide;
        int is_character = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
        length += encode(out + length, is_character ? c : '?');
    }
    out[length] = '\0';
}
