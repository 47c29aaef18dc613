#include "gpu/kernels.h"
#include "gpu_kit.h"

static const fp_kernel_shape plain = {0, {128, 1, 1}, 32, 0, 0};

static fp_kernels *
new_kernels(const fp_alloc *a)
{
    fp_kernels *k = malloc(sizeof(*k));
    fp_kernels_init(k, a);
    return k;
}

static void
free_kernels(fp_kernels *k)
{
    fp_kernels_fini(k);
    free(k);
}

FP_TEST(gpu_kernels_one_row_per_name_and_shape)
{
    fp_alloc a = fp_alloc_libc();
    fp_kernels *k = new_kernels(&a);
    CHECK_INT(fp_kernels_find(k, "gemm", &plain), 0);
    /* Each field of the shape makes it another kernel. */
    fp_kernel_shape other[8];
    for (int i = 0; i < 8; i++) {
        other[i] = plain;
    }
    other[0].device = 1;
    other[1].block[0] = 1;
    other[2].block[1] = 2;
    other[3].block[2] = 2;
    other[4].registers = 1;
    other[5].static_shared = 1;
    other[6].dynamic_shared = 1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 7; i++) {
            CHECK_INT(fp_kernels_find(k, "gemm", &other[i]), i + 1);
        }
    }
    CHECK_INT(fp_kernels_find(k, "gemv", &plain), 8);
    CHECK_INT(fp_kernels_find(k, NULL, &plain), 9);
    CHECK_INT(fp_kernels_find(k, NULL, &plain), 9);
    CHECK_INT(fp_kernels_find(k, "", &plain), 10);
    CHECK_STR(k->row[9].name, "(unnamed kernel)");
    CHECK_UINT(k->count, 11);
    free_kernels(k);
}

FP_TEST(gpu_kernels_compares_names_by_text_not_address)
{
    fp_alloc a = fp_alloc_libc();
    fp_kernels *k = new_kernels(&a);
    char *text = malloc(32);
    strcpy(text, "one");
    CHECK_INT(fp_kernels_find(k, text, &plain), 0);
    CHECK_INT(fp_kernels_find(k, text, &plain), 0);
    char elsewhere[] = "one";
    CHECK_INT(fp_kernels_find(k, elsewhere, &plain), 0);
    strcpy(text, "two"); /* as if another module was loaded at this address */
    CHECK_INT(fp_kernels_find(k, text, &plain), 1);
    strcpy(text, "one");
    CHECK_INT(fp_kernels_find(k, text, &plain), 0);
    strcpy(text, "on");
    CHECK_INT(fp_kernels_find(k, text, &plain), 2);
    strcpy(text, "one more");
    CHECK_INT(fp_kernels_find(k, text, &plain), 3);
    free(text); /* the rows hold copies */
    CHECK_STR(k->row[0].name, "one");
    CHECK_STR(k->row[1].name, "two");
    free_kernels(k);
}

FP_TEST(gpu_kernels_compares_names_again_in_each_buffer)
{
    fp_alloc a = fp_alloc_libc();
    const uint32_t last[] = {0, UINT32_MAX - 1, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        fp_kernels *k = new_kernels(&a);
        char text[] = "one";
        k->buffer = last[i];
        fp_kernels_begin_buffer(k);
        CHECK(k->buffer != 0 && k->buffer != last[i]);
        CHECK_INT(fp_kernels_find(k, text, &plain), 0);
        CHECK_INT(fp_kernels_find(k, text, &plain), 0);
        fp_kernels_begin_buffer(k);
        strcpy(text, "two");
        CHECK_INT(fp_kernels_find(k, text, &plain), 1);
        CHECK_INT(fp_kernels_find(k, text, &plain), 1);
        CHECK_UINT(k->count, 2);
        free_kernels(k);
    }
}

