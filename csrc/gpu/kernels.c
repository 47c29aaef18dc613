#include "gpu/kernels.h"

#include <string.h>

void
fp_kernels_init(fp_kernels *k, const fp_alloc *a)
{
    memset(k, 0, sizeof(*k));
    k->alloc = *a;
}

void
fp_kernels_fini(fp_kernels *k)
{
    for (uint32_t i = 0; i < k->count; i++) {
        fp_alloc_give(&k->alloc, k->row[i].name, k->row[i].name_bytes, 1);
    }
    fp_alloc_give(&k->alloc, k->row, k->capacity, sizeof(*k->row));
    fp_alloc_give(&k->alloc, k->index, k->index_capacity, sizeof(*k->index));
    fp_alloc a = k->alloc;
    fp_kernels_init(k, &a);
}

static uint32_t
mix(uint32_t h, uint32_t v)
{
    h ^= v;
    h *= 0x9E3779B1u;
    return h ^ (h >> 15);
}

static uint32_t
hash_shape(const fp_kernel_shape *s)
{
    uint32_t h = mix(s->device, s->registers);
    for (int i = 0; i < 3; i++) {
        h = mix(h, (uint32_t)s->block[i]);
    }
    return mix(mix(h, s->static_shared), s->dynamic_shared);
}

static uint32_t
hash_text(uint32_t h, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        h = (h ^ (unsigned char)text[i]) * 16777619u; /* FNV-1a */
    }
    return h;
}

/* A single branch, because shapes are nearly always equal. */
static inline int
same_shape(const fp_kernel_shape *a, const fp_kernel_shape *b)
{
    uint32_t block = 0;
    for (int i = 0; i < 3; i++) {
        block |= (uint32_t)a->block[i] ^ (uint32_t)b->block[i];
    }
    return (block | (a->device ^ b->device) | (a->registers ^ b->registers) |
            (a->static_shared ^ b->static_shared) |
            (a->dynamic_shared ^ b->dynamic_shared)) == 0;
}

static int
same_name(const fp_kernel *row, const char *name)
{
    /* A name that was shortened when it was copied matches by its first
     * part. */
    return row->name_bytes < FP_KERNEL_NAME_MAX
               ? strcmp(row->name, name) == 0
               : strncmp(row->name, name, FP_KERNEL_NAME_MAX - 1) == 0;
}

/* Adds row [i] to an index with a free slot. */
static void
put_in_index(const fp_kernels *k, uint32_t *index, uint32_t capacity,
             uint32_t i)
{
    uint32_t at = k->row[i].hash & (capacity - 1);
    while (index[at] != 0) {
        at = (at + 1) & (capacity - 1);
    }
    index[at] = i + 1;
}

static int
grow_index(fp_kernels *k)
{
    uint32_t more = k->index_capacity != 0 ? k->index_capacity * 2 : 256;
    uint32_t *index = fp_alloc_zeroed(&k->alloc, more, sizeof(*index));
    if (index == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < k->count; i++) {
        put_in_index(k, index, more, i);
    }
    fp_alloc_give(&k->alloc, k->index, k->index_capacity, sizeof(*index));
    k->index = index;
    k->index_capacity = more;
    return 0;
}

