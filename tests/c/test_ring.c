#include "core/ring.h"
#include "fake.h"

static void
put(fp_ring *r, uint64_t value, int expected_lost)
{
    int lost = -1;
    uint64_t *item = fp_ring_push(r, &lost);
    CHECK(item != NULL);
    CHECK_INT(lost, expected_lost);
    *item = value;
}

static void
check_last(const fp_ring *r, uint64_t first, uint64_t count)
{
    CHECK_UINT(fp_ring_count(r), count);
    for (uint64_t i = 0; i < count; i++) {
        CHECK_UINT(*(uint64_t *)fp_ring_at(r, i), first + i);
    }
}

FP_TEST(ring_keeps_the_last_items_in_order)
{
    static const uint64_t limits[] = {1, 255, 256, 257, 1000};
    for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
        fake_memory m = {0};
        fp_alloc a = fake_alloc(&m);
        fp_ring r;
        fp_ring_init(&r, &a, sizeof(uint64_t), limits[k]);
        CHECK_UINT(fp_ring_bytes(&r), 0);
        for (uint64_t i = 0; i < 2500; i++) {
            put(&r, i, i >= limits[k]);
            uint64_t kept = i + 1 < limits[k] ? i + 1 : limits[k];
            if (i % 97 == 0 || i == 2499) {
                check_last(&r, i + 1 - kept, kept);
            }
        }
        CHECK_UINT(fp_ring_bytes(&r), m.bytes);
        CHECK(m.bytes <=
              (limits[k] + FP_RING_CHUNK) * sizeof(uint64_t) + 1024);
        fp_ring_clear(&r);
        check_last(&r, 0, 0);
        put(&r, 7, 0);
        check_last(&r, 7, 1);
        fp_ring_fini(&r);
        CHECK_UINT(m.bytes, 0);
    }
}

FP_TEST(ring_f36_without_memory_it_is_smaller)
{
    for (uint64_t fail = 1; fail < 6; fail++) {
        fake_memory m = {.fail_at = fail, .fail_on = true};
        fp_alloc a = fake_alloc(&m);
        fp_ring r;
        fp_ring_init(&r, &a, sizeof(uint64_t), 5000);
        uint64_t pushed = 0;
        for (uint64_t i = 0; i < 3000; i++) {
            int lost;
            uint64_t *item = fp_ring_push(&r, &lost);
            if (item == NULL) {
                CHECK(fail <= 2);
                continue;
            }
            *item = i;
            pushed++;
        }
        CHECK(pushed == 3000 || pushed == 0);
        if (pushed != 0) {
            uint64_t kept = (uint64_t)(fail - 2) * FP_RING_CHUNK;
            check_last(&r, 3000 - kept, kept);
        }
        m.fail_at = 0;
        put(&r, 3000, pushed != 0);
        fp_ring_fini(&r);
        CHECK_UINT(m.bytes, 0);
    }
}