FP_TEST(gpu_kernels_communication_by_name)
{
    static const struct {
        const char *name;
        fp_communication is;
    } cases[] = {
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)",
         FP_COMMUNICATION_COLLECTIVE},
        {"_Z23ncclKernel_AllReduce_RI", FP_COMMUNICATION_COLLECTIVE},
        {"ncclDevKernel_AllGather_RING_LL", FP_COMMUNICATION_COLLECTIVE},
        {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
         FP_COMMUNICATION_COLLECTIVE},
        {"ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_f32",
         FP_COMMUNICATION_COLLECTIVE},
        {"ncclDevKernel_Broadcast_RING_LL", FP_COMMUNICATION_OTHER},
        {"ncclDevKernel_Reduce_Sum_f32_RING_LL", FP_COMMUNICATION_OTHER},
        {"ncclDevKernel_SendRecv", FP_COMMUNICATION_OTHER},
        {"ncclDevKernel_Generic", FP_COMMUNICATION_OTHER},
        {"ncclDevKernel_AlltoAll_Sum", FP_COMMUNICATION_OTHER},
        {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(int)",
         FP_COMMUNICATION_COLLECTIVE},
        {"void (anonymous "
         "namespace)::two_shot_all_reduce_kernel_inplace<float, "
         "16, 2>(float**)",
         FP_COMMUNICATION_COLLECTIVE},
        {"_ZN12_GLOBAL__N_126multimem_all_gather_kernelILi4EEEvPcS1_m",
         FP_COMMUNICATION_COLLECTIVE},
        {"void (anonymous namespace)::multimem_one_shot_reduce_kernel<float, "
         "4>",
         FP_COMMUNICATION_OTHER},
        {"void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8, true>",
         FP_COMMUNICATION_COLLECTIVE},
        {"void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_"
         "oneshot_lamport<1>",
         FP_COMMUNICATION_COLLECTIVE},
        {"void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
         FP_COMMUNICATION_OTHER},
        {"rcclGenericKernel<1, false>", FP_COMMUNICATION_OTHER},
        {"triton_poi_fused_add_all_reduce_0", FP_COMMUNICATION_NONE},
        {"void at::native::_scatter_gather_elementwise_kernel<128, 8>",
         FP_COMMUNICATION_NONE},
        {"void rcclGenericKernel<1>()", FP_COMMUNICATION_OTHER},
        {"gemm", FP_COMMUNICATION_NONE},
        {"nccDev", FP_COMMUNICATION_NONE},
        {"", FP_COMMUNICATION_NONE},
    };
    fp_alloc a = fp_alloc_libc();
    fp_kernels *k = new_kernels(&a);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t row = fp_kernels_find(k, cases[i].name, &plain);
        CHECK_INT(k->row[row].communicates, cases[i].is);
    }
    free_kernels(k);
}

FP_TEST(gpu_kernels_very_long_names_are_cut)
{
    fp_alloc a = fp_alloc_libc();
    fp_kernels *k = new_kernels(&a);
    enum { LONG = 3 * FP_KERNEL_NAME_MAX };
    char *name = malloc(LONG + 1);
    memset(name, 'x', LONG);
    name[LONG] = '\0';
    CHECK_INT(fp_kernels_find(k, name, &plain), 0);
    CHECK_INT(fp_kernels_find(k, name, &plain), 0);
    CHECK_UINT(k->row[0].name_bytes, FP_KERNEL_NAME_MAX);
    CHECK_UINT(strlen(k->row[0].name), FP_KERNEL_NAME_MAX - 1);
    name[FP_KERNEL_NAME_MAX - 2] = 'y'; /* the last that is kept */
    CHECK_INT(fp_kernels_find(k, name, &plain), 1);
    name[FP_KERNEL_NAME_MAX] = 'y';
    CHECK_INT(fp_kernels_find(k, name, &plain), 1);
    name[FP_KERNEL_NAME_MAX - 2] = '\0'; /* one byte shorter: complete */
    CHECK_INT(fp_kernels_find(k, name, &plain), 2);
    CHECK_INT(fp_kernels_find(k, name, &plain), 2);
    free(name);
    free_kernels(k);
}

FP_TEST(gpu_kernels_rows_do_not_depend_on_the_memo)
{
    enum { NAMES = 3000 };
    fake_memory memory = {0};
    fp_alloc a = fake_alloc(&memory);
    fp_kernels *k = new_kernels(&a);
    static char name[NAMES][16];
    static int32_t row[NAMES];
    uint64_t state = 5;
    for (int i = 0; i < NAMES; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "k%d", i);
        row[i] = -1;
    }
    for (int n = 0; n < 60000; n++) {
        uint32_t i = fake_below(&state, NAMES);
        char elsewhere[16];
        memcpy(elsewhere, name[i], sizeof(elsewhere));
        fp_kernel_shape shape = plain;
        shape.dynamic_shared = i % 3;
        int32_t got = fp_kernels_find(
            k, fake_below(&state, 2) ? name[i] : elsewhere, &shape);
        CHECK(got >= 0 && (row[i] == -1 || row[i] == got));
        row[i] = got;
        CHECK_STR(k->row[got].name, name[i]);
    }
    CHECK_UINT(k->dropped, 0);
    free_kernels(k);
    CHECK_UINT(memory.bytes, 0);
}

