/* Recordings of one thread, worked out by hand. */
#include "thread_kit.h"

#include "core/path.h"
#include "core/thread_sections.h"
#include "core/thread_steps.h"

enum { F, G, H, GEN };
enum { DATA, FORWARD, BACKWARD };

static fp_thread *
thread_from(fake_memory *m, int64_t now)
{
    fp_alloc a = fake_alloc(m);
    fp_thread *t = fp_thread_create(&a, kit_wide, now);
    CHECK(t != NULL);
    return t;
}

static void
enter(fp_thread *t, uint32_t function, int64_t now)
{
    kit_enter(t, kit_function(function), now);
}

static void
leave(fp_thread *t, uint32_t function, int64_t now)
{
    fp_thread_leave(t, kit_function(function), now);
}

static void
finish(fp_thread *t, const fake_memory *m, int64_t elapsed)
{
    check_complete(t, m, elapsed);
    fp_thread_destroy(t);
    CHECK_UINT(m->bytes, 0);
}

#define AT(t, ...) \
    kit_at((t), (const fp_key[]){__VA_ARGS__}, \
           sizeof((const fp_key[]){__VA_ARGS__}) / sizeof(fp_key))
#define FN(i) kit_function(i)
#define SEC(i) fp_key_section(i)

static void
check_node(const fp_node *n, uint64_t calls, int64_t self_ticks)
{
    CHECK(n != NULL);
    CHECK_UINT(n->calls, calls);
    CHECK_INT(n->self_ticks, self_ticks);
}

#define CHECK_PATH(t, ...) \
    check_path((t), (const fp_key[]){0, __VA_ARGS__}, \
               sizeof((const fp_key[]){0, __VA_ARGS__}) / sizeof(fp_key) - 1)

/* [keys]: outermost first; the first one does not count. */
static void
check_path(const fp_thread *t, const fp_key *keys, size_t len)
{
    fp_key got[16];
    CHECK_UINT(kit_path(t, got, 16), len);
    for (size_t i = 0; i < len; i++) {
        CHECK(got[len - 1 - i] == keys[i + 1]);
    }
    check_consistent(t);
}

FP_TEST(thread_charges_every_tick_to_one_node)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 100);
    enter(t, F, 103);
    enter(t, G, 110);
    leave(t, G, 111);
    enter(t, G, 120);
    enter(t, F, 122);
    leave(t, F, 125);
    leave(t, G, 130);
    leave(t, F, 140);
    fp_thread_charge(t, 141);
    check_node(fp_tree_root(&t->tree), 0, 3 + 1);
    check_node(AT(t, FN(F)), 1, 7 + 9 + 10);
    check_node(AT(t, FN(F), FN(G)), 2, 1 + 2 + 5);
    check_node(AT(t, FN(F), FN(G), FN(F)), 1, 3);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    finish(t, &m, 41);
}

FP_TEST(thread_a_return_without_a_call_is_ignored)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    leave(t, F, 5); /* began before the recording: not counted */
    leave(t, G, 6);
    CHECK_UINT(t->counters.unmatched, 0);
    enter(t, F, 10);
    leave(t, G, 12);
    CHECK_UINT(t->counters.unmatched, 1);
    CHECK_PATH(t, FN(F));
    leave(t, F, 20);
    leave(t, H, 25);
    fp_thread_charge(t, 30);
    check_node(AT(t, FN(F)), 1, 10);
    CHECK_UINT(t->counters.unmatched, 1);
    CHECK_UINT(t->counters.unbalanced, 0);
    finish(t, &m, 30);
}

FP_TEST(thread_a_missing_return_is_closed_with_its_caller)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    enter(t, F, 1);
    enter(t, G, 2);
    enter(t, H, 4);
    leave(t, F, 9);
    CHECK_UINT(t->counters.unbalanced, 2);
    CHECK(t->cur == fp_tree_root(&t->tree));
    fp_thread_charge(t, 10);
    check_node(AT(t, FN(F), FN(G), FN(H)), 1, 5);
    check_node(AT(t, FN(F), FN(G)), 1, 2);
    finish(t, &m, 10);
}

FP_TEST(thread_recursion_closes_the_innermost)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    enter(t, F, 1);
    enter(t, F, 2);
    enter(t, G, 3);
    leave(t, F, 4);
    CHECK_UINT(t->counters.unbalanced, 1);
    CHECK_PATH(t, FN(F));
    leave(t, F, 6);
    CHECK(!fp_thread_in_function(t));
    check_node(AT(t, FN(F)), 1, 1 + 2);
    check_node(AT(t, FN(F), FN(F)), 1, 1);
    fp_thread_charge(t, 6);
    finish(t, &m, 6);
}

