#include "fake.h"
#include "gpu/nvtx_out.h"

/* A tool that keeps the names of open ranges, with and without domains. */

enum { MAX_OPEN = 4096 };

static const char *opened[2][MAX_OPEN];
static unsigned depth[2], pushes, creates;
static int handle;

static int
tool_push(const char *name)
{
    CHECK(depth[0] < MAX_OPEN);
    opened[0][depth[0]++] = name;
    pushes++;
    return 0;
}

static int
tool_pop(void)
{
    CHECK(depth[0] > 0);
    depth[0]--;
    return 0;
}

static void *
tool_create(const char *name)
{
    CHECK_STR(name, "fastprof");
    creates++;
    return &handle;
}

static int
tool_push_ex(void *domain, const fp_nvtx_event *e)
{
    CHECK(domain == &handle && depth[1] < MAX_OPEN);
    CHECK_INT(e->version, 3);
    CHECK_INT(e->size, 48);
    CHECK_INT(e->message_type, FP_NVTX_MESSAGE_ASCII);
    opened[1][depth[1]++] = e->message.ascii;
    pushes++;
    return 0;
}

static int
tool_pop_ex(void *domain)
{
    CHECK(domain == &handle && depth[1] > 0);
    depth[1]--;
    return 0;
}

/* Sets a function through the table, as a tool does. */
static void
fill(fp_nvtx_out *o, int module, unsigned id, fp_nvtx_function f)
{
    fp_nvtx_table table = NULL;
    unsigned count = 0;
    CHECK(fp_nvtx_out_module(o, module, &table, &count));
    CHECK(id < count && table[0] == NULL && table[id] != NULL);
    *table[id] = f;
}

#define FILL(o, module, id, f) \
    fill(o, module, id, (fp_nvtx_function)(void (*)(void))f)

static void
fill_domains(fp_nvtx_out *o)
{
    FILL(o, FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_PUSH_EX, tool_push_ex);
    FILL(o, FP_NVTX_CORE2, FP_NVTX_DOMAIN_RANGE_POP, tool_pop_ex);
    FILL(o, FP_NVTX_CORE2, FP_NVTX_DOMAIN_CREATE_A, tool_create);
}

static fp_nvtx_open
section(uint32_t id)
{
    return (fp_nvtx_open){.epoch = 1, .id = id};
}

FP_TEST(nvtx_out_modules_have_the_sizes_of_nvtx_3)
{
    fp_nvtx_out o = {0};
    const unsigned want[] = {0, 16, 9, 15, 7, 16, 7};
    for (int module = -1; module < 10; module++) {
        fp_nvtx_table table = NULL;
        unsigned count = 0;
        int there = module >= 1 && module < FP_NVTX_MODULES;
        CHECK_INT(fp_nvtx_out_module(&o, module, NULL, NULL), there);
        CHECK_INT(fp_nvtx_out_module(&o, module, &table, &count), there);
        CHECK_UINT(count, there ? want[module] : 0);
        for (unsigned i = 0; i < count; i++) {
            CHECK((table[i] == NULL) == (i == 0));
        }
    }
}

FP_TEST(nvtx_out_says_why_there_is_no_tool)
{
    fp_nvtx_out o;
    const char *const bad[] = {"/nowhere/tool.so", "here/tool.so", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fp_why why = {""};
        CHECK_INT(fp_nvtx_out_open(&o, bad[i], NULL, NULL, &why), -1);
        CHECK(why.text[0] != '\0' && o.library == NULL);
    }
}

FP_TEST(nvtx_out_without_a_listener_does_nothing)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_nvtx_out o = {0};
    fp_nvtx_stack s = {0};
    fp_nvtx_out_push(&o, &s, &a, "a", section(1));
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, section(1)), 0);
    fp_nvtx_out_push(&o, &s, &a, "a", section(1));
    fill_domains(&o); /* an earlier range is not in the tool's domain */
    fp_nvtx_out_push(&o, &s, &a, "b", section(2));
    CHECK_UINT(depth[1], 1);
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, section(2)), 0);
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, section(1)), 0);
    CHECK_UINT(depth[1], 0);
    fp_nvtx_stack_free(&s, &a);
    CHECK_UINT(m.bytes, 0);
}

