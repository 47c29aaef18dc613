#include "gpu/buffers.h"
#include "gpu_kit.h"

#include <pthread.h>
#include <sched.h>

FP_TEST(gpu_buffers_are_lent_decoded_oldest_first_and_lent_again)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_buffers b;
    CHECK_INT(fp_buffers_init(&b, &a), FP_OK);
    uint8_t *data[4];
    size_t size = 0;
    for (int i = 0; i < 4; i++) {
        data[i] = fp_buffers_lend(&b, &size, 0);
        CHECK_UINT(size, FP_BUFFER_BYTES);
        CHECK((uintptr_t)data[i] % 8 == 0);
    }
    CHECK_UINT(fp_buffers_lent(&b), 4);
    int context;
    CHECK_INT(fp_buffers_accept(&b, data[2], 100, &context, 7), 1);
    CHECK_INT(fp_buffers_accept(&b, data[0], 200, NULL, 0), 1);
    CHECK_INT(fp_buffers_accept(&b, data[3], 0, NULL, 0), 0); /* empty */
    CHECK_UINT(fp_buffers_lent(&b), 1);
    fp_buffer *full[FP_BUFFERS];
    CHECK_UINT(fp_buffers_take_full(&b, full), 2);
    CHECK(full[0]->data == data[2] && full[1]->data == data[0]);
    CHECK_UINT(full[0]->valid, 100);
    CHECK(full[0]->context == &context);
    CHECK_UINT(full[0]->stream, 7);
    fp_buffer *none[FP_BUFFERS];
    CHECK_UINT(fp_buffers_take_full(&b, none), 0); /* they are taken already */
    size_t held = memory.bytes;
    fp_buffers_give_back(full[0]);
    fp_buffers_give_back(full[1]);
    for (int i = 0; i < 3; i++) {
        (void)fp_buffers_lend(&b, &size, 0);
    }
    CHECK_UINT(memory.bytes, held); /* the memory is reused */
    CHECK_UINT(fp_buffers_lent(&b), 4);
    fp_buffers_fini(&b);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(gpu_buffers_f32_when_all_are_lent_records_are_discarded)
{
    fp_alloc a = fp_alloc_libc();
    fp_buffers b;
    CHECK_INT(fp_buffers_init(&b, &a), FP_OK);
    size_t size = 0;
    uint8_t *first = NULL;
    for (int i = 0; i < FP_BUFFERS; i++) {
        uint8_t *data = fp_buffers_lend(&b, &size, 0);
        first = first != NULL ? first : data;
        CHECK_UINT(size, FP_BUFFER_BYTES);
    }
    uint8_t *spare[3];
    for (int i = 0; i < 3; i++) {
        spare[i] = fp_buffers_lend(&b, &size, 0);
        CHECK_UINT(size, FP_SPARE_BYTES);
        for (int k = 0; k < i; k++) { /* several threads may write at once */
            CHECK(spare[k] != spare[i]);
        }
    }
    CHECK_UINT(b.lent_spares, 3);
    CHECK_INT(fp_buffers_accept(&b, spare[1], 500, NULL, 0), 0);
    CHECK_INT(fp_buffers_accept(&b, spare[0], 0, NULL, 0), 0);
    CHECK_UINT(b.discarded, 1); /* the empty one held no records */
    fp_buffer *full[FP_BUFFERS];
    CHECK_UINT(fp_buffers_take_full(&b, full), 0);
    CHECK_INT(fp_buffers_accept(&b, first, 8, NULL, 0), 1);
    CHECK_UINT(fp_buffers_take_full(&b, full), 1);
    fp_buffers_give_back(full[0]);
    CHECK(fp_buffers_lend(&b, &size, 0) == first);
    fp_buffers_fini(&b);
}

FP_TEST(gpu_buffers_ignores_foreign_buffers)
{
    fp_alloc a = fp_alloc_libc();
    fp_buffers b;
    CHECK_INT(fp_buffers_init(&b, &a), FP_OK);
    uint8_t foreign[64];
    memset(foreign, 1, sizeof(foreign));
    size_t size = 0;
    uint8_t *data = fp_buffers_lend(&b, &size, 0);
    CHECK_INT(fp_buffers_accept(&b, foreign, 64, NULL, 0), 0);
    CHECK_INT(fp_buffers_accept(&b, NULL, 64, NULL, 0), 0);
    CHECK_INT(fp_buffers_accept(&b, data + 8, 64, NULL, 0), 0);
    CHECK_UINT(fp_buffers_lent(&b), 1);
    CHECK_UINT(b.discarded, 0);
    /* A size above the buffer's is cut; the second return is ignored. */
    CHECK_INT(fp_buffers_accept(&b, data, SIZE_MAX, NULL, 0), 1);
    CHECK_INT(fp_buffers_accept(&b, data, 64, NULL, 0), 0);
    fp_buffer *full[FP_BUFFERS];
    CHECK_UINT(fp_buffers_take_full(&b, full), 1);
    CHECK_UINT(full[0]->valid, FP_BUFFER_BYTES);
    fp_buffers_fini(&b);
}