FP_TEST(thread_sections_and_functions_nest_in_one_tree)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK(!fp_thread_has_open_section(t, FORWARD));
    enter(t, F, 10);
    kit_open(t, FORWARD, 20);
    CHECK(fp_thread_has_open_section(t, FORWARD));
    CHECK(!fp_thread_has_open_section(t, DATA));
    enter(t, G, 25);
    CHECK_PATH(t, FN(F), SEC(FORWARD), FN(G));
    leave(t, G, 31);
    kit_close(t, FORWARD, 40);
    leave(t, F, 50);
    const fp_section *s = t->section[FORWARD];
    CHECK_UINT(s->count, 1);
    CHECK_INT(s->sum_ticks, 20);
    CHECK_INT(s->outer_ticks, 20);
    check_node(AT(t, FN(F), SEC(FORWARD)), 1, 5 + 9);
    check_node(AT(t, FN(F), SEC(FORWARD), FN(G)), 1, 6);
    CHECK_INT(fp_thread_close_section(t, FORWARD, NULL, 0, 55), FP_ENOTFOUND);
    CHECK_INT(fp_thread_close_section(t, 999, NULL, 0, 55), FP_ENOTFOUND);
    CHECK_UINT(s->count, 1);
    fp_thread_charge(t, 60);
    finish(t, &m, 60);
}

FP_TEST(thread_a_recursive_section_counts_its_outer_time_once)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 10);
    kit_open(t, DATA, 12);
    kit_close(t, DATA, 15);
    CHECK_UINT(t->section[DATA]->open, 1);
    CHECK_INT(t->section[DATA]->outer_ticks, 0);
    kit_close(t, DATA, 30);
    CHECK_UINT(t->section[DATA]->count, 2);
    CHECK_INT(t->section[DATA]->sum_ticks, 3 + 20);
    CHECK_INT(t->section[DATA]->outer_ticks, 20);
    CHECK_INT(t->section[DATA]->min_ticks, 3);
    CHECK_INT(t->section[DATA]->max_ticks, 20);
    finish(t, &m, 30);
}

FP_TEST(thread_an_error_is_counted_and_a_cancelled_entry_is_no_sample)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 1);
    CHECK_INT(fp_thread_close_section(t, DATA, NULL, FP_EXIT_ERROR, 5), FP_OK);
    kit_open(t, DATA, 6);
    CHECK_INT(fp_thread_close_section(t, DATA, NULL, FP_EXIT_CANCEL, 16),
              FP_OK);
    CHECK_UINT(t->section[DATA]->count, 1);
    CHECK_UINT(t->section[DATA]->errors, 1);
    CHECK_UINT(t->section[DATA]->open, 0);
    CHECK_INT(t->section[DATA]->sum_ticks, 4);
    /* its time did pass there: as in the steps and in the tree */
    CHECK_INT(t->section[DATA]->outer_ticks, 14);
    check_node(AT(t, SEC(DATA)), 2, 14);
    finish(t, &m, 16);
}

FP_TEST(thread_sections_left_out_of_order_keep_the_others_open)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 0);
    enter(t, F, 1);
    kit_open(t, FORWARD, 2);
    enter(t, G, 4);
    kit_close(t, DATA, 8);
    CHECK_UINT(t->counters.out_of_order, 1);
    CHECK_PATH(t, FN(F), SEC(FORWARD), FN(G));
    leave(t, G, 10);
    kit_close(t, FORWARD, 13);
    leave(t, F, 20);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    CHECK_INT(t->section[DATA]->sum_ticks, 8);
    CHECK_INT(t->section[FORWARD]->sum_ticks, 11);
    check_node(AT(t, SEC(DATA), FN(F), SEC(FORWARD), FN(G)), 1, 4);
    check_node(AT(t, FN(F), SEC(FORWARD), FN(G)), 0, 2);
    check_node(AT(t, FN(F)), 0, 7);
    finish(t, &m, 20);
}