FP_TEST(nvtx_out_changes_from_one_stack_to_the_other_in_order)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_nvtx_out o = {0};
    fp_nvtx_stack s = {0};
    FILL(&o, FP_NVTX_CORE, FP_NVTX_RANGE_PUSH_A, tool_push);
    FILL(&o, FP_NVTX_CORE, FP_NVTX_RANGE_POP, tool_pop);
    fp_nvtx_out_push(&o, &s, &a, "a", section(1));
    fill_domains(&o);
    fp_nvtx_out_push(&o, &s, &a, "b", section(2));
    CHECK_UINT(depth[0], 1);
    CHECK_UINT(depth[1], 1);
    CHECK_STR(opened[1][0], "b");
    fp_nvtx_out_end(&o, &s);
    CHECK_UINT(depth[0] + depth[1], 0);
    CHECK_UINT(creates, 1);
    fp_nvtx_stack_free(&s, &a);
}

FP_TEST(nvtx_out_separates_tasks_and_recordings)
{
    fake_memory m = {0};
    fp_alloc a = fake_alloc(&m);
    fp_nvtx_out o = {0};
    fp_nvtx_stack s = {0};
    int one, two;
    fill_domains(&o);
    fp_nvtx_open first = {.owner = &one, .epoch = 1, .id = 7};
    fp_nvtx_open second = {.owner = &two, .epoch = 1, .id = 7};
    fp_nvtx_out_push(&o, &s, &a, "x", first);
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, second), 0);
    CHECK_UINT(depth[1], 1);
    fp_nvtx_out_push(&o, &s, &a, "x", second);
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, first), 1);
    CHECK_UINT(depth[1], 0);
    fp_nvtx_out_push(&o, &s, &a, "x", section(7)); /* before any task */
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, first), 0);
    CHECK_UINT(depth[1], 0);
    fp_nvtx_out_push(&o, &s, &a, "old", first);
    first.epoch = second.epoch = 2;
    CHECK_UINT(fp_nvtx_out_pop(&o, &s, first), 0);
    CHECK_UINT(depth[1], 1);
    fp_nvtx_out_push(&o, &s, &a, "new", second);
    CHECK_UINT(depth[1], 1);
    CHECK_STR(opened[1][0], "new");
    fp_nvtx_stack_free(&s, &a);
}

/* Sections open and close at random, in and out of order, while memory
 * sometimes fails: the tool's stack always equals ours. */
FP_TEST(nvtx_out_stays_balanced_under_a_random_program)
{
    fake_memory m = {.fail_one_in = 2, .random_state = 5};
    fp_alloc a = fake_alloc(&m);
    fp_nvtx_out o = {0};
    fp_nvtx_stack s = {0};
    uint64_t random = 1;
    uint64_t cut = 0;
    fill_domains(&o);
    for (int i = 0; i < 20000; i++) {
        fp_nvtx_open what = section(fake_below(&random, 400));
        if (s.length < 2000 && fake_below(&random, 16) < 15) {
            fp_nvtx_out_push(&o, &s, &a, "x", what);
        }
        else {
            uint32_t before = s.length;
            uint32_t inner = fp_nvtx_out_pop(&o, &s, what);
            CHECK(inner == 0 || s.length + inner + 1 == before);
            cut += inner;
        }
        CHECK_UINT(depth[1], s.length);
    }
    CHECK(cut > 0 && m.failures > 0 && pushes > 1000);
    fp_nvtx_out_end(&o, &s);
    CHECK_UINT(depth[1], 0);
    fp_nvtx_stack_free(&s, &a);
    CHECK_UINT(m.bytes, 0);
}