FP_TEST(gpu_buffers_f36_without_memory_the_spare_is_lent)
{
    fake_memory memory = {.fail_at = 1};
    fp_alloc a = fake_alloc(&memory);
    fp_buffers b;
    CHECK_INT(fp_buffers_init(&b, &a), FP_ENOMEM);
    CHECK_UINT(memory.bytes, 0);
    memory = (fake_memory){.fail_at = 4, .fail_on = true};
    CHECK_INT(fp_buffers_init(&b, &a), FP_OK);
    size_t size = 0;
    uint8_t *one = fp_buffers_lend(&b, &size, 0);
    uint8_t *two = fp_buffers_lend(&b, &size, 0);
    CHECK(fp_buffers_lend(&b, &size, 0) == b.last);
    CHECK_UINT(size, FP_SPARE_BYTES);
    atomic_store(&b.may_refuse, 1);
    CHECK(fp_buffers_lend(&b, &size, 0) == NULL);
    CHECK_UINT(size, 0);
    (void)fp_buffers_accept(&b, two, 0, NULL, 0);
    CHECK(fp_buffers_lend(&b, &size, 0) == two);
    memory.fail_at = 0;
    CHECK(fp_buffers_lend(&b, &size, 0) != b.last);
    (void)fp_buffers_accept(&b, one, 0, NULL, 0);
    fp_buffers_fini(&b);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(gpu_buffers_f36_lends_a_slot_with_memory_before_the_spare)
{
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_buffers b;
    CHECK_INT(fp_buffers_init(&b, &a), FP_OK);
    size_t size = 0;
    /* As if slot 0 failed to allocate while another thread got slot 1. */
    atomic_store(&b.slot[0].state, FP_BUFFER_CLAIMED);
    uint8_t *data = fp_buffers_lend(&b, &size, 0);
    atomic_store(&b.slot[0].state, FP_BUFFER_FREE);
    (void)fp_buffers_accept(&b, data, 0, NULL, 0);
    memory.fail_at = memory.takes + 1;
    memory.fail_on = true;
    CHECK(fp_buffers_lend(&b, &size, 0) == data);
    fp_buffers_fini(&b);
    CHECK_UINT(memory.bytes, 0);
}

/* ---- threads ---- */

enum { LENDERS = 4, LOANS = 1500 };

typedef struct lender {
    pthread_t thread;
    fp_buffers *b;
    uint64_t number;
    uint64_t discarded;
    _Atomic int *ended;
} lender;

/* Acts like CUPTI: borrows several buffers, fills them and returns them in
 * another order. */
static void *
borrow_and_fill(void *arg)
{
    lender *l = arg;
    uint64_t state = l->number;
    for (uint64_t n = 0; n < LOANS;) {
        uint8_t *held[12];
        uint32_t count = 1 + fake_below(&state, 12);
        for (uint32_t i = 0; i < count; i++) {
            size_t size = 0;
            held[i] = fp_buffers_lend(l->b, &size, 0);
            CHECK(held[i] != NULL);
            if (size == FP_SPARE_BYTES) {
                l->discarded++;
                CHECK_INT(fp_buffers_accept(l->b, held[i], 8, NULL, 0), 0);
                held[i] = NULL;
                sched_yield();
                continue;
            }
            uint64_t mark[2] = {l->number, n++};
            memcpy(held[i], mark, sizeof(mark));
        }
        while (count != 0) {
            uint32_t i = fake_below(&state, count);
            if (held[i] != NULL) {
                CHECK_INT(fp_buffers_accept(l->b, held[i], 16, l,
                                            (uint32_t)l->number),
                          1);
            }
            held[i] = held[--count];
        }
    }
    atomic_fetch_add(l->ended, 1);
    return NULL;
}

static uint64_t
decode(fp_buffers *b, const lender *lenders)
{
    fp_buffer *full[FP_BUFFERS];
    uint32_t n = fp_buffers_take_full(b, full);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t mark[2];
        memcpy(mark, full[i]->data, sizeof(mark));
        CHECK_UINT(full[i]->valid, 16);
        CHECK(full[i]->context == &lenders[mark[0]]);
        CHECK_UINT(full[i]->stream, mark[0]);
        memset(full[i]->data, 0xEE, 16);
        fp_buffers_give_back(full[i]);
    }
    return n;
}

FP_TEST(gpu_buffers_many_threads_lend_while_one_decodes)
{
    fp_alloc a = fp_alloc_libc();
    fp_buffers b;
    CHECK_INT(fp_buffers_init(&b, &a), FP_OK);
    _Atomic int ended = 0;
    lender l[LENDERS];
    for (uint64_t i = 0; i < LENDERS; i++) {
        l[i] = (lender){.b = &b, .number = i, .ended = &ended};
        CHECK(pthread_create(&l[i].thread, NULL, borrow_and_fill, &l[i]) == 0);
    }
    uint64_t decoded = 0, discarded = 0;
    while (atomic_load(&ended) != LENDERS) {
        decoded += decode(&b, l);
        sched_yield();
    }
    for (int i = 0; i < LENDERS; i++) {
        pthread_join(l[i].thread, NULL);
        discarded += l[i].discarded;
    }
    decoded += decode(&b, l);
    CHECK_UINT(fp_buffers_lent(&b), 0);
    CHECK_UINT(b.discarded, discarded);
    CHECK_UINT(b.lent_spares, discarded);
    CHECK_UINT(decoded, b.completed);
    CHECK(decoded >= (uint64_t)LENDERS * LOANS);
    fp_buffers_fini(&b);
}