FP_TEST(thread_f27_owners_close_their_own_entries)
{
    static const char first, second;
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_thread_open_section(t, DATA, FP_PHASE_NONE, &first, 0),
              FP_OK);
    CHECK_INT(fp_thread_open_section(t, DATA, FP_PHASE_NONE, &second, 10),
              FP_OK);
    /* Tasks that take turns are not out of order. */
    CHECK_INT(fp_thread_close_section(t, DATA, &first, 0, 100), FP_OK);
    CHECK_UINT(t->counters.out_of_order, 0);
    CHECK_INT(t->section[DATA]->max_ticks, 100);
    CHECK_INT(fp_thread_close_section(t, DATA, &second, 0, 130), FP_OK);
    CHECK_INT(t->section[DATA]->max_ticks, 120);
    CHECK_INT(t->section[DATA]->sum_ticks, 220);
    CHECK_INT(t->section[DATA]->outer_ticks, 130); /* never 220 */
    /* Without an entry of this owner the innermost one is closed. */
    CHECK_INT(fp_thread_open_section(t, DATA, FP_PHASE_NONE, &first, 200),
              FP_OK);
    CHECK_INT(fp_thread_close_section(t, DATA, NULL, 0, 201), FP_OK);
    CHECK_UINT(t->section[DATA]->open, 0);
    fp_thread_charge(t, 201);
    finish(t, &m, 201);
}

FP_TEST(thread_a_yield_inside_a_section_leaves_the_section_open)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    enter(t, F, 1);
    enter(t, GEN, 2);
    kit_open(t, DATA, 4);
    leave(t, GEN, 7); /* yields inside `with` */
    CHECK_PATH(t, FN(F), SEC(DATA));
    CHECK_UINT(t->counters.unbalanced, 0);
    enter(t, G, 10);
    leave(t, G, 12);
    enter(t, GEN, 15); /* resumed */
    CHECK_PATH(t, FN(F), SEC(DATA), FN(GEN));
    kit_close(t, DATA, 20);
    CHECK_PATH(t, FN(F), FN(GEN));
    leave(t, GEN, 22);
    leave(t, F, 30);
    CHECK_INT(t->section[DATA]->sum_ticks, 16);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    CHECK_UINT(t->counters.out_of_order, 0);
    check_node(AT(t, FN(F), FN(GEN), SEC(DATA)), 1, 3);
    check_node(AT(t, FN(F), SEC(DATA)), 0, 3 + 3);
    check_node(AT(t, FN(F), SEC(DATA), FN(G)), 1, 2);
    check_node(AT(t, FN(F), SEC(DATA), FN(GEN)), 1, 5);
    check_node(AT(t, FN(F), FN(GEN)), 1, 2 + 2);
    fp_thread_charge(t, 30);
    finish(t, &m, 30);
}

FP_TEST(thread_a_yield_to_the_root_keeps_all_its_sections)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, BACKWARD, 0);
    enter(t, GEN, 2);
    kit_open(t, DATA, 4);
    kit_open(t, FORWARD, 5);
    leave(t, GEN, 7);
    CHECK_PATH(t, SEC(BACKWARD), SEC(DATA), SEC(FORWARD));
    CHECK(!fp_thread_in_function(t));
    kit_close(t, BACKWARD, 8);
    CHECK_PATH(t, SEC(DATA), SEC(FORWARD));
    kit_close(t, FORWARD, 9);
    kit_close(t, DATA, 10);
    CHECK(t->cur == fp_tree_root(&t->tree));
    finish(t, &m, 10);
}

FP_TEST(thread_dropping_functions_keeps_the_sections)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    fp_thread_drop_functions(t, 1);
    kit_open(t, DATA, 2);
    fp_thread_drop_functions(t, 3);
    CHECK_PATH(t, SEC(DATA));
    enter(t, F, 4);
    kit_open(t, FORWARD, 5);
    enter(t, G, 7);
    CHECK(fp_thread_in_function(t));
    fp_thread_drop_functions(t, 10);
    CHECK(!fp_thread_in_function(t));
    CHECK_PATH(t, SEC(DATA), SEC(FORWARD));
    leave(t, G, 11); /* reported again: ignored */
    leave(t, F, 12);
    CHECK_PATH(t, SEC(DATA), SEC(FORWARD));
    kit_close(t, FORWARD, 15);
    kit_close(t, DATA, 16);
    CHECK_INT(t->section[FORWARD]->sum_ticks, 10);
    check_node(AT(t, SEC(DATA), FN(F), SEC(FORWARD), FN(G)), 1, 3);
    finish(t, &m, 16);
}

