#include "core/hist.h"
#include "fake.h"

enum { ROWS = FP_HIST_OCTAVES * FP_HIST_SUB };

/* Random in every order of magnitude. */
static int64_t
random_value(uint64_t *state)
{
    uint32_t shift = 1 + fake_below(state, 63);
    return (int64_t)(fake_random(state) >> shift);
}

static void
check_one(fp_hist *h, const fp_alloc *a, int64_t value)
{
    fp_hist_row row[2];
    fp_hist_fini(h, a);
    fp_hist_add(h, a, value);
    CHECK_UINT(fp_hist_rows(h, row, 2), 1);
    int64_t v = value > 0 ? value : 0;
    CHECK_UINT(row[0].count, 1);
    CHECK(row[0].low <= v);
    /* The top bucket has no int64 bound above it. */
    CHECK(v < row[0].high || row[0].high == INT64_MAX);
    int64_t width = row[0].high - row[0].low;
    CHECK(width >= 1);
    CHECK(width == 1 || width <= row[0].low / 64);
    fp_hist_fini(h, a);
}

FP_TEST(hist_every_value_is_in_its_bucket)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_hist h = {0};
    for (int64_t v = -3; v < 5000; v++) {
        check_one(&h, &a, v);
    }
    for (int bit = 0; bit < 63; bit++) {
        int64_t power = (int64_t)1 << bit;
        check_one(&h, &a, power - 1);
        check_one(&h, &a, power);
        check_one(&h, &a, power + 1);
        check_one(&h, &a, power + power / 2);
    }
    check_one(&h, &a, INT64_MAX);
    check_one(&h, &a, INT64_MAX - 1);
    check_one(&h, &a, INT64_MIN);
    uint64_t state = 1;
    for (int i = 0; i < 100000; i++) {
        check_one(&h, &a, random_value(&state));
    }
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(hist_small_values_are_exact)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_hist h = {0};
    fp_hist_row rows[ROWS];
    for (int64_t v = 0; v < 128; v++) {
        fp_hist_add(&h, &a, v);
    }
    CHECK_UINT(fp_hist_rows(&h, rows, ROWS), 128);
    for (int64_t v = 0; v < 128; v++) {
        CHECK_INT(rows[v].low, v);
        CHECK_INT(rows[v].high, v + 1);
        CHECK_UINT(rows[v].count, 1);
    }
    fp_hist_fini(&h, &a);
}

static uint64_t
check_rows(const fp_hist *h, const int64_t *values, uint32_t count)
{
    fp_hist_row rows[ROWS];
    uint32_t n = fp_hist_rows(h, rows, ROWS);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(i == 0 || rows[i - 1].high <= rows[i].low);
        uint64_t inside = 0;
        for (uint32_t k = 0; k < count; k++) {
            inside += rows[i].low <= values[k] && values[k] < rows[i].high;
        }
        CHECK_UINT(rows[i].count, inside);
        total += rows[i].count;
    }
    /* With less capacity: the first rows, and the same number. */
    fp_hist_row few[3] = {{-1, -1, 0}, {-1, -1, 0}, {-1, -1, 0}};
    CHECK_UINT(fp_hist_rows(h, few, 2), n);
    CHECK(n < 2 || few[1].low == rows[1].low);
    CHECK_INT(few[2].low, -1);
    CHECK_UINT(fp_hist_rows(h, NULL, 0), n);
    return total;
}

FP_TEST(hist_rows_ascend_and_count_what_was_added)
{
    enum { COUNT = 3000 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_hist h = {0};
    int64_t values[COUNT];
    uint64_t state = 2;
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = random_value(&state) >> (i % 3 == 0 ? 0 : 30);
        fp_hist_add(&h, &a, values[i]);
    }
    CHECK_UINT(check_rows(&h, values, COUNT), COUNT);
    fp_hist_fini(&h, &a);
    CHECK_UINT(fp_hist_rows(&h, NULL, 0), 0);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(hist_merge_is_adding_all)
{
    enum { COUNT = 2000 };
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_hist part[4] = {0}, merged = {0}, all = {0};
    uint64_t state = 3;
    for (uint32_t i = 0; i < COUNT; i++) {
        int64_t v = random_value(&state);
        fp_hist_add(&part[fake_below(&state, 4)], &a, v);
        fp_hist_add(&all, &a, v);
    }
    for (int i = 0; i < 4; i++) {
        fp_hist_merge(&merged, &a, &part[i]);
        fp_hist_fini(&part[i], &a);
    }
    fp_hist_row got[ROWS], want[ROWS];
    uint32_t n = fp_hist_rows(&all, want, ROWS);
    CHECK_UINT(fp_hist_rows(&merged, got, ROWS), n);
    CHECK(n > 100);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(got[i].low == want[i].low && got[i].high == want[i].high);
        CHECK_UINT(got[i].count, want[i].count);
    }
    fp_hist_fini(&merged, &a);
    fp_hist_fini(&all, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(hist_without_memory_counts_what_it_lost)
{
    enum { COUNT = 500 };
    fake_memory m = {.fail_one_in = 2, .random_state = 4};
    fp_alloc a = fake_alloc(&m);
    fp_hist h = {0}, into = {0};
    int64_t values[COUNT];
    uint64_t state = 5;
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = random_value(&state);
        fp_hist_add(&h, &a, values[i]);
    }
    CHECK(m.failures > 0 && h.lost > 0);
    fp_hist_row rows[ROWS];
    uint64_t stored = 0;
    uint32_t n = fp_hist_rows(&h, rows, ROWS);
    for (uint32_t i = 0; i < n; i++) {
        stored += rows[i].count;
    }
    CHECK_UINT(stored + h.lost, COUNT);
    m.fail_at = m.takes + 1;
    m.fail_on = true;
    fp_hist_merge(&into, &a, &h);
    CHECK_UINT(into.lost, COUNT);
    m.fail_at = m.fail_one_in = 0;
    fp_hist_add(&into, &a, 1); /* works again */
    CHECK_UINT(fp_hist_rows(&into, rows, ROWS), 1);
    fp_hist_fini(&h, &a);
    fp_hist_fini(&into, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(hist_f35_counts_past_32_bits)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_hist h = {0}, twice = {0};
    fp_hist_add(&h, &a, 7);
    h.octave[0][7] = UINT32_MAX;
    fp_hist_add(&h, &a, 7);
    fp_hist_row row;
    CHECK_UINT(fp_hist_rows(&h, &row, 1), 1);
    CHECK_UINT(row.count, (uint64_t)1 << 32);
    fp_hist_merge(&twice, &a, &h);
    fp_hist_merge(&twice, &a, &h);
    CHECK_UINT(fp_hist_rows(&twice, &row, 1), 1);
    CHECK_UINT(row.count, (uint64_t)1 << 33);
    fp_hist_fini(&h, &a);
    fp_hist_fini(&twice, &a);
}
