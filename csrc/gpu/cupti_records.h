/* cupti_records: the activity records that CUPTI writes.
 *
 * CUPTI writes records in its newest layout, whatever release the client was
 * built for, and only ever appends fields.  So fastprof reads fields by
 * offset; the offsets hold in every release from 11.8 to 13.5.  The iterator
 * of the library that wrote the records finds the next one. */
#ifndef FP_GPU_CUPTI_RECORDS_H
#define FP_GPU_CUPTI_RECORDS_H

#include "core/base.h"

#include <stddef.h>
#include <string.h>

/* Byte offsets of the fields. */
enum {
    FP_AT_KIND = 0, /* u32, every record */

    FP_AT_KERNEL_REGISTERS = 6, /* u16 */
    FP_AT_KERNEL_START = 16,    /* u64 ns, as all times */
    FP_AT_KERNEL_END = 24,
    FP_AT_KERNEL_DEVICE = 40, /* u32, as are the next ones */
    FP_AT_KERNEL_STREAM = 48,
    FP_AT_KERNEL_GRID = 52,           /* 3 x i32 */
    FP_AT_KERNEL_BLOCK = 64,          /* 3 x i32 */
    FP_AT_KERNEL_STATIC_SHARED = 76,  /* bytes */
    FP_AT_KERNEL_DYNAMIC_SHARED = 80, /* bytes */
    FP_AT_KERNEL_CORRELATION = 92,
    FP_AT_KERNEL_NAME = 104,       /* const char *, mangled */
    FP_AT_KERNEL_GRAPH_NODE = 144, /* u64; 0: not in a graph */

    FP_AT_MEMCPY_COPY_KIND = 4, /* u8 */
    FP_AT_MEMCPY_BYTES = 8,     /* u64 */
    FP_AT_MEMCPY_START = 16,
    FP_AT_MEMCPY_END = 24,
    FP_AT_MEMCPY_DEVICE = 32,
    FP_AT_MEMCPY_STREAM = 40,
    FP_AT_MEMCPY_CORRELATION = 44,
    FP_AT_MEMCPY_GRAPH_NODE = 64, /* u64 */

    FP_AT_MEMCPY2_BYTES = 8,
    FP_AT_MEMCPY2_START = 16,
    FP_AT_MEMCPY2_END = 24,
    FP_AT_MEMCPY2_DEVICE = 32,
    FP_AT_MEMCPY2_STREAM = 40,
    FP_AT_MEMCPY2_CORRELATION = 60,
    FP_AT_MEMCPY2_GRAPH_NODE = 72,

    FP_AT_MEMSET_BYTES = 8,
    FP_AT_MEMSET_START = 16,
    FP_AT_MEMSET_END = 24,
    FP_AT_MEMSET_DEVICE = 32,
    FP_AT_MEMSET_STREAM = 40,
    FP_AT_MEMSET_CORRELATION = 44,
    FP_AT_MEMSET_GRAPH_NODE = 64,

    FP_AT_GRAPH_CORRELATION = 4,
    FP_AT_GRAPH_START = 8,
    FP_AT_GRAPH_END = 16,
    FP_AT_GRAPH_DEVICE = 24,
    FP_AT_GRAPH_STREAM = 36,

    FP_AT_API_CBID = 4,
    FP_AT_API_START = 8,
    FP_AT_API_END = 16,
    FP_AT_API_THREAD = 28, /* u32, as cuptiSetThreadIdType says */
    FP_AT_API_CORRELATION = 32,

    FP_AT_EXTERNAL_KIND = 4,
    FP_AT_EXTERNAL_ID = 8, /* u64 */
    FP_AT_EXTERNAL_CORRELATION = 16,
};

/* CUpti_ActivityMemcpyKind */
enum {
    FP_COPY_HTOD = 1,
    FP_COPY_DTOH = 2,
    FP_COPY_HTOA = 3,
    FP_COPY_ATOH = 4,
    FP_COPY_ATOA = 5,
    FP_COPY_ATOD = 6,
    FP_COPY_DTOA = 7,
    FP_COPY_DTOD = 8,
    FP_COPY_HTOH = 9,
    FP_COPY_PTOP = 10,
};

static inline uint64_t
fp_read_u64(const uint8_t *record, size_t at)
{
    uint64_t v;
    memcpy(&v, record + at, sizeof(v));
    return v;
}

static inline uint32_t
fp_read_u32(const uint8_t *record, size_t at)
{
    uint32_t v;
    memcpy(&v, record + at, sizeof(v));
    return v;
}

static inline uint16_t
fp_read_u16(const uint8_t *record, size_t at)
{
    uint16_t v;
    memcpy(&v, record + at, sizeof(v));
    return v;
}

#endif
