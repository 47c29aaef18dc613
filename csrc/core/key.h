/* key: identifies a function, a section or a special node in a tree.
 *
 *   63                              3 2   0
 *   +--------------------------------+-----+
 *   | address, or number << 3        | tag |
 *   +--------------------------------+-----+
 *
 * The tree never follows the address.  The tag tells a section from a function
 * without a lookup. */
#ifndef FP_CORE_KEY_H
#define FP_CORE_KEY_H

#include <stdint.h>

typedef uintptr_t fp_key;

_Static_assert(sizeof(fp_key) == 8, "fastprof needs a 64-bit machine");

enum {
    FP_TAG_PYTHON = 0,
    FP_TAG_C = 1,
    FP_TAG_SECTION = 2,
    FP_TAG_TYPE = 3,
    FP_TAG_SPECIAL = 4,
    FP_TAG_CALLABLE = 5,
    FP_TAG_MASK = 7,
};

#define FP_KEY_ROOT ((fp_key)FP_TAG_SPECIAL)
#define FP_KEY_TRUNCATED ((fp_key)(8 | FP_TAG_SPECIAL))

static inline int
fp_key_tag(fp_key key)
{
    return (int)(key & FP_TAG_MASK);
}

static inline fp_key
fp_key_section(uint32_t id)
{
    return ((fp_key)id << 3) | FP_TAG_SECTION;
}

static inline uint32_t
fp_key_section_id(fp_key key)
{
    return (uint32_t)(key >> 3);
}

#endif