FP_TEST(thread_dropping_sections_keeps_the_functions)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 2);
    enter(t, F, 4);
    kit_open(t, FORWARD, 5);
    enter(t, G, 7);
    fp_thread_drop_sections(t, 10);
    CHECK_PATH(t, FN(F), FN(G));
    CHECK_UINT(t->section[DATA]->open, 1); /* reported as still open */
    CHECK_UINT(t->section[DATA]->count, 0);
    CHECK_INT(fp_thread_close_section(t, DATA, NULL, 0, 11), FP_ENOTFOUND);
    leave(t, G, 12);
    leave(t, F, 13);
    CHECK_UINT(t->counters.unbalanced + t->counters.unmatched, 0);
    fp_thread_charge(t, 13);
    finish(t, &m, 13);
}

FP_TEST(thread_outer_time_goes_on_after_sections_were_dropped)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 2);
    fp_thread_drop_sections(t, 10);
    kit_open(t, DATA, 20); /* sections are switched on again */
    kit_open(t, DATA, 22);
    kit_close(t, DATA, 24);
    kit_close(t, DATA, 50);
    CHECK_UINT(t->section[DATA]->open, 1);
    CHECK_UINT(t->section[DATA]->count, 2);
    CHECK_INT(t->section[DATA]->sum_ticks, 32);
    CHECK_INT(t->section[DATA]->outer_ticks, 30);
    finish(t, &m, 50);
}

FP_TEST(thread_steps_give_their_time_to_the_section_at_the_bottom)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 10); /* before the first step */
    CHECK_INT(fp_thread_start_steps(t, 1, 100), FP_OK);
    kit_close(t, DATA, 140);
    fp_thread_end_step(t, 200); /* warm-up: measured nowhere */
    CHECK_UINT(t->section[DATA]->steps, 0);
    CHECK_INT(t->section[DATA]->steps_ticks, 0);

    kit_open(t, DATA, 210);
    kit_close(t, DATA, 230);
    kit_open(t, FORWARD, 230);
    kit_open(t, BACKWARD, 240); /* inside: the time belongs to FORWARD */
    kit_close(t, BACKWARD, 250);
    kit_close(t, FORWARD, 260);
    kit_open(t, DATA, 270);
    fp_thread_end_step(t, 300);
    CHECK_UINT(t->section[DATA]->steps, 1);
    CHECK_INT(t->section[DATA]->steps_ticks, 20 + 30);
    CHECK_UINT(t->section[FORWARD]->steps, 1);
    CHECK_INT(t->section[FORWARD]->steps_ticks, 30);
    CHECK_UINT(t->section[BACKWARD]->steps, 0);

    kit_close(t, DATA, 305); /* open over the boundary */
    fp_thread_end_step(t, 400);
    CHECK_UINT(t->section[DATA]->steps, 2);
    CHECK_INT(t->section[DATA]->steps_ticks, 55);
    CHECK_UINT(t->section[FORWARD]->steps, 1);
    CHECK_UINT(t->steps->count, 3);
    CHECK_INT(t->steps->measured.sum_ticks, 200);
    fp_thread_charge(t, 400);
    finish(t, &m, 400);
}

FP_TEST(thread_the_first_step_has_no_time_from_before_it)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    kit_open(t, DATA, 10);
    CHECK_INT(fp_thread_start_steps(t, 0, 100), FP_OK);
    kit_close(t, DATA, 140);
    fp_thread_end_step(t, 200);
    CHECK_INT(t->section[DATA]->steps_ticks, 40);
    CHECK_INT(t->steps->measured.sum_ticks, 100);
    fp_thread_charge(t, 200);
    finish(t, &m, 200);
}

FP_TEST(thread_a_restarted_step_drops_the_old_times)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_thread_start_steps(t, 0, 0), FP_OK);
    kit_open(t, DATA, 10);
    kit_close(t, DATA, 30);
    kit_open(t, FORWARD, 40); /* open when the new step begins */
    CHECK_INT(fp_thread_start_steps(t, 0, 50), FP_OK);
    kit_close(t, FORWARD, 70);
    fp_thread_end_step(t, 100);
    CHECK_UINT(t->steps->count, 1);
    CHECK_INT(t->steps->measured.sum_ticks, 50);
    CHECK_UINT(t->section[DATA]->steps, 0);
    CHECK_INT(t->section[DATA]->steps_ticks, 0);
    CHECK_INT(t->section[FORWARD]->steps_ticks, 20);
    fp_thread_charge(t, 100);
    finish(t, &m, 100);
}

static fp_sum
phase_total(const fp_thread *t, int32_t tag, fp_phase phase)
{
    return t->phases.loader[tag + 1].total[phase];
}

