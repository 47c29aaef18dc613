#include "core/spots.h"
#include "fake.h"

static uint64_t
count_of(const fp_spots *s, uint64_t code, uint64_t at)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < s->capacity; i++) {
        if (s->spot[i].code == code && s->spot[i].at == at) {
            CHECK_UINT(found, 0); /* one entry per spot */
            found = s->spot[i].count;
        }
    }
    return found;
}

FP_TEST(spots_count_each_function_once_in_a_sample)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_spots s;
    CHECK_INT(fp_spots_init(&s, &a, 64), FP_OK);
    /* Function 8 calls itself: its innermost call counts. */
    fp_spot open[] = {{16, 3, 0}, {8, 5, 0}, {8, 7, 0}, {24, 1, 0}};
    fp_spots_add(&s, open, 4);
    fp_spots_add(&s, open, 4);
    fp_spots_add(&s, open + 2, 2);
    CHECK_UINT(s.samples, 3);
    CHECK_UINT(count_of(&s, 16, 3), 2);
    CHECK_UINT(count_of(&s, 8, 5), 2);
    CHECK_UINT(count_of(&s, 8, 7), 1);
    CHECK_UINT(count_of(&s, 24, 1), 3);
    CHECK_UINT(s.used, 4);
    fp_spots_fini(&s);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(spots_beyond_the_table_are_lost_and_counted)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_spots s;
    CHECK_INT(fp_spots_init(&s, &a, 64), FP_OK);
    uint64_t bytes = m.bytes;
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 1000; i++) {
            fp_spot open = {8 + 8 * (i / 10), i % 10, 0};
            fp_spots_add(&s, &open, 1);
        }
    }
    CHECK_UINT(s.used, 48);
    CHECK_UINT(s.lost, 3 * (1000 - 48));
    CHECK_UINT(s.samples, 3000);
    CHECK_UINT(m.bytes, bytes);
    for (uint64_t i = 0; i < 48; i++) {
        CHECK_UINT(count_of(&s, 8 + 8 * (i / 10), i % 10), 3);
    }
    fp_spots_fini(&s);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(spots_f36_without_memory_take_nothing)
{
    fake_memory m = {.fail_at = 1, .fail_on = true};
    fp_alloc a = fake_alloc(&m);
    fp_spots s;
    CHECK_INT(fp_spots_init(&s, &a, 64), FP_ENOMEM);
    fp_spot open = {8, 1, 0};
    fp_spots_add(&s, &open, 1);
    CHECK_UINT(s.samples, 0);
    fp_spots_fini(&s);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(spots_no_number_is_mistaken_for_an_address_of_a_copy)
{
    CHECK(fp_range_holds(0x1000, 0x100, 0x1000, 88));
    CHECK(fp_range_holds(0x1000, 0x100, 0x1100 - 88, 88));
    CHECK(!fp_range_holds(0x1000, 0x100, 0x1101 - 88, 88));
    CHECK(!fp_range_holds(0x1000, 0x100, 0xfff, 88));
    CHECK(!fp_range_holds(0, 0, 0, 88));
    for (uintptr_t back = 1; back < 200; back++) { /* at + 88 wraps */
        CHECK(!fp_range_holds(0x1000, 0x100, (uintptr_t)0 - back, 88));
    }
}
