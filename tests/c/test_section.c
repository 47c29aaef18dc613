#include "core/section.h"
#include "fake.h"

FP_TEST(section_records_count_sum_extremes_and_errors)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_section s = {0};
    static const int64_t ticks[] = {50, 7, 900, 7, 0};
    for (int i = 0; i < 5; i++) {
        fp_section_record(&s, &a, ticks[i], i % 2);
    }
    CHECK_UINT(s.count, 5);
    CHECK_UINT(s.errors, 2);
    CHECK_INT(s.sum_ticks, 964);
    CHECK_INT(s.min_ticks, 0);
    CHECK_INT(s.max_ticks, 900);
    CHECK_UINT(fp_hist_rows(&s.hist, NULL, 0), 4);
    fp_hist_fini(&s.hist, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(section_merge_is_recording_all)
{
    enum { COUNT = 400 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_section part[3] = {0}, merged = {0}, all = {0};
    uint64_t state = 11;
    for (int i = 0; i < COUNT; i++) {
        int64_t ticks = 100 + (int64_t)fake_below(&state, 100000);
        int error = fake_below(&state, 5) == 0;
        fp_section *p = &part[fake_below(&state, 2)]; /* the third is empty */
        fp_section_record(p, &a, ticks, error);
        p->outer_ticks += ticks / 2;
        p->steps_ticks += ticks / 3;
        p->steps++;
        fp_section_record(&all, &a, ticks, error);
        all.outer_ticks += ticks / 2;
        all.steps_ticks += ticks / 3;
        all.steps++;
    }
    part[1].open = 2;
    for (int i = 2; i >= 0; i--) {
        fp_section_merge(&merged, &a, &part[i]);
        fp_hist_fini(&part[i].hist, &a);
    }
    CHECK_UINT(merged.count, all.count);
    CHECK_UINT(merged.errors, all.errors);
    CHECK_INT(merged.sum_ticks, all.sum_ticks);
    CHECK_INT(merged.outer_ticks, all.outer_ticks);
    CHECK_INT(merged.steps_ticks, all.steps_ticks);
    CHECK_UINT(merged.steps, all.steps);
    CHECK_INT(merged.min_ticks, all.min_ticks);
    CHECK_INT(merged.max_ticks, all.max_ticks);
    CHECK_UINT(merged.open, 2);
    CHECK_UINT(fp_hist_rows(&merged.hist, NULL, 0),
               fp_hist_rows(&all.hist, NULL, 0));
    fp_hist_fini(&merged.hist, &a);
    fp_hist_fini(&all.hist, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(section_f35_is_exact_near_the_end_of_the_range)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_section s = {0};
    s.count = UINT32_MAX;
    s.errors = UINT32_MAX;
    s.min_ticks = 5;
    fp_section_record(&s, &a, INT64_MAX - 9, 1);
    CHECK_UINT(s.count, (uint64_t)1 << 32);
    CHECK_UINT(s.errors, (uint64_t)1 << 32);
    CHECK_INT(s.sum_ticks, INT64_MAX - 9);
    CHECK_INT(s.max_ticks, INT64_MAX - 9);
    CHECK_INT(s.min_ticks, 5);
    fp_section_record(&s, &a, 9, 0);
    CHECK_INT(s.sum_ticks, INT64_MAX);
    fp_hist_fini(&s.hist, &a);
}