static void
phase_section(fp_thread *t, uint32_t id, fp_phase phase, int64_t from,
              int64_t to)
{
    CHECK_INT(fp_thread_open_section(t, id, phase, NULL, from), FP_OK);
    kit_close(t, id, to);
}

FP_TEST(thread_a_parked_section_is_one_sample_of_its_parts)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_phases_reserve(&t->phases, &t->alloc, 0), FP_OK);
    t->phases.tag = 0;
    CHECK_INT(fp_thread_open_section(t, FORWARD, FP_PHASE_FORWARD, NULL, 100),
              FP_OK);
    CHECK_INT(fp_thread_close_section(t, FORWARD, NULL, FP_EXIT_PARK, 110),
              FP_OK);
    CHECK(!fp_thread_has_open_section(t, FORWARD));
    CHECK_UINT(t->section[FORWARD]->count, 0);
    CHECK_INT(
        fp_thread_resume_section(t, FORWARD, FP_PHASE_FORWARD, NULL, 150),
        FP_OK);
    CHECK_INT(fp_thread_close_section(t, FORWARD, NULL, FP_EXIT_PARK, 155),
              FP_OK);
    fp_thread_end_parked_section(t, FP_PHASE_FORWARD);
    const fp_section *s = t->section[FORWARD];
    CHECK_UINT(s->count, 1);
    CHECK_INT(s->sum_ticks, 15);
    CHECK_INT(s->outer_ticks, 15);
    CHECK_INT(phase_total(t, 0, FP_PHASE_FORWARD).ticks, 15);
    CHECK_UINT(phase_total(t, 0, FP_PHASE_FORWARD).count, 1);
    check_node(AT(t, SEC(FORWARD)), 1, 15);
    CHECK_UINT(AT(t, SEC(FORWARD))->resumes, 1);
    fp_thread_charge(t, 200);
    finish(t, &m, 200);
}

FP_TEST(thread_s4_04_phase_sections_end_the_batch)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_phases_reserve(&t->phases, &t->alloc, 0), FP_OK);
    CHECK_INT(fp_thread_start_steps(t, 0, 0), FP_OK);
    for (int64_t at = 0; at < 3000; at += 1000) {
        CHECK_INT(
            fp_thread_open_section(t, DATA, FP_PHASE_DATA, NULL, at + 100),
            FP_OK);
        fp_phases_ask(&t->phases, 0, at + 100);
        fp_phases_deliver(&t->phases, 0, at + 120);
        t->phases.tag = 0;
        kit_close(t, DATA, at + 120); /* does not end the batch */
        phase_section(t, FORWARD, FP_PHASE_FORWARD, at + 200, at + 300);
        phase_section(t, BACKWARD, FP_PHASE_BACKWARD, at + 300, at + 500);
        if (at == 1000) {
            fp_thread_end_step(t, at + 900); /* later than the last section */
        }
    }
    fp_sum wait = phase_total(t, 0, FP_PHASE_BATCH_WAIT);
    CHECK_UINT(wait.count, 2);
    CHECK_INT(wait.ticks, (1120 - 500) + (2120 - 1900));
    fp_sum any = phase_total(t, -1, FP_PHASE_BATCH_WAIT);
    CHECK(any.count == wait.count && any.ticks == wait.ticks);
    CHECK_UINT(phase_total(t, 0, FP_PHASE_DATA).count, 3);
    CHECK_INT(phase_total(t, 0, FP_PHASE_DATA).ticks, 60);
    CHECK_INT(phase_total(t, 0, FP_PHASE_FORWARD).ticks, 300);
    CHECK_INT(phase_total(t, 0, FP_PHASE_BACKWARD).ticks, 600);
    CHECK_UINT(phase_total(t, -1, FP_PHASE_FORWARD).count, 0);
    fp_thread_charge(t, 3000);
    finish(t, &m, 3000);
}

FP_TEST(thread_s4_04_a_data_section_does_not_end_the_batch)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_phases_reserve(&t->phases, &t->alloc, 0), FP_OK);
    t->phases.tag = 0;
    for (int64_t at = 0; at < 2000; at += 1000) {
        CHECK_INT(fp_thread_open_section(t, DATA, FP_PHASE_DATA, NULL, at),
                  FP_OK);
        fp_phases_ask(&t->phases, 0, at);
        fp_phases_deliver(&t->phases, 0, at + 20);
        kit_close(t, DATA, at + 21);
    }
    /* From the request, not from the end of the section before. */
    CHECK_INT(phase_total(t, 0, FP_PHASE_BATCH_WAIT).ticks, 20);
    fp_thread_charge(t, 2000);
    finish(t, &m, 2000);
}

