/* fake_records: activity records in the layout of each release of CUPTI. */
#include "fake_state.h"

#include <string.h>

typedef struct fake_layout {
    int release;
    uint32_t version;
    uint16_t kernel;
    uint16_t copy;
    uint16_t set;
    uint16_t sync;
    uint16_t overhead;
    uint16_t graph_trace;
    uint16_t memory;
    uint16_t pool;
    uint16_t event;
    uint16_t cbids[2]; /* calls it knows: of the runtime, of the driver */
} fake_layout;

/* Ascending.  The sizes were measured with the libraries' own iterators. */
static const fake_layout layouts[] = {
    {11080, 18, 200, 88, 88, 40, 40, 48, 120, 72, 24, {434, 677}},
    {12010, 18, 208, 88, 88, 40, 40, 48, 120, 72, 24, {445, 712}},
    {12020, 20, 208, 88, 88, 40, 40, 48, 120, 72, 24, {451, 718}},
    {12030, 21, 208, 88, 88, 40, 48, 56, 120, 72, 24, {465, 733}},
    {12040, 22, 208, 88, 88, 40, 56, 56, 120, 72, 24, {468, 754}},
    {12050, 23, 208, 88, 88, 40, 56, 56, 120, 72, 24, {470, 761}},
    {12060, 24, 208, 88, 88, 40, 56, 56, 128, 72, 24, {480, 763}},
    {12080, 26, 208, 96, 88, 56, 56, 56, 128, 72, 56, {487, 782}},
    {12090, 28, 208, 96, 88, 56, 56, 56, 128, 72, 56, {487, 784}},
    {13000, 130001, 216, 96, 88, 56, 56, 56, 128, 80, 56, {523, 807}},
    {13010, 130101, 224, 96, 88, 56, 56, 56, 128, 80, 56, {550, 846}},
    {13020, 130202, 224, 96, 88, 56, 56, 56, 128, 80, 56, {559, 846}},
    {13040, 130401, 248, 112, 104, 56, 56, 56, 128, 80, 56, {566, 868}},
    {13050, 130500, 248, 112, 104, 56, 56, 56, 128, 80, 80, {567, 877}},
};

enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

static const fake_layout *
layout_of(int release)
{
    for (size_t i = LAYOUTS; i-- > 0;) {
        if (release >= layouts[i].release) {
            return &layouts[i];
        }
    }
    return &layouts[0];
}

uint32_t
fake_version_of(int release)
{
    return layout_of(release)->version;
}

int
fake_cupti_release_of(uint32_t version)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        uint32_t known = layouts[i].version;
        int same_minor = version >= 130000 && version / 100 == known / 100;
        if (known == version || same_minor) {
            return layouts[i].release;
        }
    }
    return -1;
}

uint32_t
fake_cbids_of(int release, int domain)
{
    const fake_layout *l = layout_of(release);
    switch (domain) {
    case FAKE_DOMAIN_RUNTIME:
        return l->cbids[0];
    case FAKE_DOMAIN_DRIVER:
        return l->cbids[1];
    default:
        return 32;
    }
}

size_t
fake_cupti_record_size(int release, uint32_t kind)
{
    const fake_layout *l = layout_of(release);
    switch (kind) {
    case FAKE_MEMCPY:
        return l->copy;
    case FAKE_MEMSET:
        return l->set;
    case FAKE_DRIVER:
    case FAKE_RUNTIME:
        return 40;
    case FAKE_KERNEL:
        return l->kernel;
    case FAKE_MARKER:
        return 56;
    case FAKE_OVERHEAD:
        return l->overhead;
    case FAKE_PEER:
        return 96;
    case FAKE_CUDA_EVENT:
        return l->event;
    case FAKE_SYNC:
        return l->sync;
    case FAKE_EXTERNAL:
        return 24;
    case FAKE_MEMORY:
        return l->memory;
    case FAKE_MEMORY_POOL:
        return l->pool;
    case FAKE_GRAPH_TRACE:
        return l->graph_trace;
    default:
        return 0;
    }
}

static void
put64(uint8_t *at, size_t offset, uint64_t v)
{
    memcpy(at + offset, &v, sizeof(v));
}

static void
put32(uint8_t *at, size_t offset, uint32_t v)
{
    memcpy(at + offset, &v, sizeof(v));
}

static void
put_times(uint8_t *at, size_t offset, const fake_record *r)
{
    put64(at, offset, (uint64_t)r->start);
    put64(at, offset + 8, (uint64_t)r->end);
}

