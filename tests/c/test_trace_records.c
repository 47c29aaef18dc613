#include "fake.h"
#include "gpu/trace_records.h"

static void
call(fp_trace_records *t, int64_t start, int64_t end)
{
    fp_trace_records_call(t, &(fp_trace_call){.start = start, .end = end});
}

static void
add(fp_trace_records *t, int64_t start, int64_t launched)
{
    fp_trace_record r = {.start = start, .end = start + 5};
    fp_trace_records_add(t, &r, launched);
}

FP_TEST(gpu_trace_keeps_only_records_of_windows)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_trace_records t;
    fp_trace_records_init(&t, &a, 100);
    call(&t, 1, 2); /* no window yet */
    fp_trace_records_open(&t, 100);
    fp_trace_records_close(&t, 200);
    fp_trace_records_open(&t, 300);
    CHECK(!fp_trace_records_want(&t, 99));
    CHECK(fp_trace_records_want(&t, 100));
    CHECK(fp_trace_records_want(&t, 199)); /* late, but in that window */
    CHECK(!fp_trace_records_want(&t, 200));
    CHECK(fp_trace_records_want(&t, 300000));
    call(&t, 150, 250);
    call(&t, 250, 260);
    call(&t, 310, 305); /* F34 */
    CHECK_UINT(fp_ring_count(&t.call), 2);
    CHECK_INT(((fp_trace_call *)fp_ring_at(&t.call, 1))->end, 310);
    add(&t, 250, 199);       /* launched in a window, ran after it */
    add(&t, 310, 250);       /* ... before it */
    add(&t, 320, INT64_MIN); /* unknown */
    add(&t, 220, INT64_MIN);
    CHECK_UINT(fp_ring_count(&t.record), 2);
    fp_trace_records_clear(&t, 400);
    CHECK_UINT(fp_ring_count(&t.record) + fp_ring_count(&t.call), 0);
    CHECK(!fp_trace_records_want(&t, 399));
    CHECK(fp_trace_records_want(&t, 400));
    fp_trace_records_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(gpu_trace_f32_records_and_windows_are_bounded)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_trace_records t;
    fp_trace_records_init(&t, &a, 10);
    for (int64_t i = 0; i < 2 * FP_TRACE_SPANS; i++) {
        fp_trace_records_open(&t, i * 100);
        add(&t, i * 100 + 1, INT64_MIN);
        call(&t, i * 100 + 1, i * 100 + 3);
        fp_trace_records_close(&t, i * 100 + 50);
    }
    CHECK_UINT(t.spans, FP_TRACE_SPANS);
    CHECK_UINT(fp_ring_count(&t.record), 10);
    CHECK_UINT(t.lost, 2 * (2 * FP_TRACE_SPANS - 10));
    CHECK_INT(t.lost_until, (2 * FP_TRACE_SPANS - 11) * 100 + 6);
    fp_trace_records_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(gpu_trace_f36_without_memory_records_are_counted_as_lost)
{
    fake_memory m = {.fail_at = 1, .fail_on = true};
    fp_alloc a = fake_alloc(&m);
    fp_trace_records t;
    fp_trace_records_init(&t, &a, 10);
    fp_trace_records_open(&t, 0);
    add(&t, 1, INT64_MIN);
    call(&t, 1, 2);
    CHECK_UINT(t.no_memory, 2);
    fp_trace_records_fini(&t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(clock_map_converts_device_times_to_ticks)
{
    fp_clock_map map;
    fp_clock_map_init(&map, 0.5);
    CHECK_INT(fp_clock_map_to_ticks(&map, 5), 0);
    const int64_t base = INT64_C(1700000000) * 1000000000;
    uint64_t state = 5;
    for (int64_t i = 0; i < 40; i++) {
        /* A drift of some millionths, as of a slewed clock. */
        int64_t drift = (int64_t)fake_below(&state, 2000);
        fp_clock_map_add(&map, i * 2000000000, base + i * 1000000000 + drift);
    }
    for (int i = 0; i < 2000; i++) {
        int64_t ticks = (int64_t)(fake_random(&state) % 90000000000u);
        int64_t back =
            fp_clock_map_to_ticks(&map, fp_clock_map_to_gpu(&map, ticks));
        int64_t off = back > ticks ? back - ticks : ticks - back;
        CHECK(off <= 2); /* a tick is half a nanosecond */
    }
}