static int32_t
add(fp_kernels *k, const char *name, size_t length, uint32_t hash,
    const fp_kernel_shape *shape)
{
    if (k->count == FP_KERNELS_MAX ||
        k->name_bytes + length + 1 > FP_KERNEL_NAMES_BYTES ||
        fp_alloc_room(&k->alloc, &k->row, &k->capacity, k->count + 1, 128,
                      sizeof(*k->row)) != FP_OK ||
        (k->count * 2 >= k->index_capacity && grow_index(k) < 0)) {
        return -1;
    }
    char *copy = k->alloc.take(k->alloc.ctx, length + 1);
    if (copy == NULL) {
        return -1;
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    k->name_bytes += length + 1;
    k->row[k->count] = (fp_kernel){
        .name = copy,
        .name_bytes = (uint32_t)length + 1,
        .hash = hash,
        .shape = *shape,
        .communicates = (uint8_t)fp_communication_of(copy),
    };
    put_in_index(k, k->index, k->index_capacity, k->count);
    return (int32_t)k->count++;
}

static int32_t
find_by_text(fp_kernels *k, const char *name, const fp_kernel_shape *shape)
{
    size_t length = 0;
    while (length < FP_KERNEL_NAME_MAX - 1 && name[length] != '\0') {
        length++;
    }
    uint32_t hash = hash_text(hash_shape(shape), name, length);
    uint32_t mask = k->index_capacity - 1;
    for (uint32_t at = hash & mask; k->index_capacity != 0 && k->index[at];
         at = (at + 1) & mask) {
        const fp_kernel *row = &k->row[k->index[at] - 1];
        if (row->hash == hash && same_shape(&row->shape, shape) &&
            same_name(row, name)) {
            return (int32_t)k->index[at] - 1;
        }
    }
    return add(k, name, length, hash, shape);
}

/* The memo slot of a kernel.  Unlike in hash_shape, the products do not depend
 * on each other: this runs for every record. */
static uint32_t
memo_slot(const char *name, const fp_kernel_shape *s)
{
    uint64_t h = (uint64_t)(uintptr_t)name * 0x9E3779B97F4A7C15u;
    h += (uint64_t)(uint32_t)s->block[0] * 0xBF58476D1CE4E5B9u;
    h += (uint64_t)(uint32_t)s->block[1] * 0x94D049BB133111EBu;
    h += (uint64_t)(uint32_t)s->block[2] * 0xD6E8FEB86659FD93u;
    h += ((uint64_t)s->device << 32 | s->registers) * 0xC2B2AE3D27D4EB4Fu;
    h += ((uint64_t)s->static_shared << 32 | s->dynamic_shared) *
         0xA0761D6478BD642Fu;
    return (uint32_t)(h >> 40) & (FP_KERNEL_CACHE - 1);
}

void
fp_kernels_begin_buffer(fp_kernels *k)
{
    k->buffer = k->buffer == UINT32_MAX ? 1 : k->buffer + 1;
}

int32_t
fp_kernels_find(fp_kernels *k, const char *name, const fp_kernel_shape *shape)
{
    name = name != NULL ? name : "(unnamed kernel)";
    fp_kernel_memo *memo = &k->memo[memo_slot(name, shape)];
    if (FP_LIKELY(memo->kernel != 0 && memo->name == name)) {
        const fp_kernel *row = &k->row[memo->kernel - 1];
        /* Compare the text, too: the address may hold another name by now. */
        if (same_shape(&row->shape, shape) &&
            ((k->buffer != 0 && memo->buffer == k->buffer) ||
             same_name(row, name))) {
            memo->buffer = k->buffer;
            return (int32_t)memo->kernel - 1;
        }
    }
    int32_t found = find_by_text(k, name, shape);
    if (found < 0) {
        k->dropped++;
        return -1;
    }
    *memo = (fp_kernel_memo){name, (uint32_t)found + 1, k->buffer};
    return found;
}

void
fp_kernels_count(fp_kernel *row, const int32_t grid[3], int64_t ns)
{
    if (row->count == 0) {
        row->min_ns = ns;
    }
    else if (grid[0] != row->grid[0] || grid[1] != row->grid[1] ||
             grid[2] != row->grid[2]) {
        row->grid_varied = 1;
    }
    memcpy(row->grid, grid, sizeof(row->grid));
    row->count++;
    row->sum_ns += ns;
    row->min_ns = ns < row->min_ns ? ns : row->min_ns;
    row->max_ns = ns > row->max_ns ? ns : row->max_ns;
    if (ns < FP_SMALL_KERNEL_NS) {
        row->small_count++;
        row->small_ns += ns;
    }
    row->blocks_ns +=
        (double)grid[0] * (double)grid[1] * (double)grid[2] * (double)ns;
}