/* The context of a device: an id and, for callbacks, a pointer. */
uint32_t
fake_context_of(uint32_t device)
{
    return device + 1;
}

static void
put_kernel(uint8_t *at, const fake_record *r)
{
    uint16_t registers = (uint16_t)r->registers;
    memcpy(at + 6, &registers, sizeof(registers));
    put_times(at, 16, r);
    put64(at, 32, (uint64_t)r->end); /* completed */
    put32(at, 40, r->device);
    put32(at, 44, fake_context_of(r->device));
    put32(at, 48, r->stream);
    memcpy(at + 52, r->grid, sizeof(r->grid));
    memcpy(at + 64, r->block, sizeof(r->block));
    put32(at, 76, r->static_shared);
    put32(at, 80, r->dynamic_shared);
    put32(at, 92, r->correlation);
    memcpy(at + 104, &r->name, sizeof(r->name));
    put64(at, 144, r->graph_node);
    put32(at, 156, r->graph);
}

static void
put_copy(uint8_t *at, const fake_record *r)
{
    at[4] = (uint8_t)r->type;
    put64(at, 8, r->bytes);
    put_times(at, 16, r);
    put32(at, 32, r->device);
    put32(at, 36, fake_context_of(r->device));
    put32(at, 40, r->stream);
    put32(at, 44, r->correlation);
    put64(at, 64, r->graph_node);
    put32(at, 72, r->graph);
}

static void
put_peer(uint8_t *at, const fake_record *r)
{
    at[4] = (uint8_t)r->type;
    put64(at, 8, r->bytes);
    put_times(at, 16, r);
    put32(at, 32, r->device);
    put32(at, 36, fake_context_of(r->device));
    put32(at, 40, r->stream);
    put32(at, 44, r->device);
    put32(at, 48, fake_context_of(r->device));
    put32(at, 52, r->to_device);
    put32(at, 56, fake_context_of(r->to_device));
    put32(at, 60, r->correlation);
    put64(at, 72, r->graph_node);
    put32(at, 80, r->graph);
}

static void
put_set(uint8_t *at, const fake_record *r)
{
    put64(at, 8, r->bytes);
    put_times(at, 16, r);
    put32(at, 32, r->device);
    put32(at, 36, fake_context_of(r->device));
    put32(at, 40, r->stream);
    put32(at, 44, r->correlation);
    put64(at, 64, r->graph_node);
    put32(at, 72, r->graph);
}

static void
put_api(uint8_t *at, const fake_record *r)
{
    put32(at, 4, r->type);
    put_times(at, 8, r);
    put32(at, 24, 1); /* process */
    put32(at, 28, r->thread);
    put32(at, 32, r->correlation);
}

static void
put_external(uint8_t *at, const fake_record *r)
{
    put32(at, 4, r->type);
    put64(at, 8, r->bytes);
    put32(at, 16, r->correlation);
}

static void
put_sync(uint8_t *at, const fake_record *r)
{
    put32(at, 4, r->type);
    put_times(at, 8, r);
    put32(at, 24, r->correlation);
    put32(at, 28, fake_context_of(r->device));
    put32(at, 32, r->stream);
}

size_t
fake_cupti_write_record(int release, const fake_record *r, uint8_t *at)
{
    size_t size = fake_record_room(release, r->kind);
    memset(at, 0, size);
    put32(at, 0, r->kind);
    switch (r->kind) {
    case FAKE_KERNEL:
        put_kernel(at, r);
        break;
    case FAKE_MEMCPY:
        put_copy(at, r);
        break;
    case FAKE_PEER:
        put_peer(at, r);
        break;
    case FAKE_MEMSET:
        put_set(at, r);
        break;
    case FAKE_DRIVER:
    case FAKE_RUNTIME:
        put_api(at, r);
        break;
    case FAKE_EXTERNAL:
        put_external(at, r);
        break;
    case FAKE_SYNC:
        put_sync(at, r);
        break;
    case FAKE_OVERHEAD:
        put_times(at, 24, r);
        break;
    case FAKE_GRAPH_TRACE:
        put32(at, 4, r->correlation);
        put_times(at, 8, r);
        put32(at, 24, r->device);
        put32(at, 28, r->graph);
        put32(at, 32, fake_context_of(r->device));
        put32(at, 36, r->stream);
        break;
    default:
        break; /* a client reads only the kind */
    }
    return size;
}

size_t
fake_record_room(int release, uint32_t kind)
{
    size_t size = fake_cupti_record_size(release, kind);
    return size != 0 ? size : 64;
}