FP_TEST(thread_a_phase_inside_the_same_phase_is_one_sample)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_phases_reserve(&t->phases, &t->alloc, -1), FP_OK);
    CHECK_INT(fp_thread_open_section(t, 7, FP_PHASE_FORWARD, NULL, 0), FP_OK);
    phase_section(t, FORWARD, FP_PHASE_FORWARD, 10, 20);
    CHECK_UINT(phase_total(t, -1, FP_PHASE_FORWARD).count, 0);
    phase_section(t, BACKWARD, FP_PHASE_BACKWARD, 20, 25);
    kit_close(t, 7, 50);
    CHECK_UINT(phase_total(t, -1, FP_PHASE_FORWARD).count, 1);
    CHECK_INT(phase_total(t, -1, FP_PHASE_FORWARD).ticks, 50);
    CHECK_INT(phase_total(t, -1, FP_PHASE_BACKWARD).ticks, 5);
    finish(t, &m, 50);
}

FP_TEST(thread_f34_a_clock_that_goes_back_is_counted)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 1000);
    CHECK_INT(fp_thread_start_steps(t, 0, 1000), FP_OK);
    enter(t, F, 1010);
    enter(t, G, 900); /* the clock goes back: 0 */
    kit_open(t, DATA, 950);
    kit_close(t, DATA, 940); /* the clock goes back: 0 */
    leave(t, G, 960);
    leave(t, F, 800); /* the clock goes back: 0 */
    fp_thread_end_step(t, 500);
    fp_thread_charge(t, 801);
    CHECK_UINT(t->counters.clock_back, 6);
    CHECK_INT(t->section[DATA]->sum_ticks, 0);
    CHECK_INT(t->section[DATA]->outer_ticks, 0);
    CHECK_INT(t->section[DATA]->steps_ticks, 0);
    CHECK_INT(t->steps->measured.min_ticks, 0);
    CHECK_INT(kit_sum(t, 0).self_ticks, 10);
    check_consistent(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(thread_f34_time_is_charged_once_if_the_clock_goes_back)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    fp_thread_charge(t, 100);
    fp_thread_charge(t, 90);
    fp_thread_charge(t, 120);
    CHECK_INT(kit_sum(t, 0).self_ticks, 120);
    int64_t set = 120 - (int64_t)FP_CLOCK_WAS_SET;
    fp_thread_charge(t, set);
    fp_thread_charge(t, set + 5);
    CHECK_INT(kit_sum(t, 0).self_ticks, 125);
    CHECK_UINT(t->counters.clock_back, 2);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(thread_f34_a_random_clock_never_makes_a_time_negative)
{
    fake_memory m = {0};
    fp_thread *t = thread_from(&m, 0);
    CHECK_INT(fp_thread_start_steps(t, 0, 0), FP_OK);
    uint64_t state = 41, back = 0;
    int64_t last = 0, forward = 0;
    for (int i = 0; i < 20000; i++) {
        int64_t now = (int64_t)fake_below(&state, 1000) - 500;
        uint32_t id = fake_below(&state, 3);
        switch (fake_below(&state, 5)) {
        case 0:
            enter(t, id, now);
            break;
        case 1:
            fp_thread_drop_functions(t, now);
            break;
        case 2:
            kit_open(t, id, now);
            break;
        case 3:
            if (t->open_len == 0 || !t->open[t->open_len - 1].on_path) {
                kit_open(t, id, now);
            }
            kit_close(t, fp_key_section_id(t->open[t->open_len - 1].key), now);
            break;
        default:
            fp_thread_end_step(t, now);
            fp_thread_charge(t, now);
        }
        back += now < last;
        forward += now > last ? now - last : 0;
        last = now > last ? now : last;
    }
    CHECK(t->counters.clock_back >= back); /* some events read it twice */
    CHECK_INT(kit_sum(t, 0).self_ticks, forward);
    CHECK(t->steps->measured.min_ticks == 0 &&
          t->steps->measured.sum_ticks >= 0);
    for (uint32_t id = 0; id < 3; id++) {
        CHECK(t->section[id]->steps_ticks >= 0);
    }
    check_consistent(t);
    fp_thread_destroy(t);
    CHECK_UINT(m.bytes, 0);
}
