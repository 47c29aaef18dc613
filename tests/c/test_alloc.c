#include "core/alloc.h"
#include "fake.h"

FP_TEST(alloc_zeroed_is_zero_and_counted)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    unsigned char *block = fp_alloc_zeroed(&a, 100, 3);
    CHECK(block != NULL);
    for (int i = 0; i < 300; i++) {
        CHECK_INT(block[i], 0);
    }
    CHECK_UINT(m.bytes, 300);
    fp_alloc_give(&a, block, 100, 3);
    CHECK_UINT(m.bytes, 0);
    fp_alloc_give(&a, NULL, 100, 3);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(alloc_refuses_a_size_that_overflows)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    CHECK(fp_alloc_zeroed(&a, SIZE_MAX / 8 + 1, 8) == NULL);
    CHECK(fp_alloc_zeroed(&a, 3, SIZE_MAX / 2) == NULL);
    CHECK_UINT(m.takes, 0);
}

FP_TEST(alloc_grow_keeps_the_items_and_zeroes_the_rest)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    uint32_t *items = fp_alloc_grow(&a, NULL, 0, 4, sizeof(*items));
    CHECK(items != NULL);
    for (uint32_t i = 0; i < 4; i++) {
        items[i] = i + 1;
    }
    items = fp_alloc_grow(&a, items, 4, 9, sizeof(*items));
    for (uint32_t i = 0; i < 9; i++) {
        CHECK_UINT(items[i], i < 4 ? i + 1 : 0);
    }
    m.fail_at = m.takes + 1;
    CHECK(fp_alloc_grow(&a, items, 9, 18, sizeof(*items)) == NULL);
    CHECK_UINT(items[3], 4); /* the old block is kept */
    CHECK_UINT(m.bytes, 9 * sizeof(*items));
    fp_alloc_give(&a, items, 9, sizeof(*items));
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(alloc_room_doubles_or_keeps_the_array)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    uint16_t *items = NULL;
    uint32_t capacity = 0;
    CHECK_INT(fp_alloc_room(&a, &items, &capacity, 1, 4, sizeof(*items)),
              FP_OK);
    CHECK_UINT(capacity, 4);
    items[3] = 7;
    uint16_t *first = items;
    CHECK_INT(fp_alloc_room(&a, &items, &capacity, 4, 4, sizeof(*items)),
              FP_OK);
    CHECK(items == first);
    CHECK_INT(fp_alloc_room(&a, &items, &capacity, 17, 4, sizeof(*items)),
              FP_OK);
    CHECK_UINT(capacity, 32);
    CHECK_UINT(items[3], 7);
    CHECK_UINT(items[31], 0);
    m.fail_at = m.takes + 1;
    first = items;
    CHECK_INT(fp_alloc_room(&a, &items, &capacity, 33, 4, sizeof(*items)),
              FP_ENOMEM);
    CHECK(items == first && capacity == 32);
    fp_alloc_give(&a, items, capacity, sizeof(*items));
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(alloc_libc_takes_and_gives)
{
    fp_alloc a = fp_alloc_libc();
    uint64_t *items = fp_alloc_zeroed(&a, 16, sizeof(*items));
    CHECK(items != NULL);
    items = fp_alloc_grow(&a, items, 16, 32, sizeof(*items));
    CHECK(items != NULL && items[31] == 0);
    fp_alloc_give(&a, items, 32, sizeof(*items));
}