FP_TEST(gpu_kernels_f31_beyond_the_caps_they_are_dropped_and_counted)
{
    fp_alloc a = fp_alloc_libc();
    fp_kernels *k = new_kernels(&a);
    fp_kernel_shape shape = plain;
    for (int32_t i = 0; i < FP_KERNELS_MAX + 100; i++) {
        shape.dynamic_shared = (uint32_t)i;
        CHECK_INT(fp_kernels_find(k, "gemm", &shape),
                  i < FP_KERNELS_MAX ? i : -1);
    }
    CHECK_UINT(k->dropped, 100);
    shape.dynamic_shared = 77;
    CHECK_INT(fp_kernels_find(k, "gemm", &shape), 77);
    free_kernels(k);

    k = new_kernels(&a);
    static char name[FP_KERNEL_NAME_MAX];
    memset(name, 'n', sizeof(name) - 1);
    int32_t fit = FP_KERNEL_NAMES_BYTES / FP_KERNEL_NAME_MAX;
    for (int32_t i = 0; i < fit + 5; i++) {
        name[0] = (char)('a' + i % 16);
        name[1] = (char)('a' + i / 16 % 16);
        name[2] = (char)('a' + i / 256);
        CHECK_INT(fp_kernels_find(k, name, &plain), i < fit ? i : -1);
    }
    CHECK(k->name_bytes <= FP_KERNEL_NAMES_BYTES);
    CHECK_UINT(k->dropped, 5);
    free_kernels(k);
}

FP_TEST(gpu_kernels_f36_each_allocation)
{
    for (uint64_t at = 1;; at++) {
        fake_memory memory = {.fail_at = at};
        fp_alloc a = fake_alloc(&memory);
        fp_kernels *k = new_kernels(&a);
        fp_kernel_shape shape = plain;
        uint64_t failed = 0;
        for (uint32_t i = 0; i < 300; i++) {
            shape.dynamic_shared = i;
            int32_t row = fp_kernels_find(k, "gemm", &shape);
            failed += row < 0;
            CHECK(row < 0 || k->row[row].shape.dynamic_shared == i);
        }
        CHECK_UINT(failed, memory.failures);
        CHECK_UINT(k->dropped, failed);
        CHECK_UINT(k->count, 300 - failed);
        free_kernels(k);
        CHECK_UINT(memory.bytes, 0);
        if (failed == 0) {
            CHECK(at > 300);
            return;
        }
    }
}

FP_TEST(gpu_kernels_count_sum_extremes_and_blocks)
{
    fp_kernel row = {0};
    const int32_t grid[3] = {2, 3, 4}, wide[3] = {2147483647, 65535, 65535};
    fp_kernels_count(&row, grid, 500);
    fp_kernels_count(&row, grid, FP_SMALL_KERNEL_NS - 1);
    CHECK_UINT(row.grid_varied, 0);
    CHECK_UINT(row.small_count, 2);
    fp_kernels_count(&row, grid, FP_SMALL_KERNEL_NS);
    CHECK_UINT(row.small_count, 2);
    CHECK_INT(row.small_ns, 500 + FP_SMALL_KERNEL_NS - 1);
    CHECK_NEAR(row.blocks_ns, 24.0 * (double)row.sum_ns, 0);
    fp_kernels_count(&row, wide, 0);
    CHECK_UINT(row.grid_varied, 1);
    CHECK_UINT(row.count, 4);
    CHECK_INT(row.sum_ns, 500 + 2 * FP_SMALL_KERNEL_NS - 1);
    CHECK_INT(row.min_ns, 0);
    CHECK_INT(row.max_ns, FP_SMALL_KERNEL_NS);
    CHECK_INT(row.grid[0], 2147483647);
    fp_kernels_count(&row, wide, 1);
    CHECK(row.blocks_ns > 9e18); /* beyond 2^63: no integer holds it */
}
