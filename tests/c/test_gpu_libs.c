/* For dladdr; the rest of the suite is plain C11. */
#define _GNU_SOURCE

#include "fp_test.h"
#include "gpu/api_calls.h"
#include "gpu/cuda_driver.h"
#include "gpu/cupti_abi.h"
#include "gpu/cupti_lib.h"

#include <dlfcn.h>
#include <unistd.h>

/* A library that every glibc machine has and that is neither. */
#define OTHER "libm.so.6"

static int
contains(const fp_why *why, const char *text)
{
    if (strstr(why->text, text) == NULL) {
        fprintf(stderr, "no \"%s\" in \"%s\"\n", text, why->text);
        return 0;
    }
    return 1;
}

static const char *
other_path(void)
{
    void *handle = dlopen(OTHER, RTLD_NOW);
    Dl_info info = {0};
    CHECK(handle != NULL && dladdr(dlsym(handle, "cos"), &info) != 0);
    CHECK(info.dli_fname[0] == '/');
    return info.dli_fname;
}

FP_TEST(gpu_libs_f49_a_missing_libcupti_is_a_sentence_with_its_path)
{
    fp_cupti c;
    fp_why why;
    CHECK_INT(fp_cupti_open(&c, "/no/such/libcupti.so.13", &why), -1);
    CHECK(contains(&why, "cannot be loaded"));
    CHECK(contains(&why, "/no/such/libcupti.so.13"));
    CHECK(c.handle == NULL);
    CHECK_INT(fp_cupti_open(&c, "libcupti.so.99", &why), -1);
    CHECK(contains(&why, "libcupti.so.99"));
}

FP_TEST(gpu_libs_p8_a_path_that_depends_on_the_directory_is_refused)
{
    const char *const bad[] = {"",           "./" OTHER, "../" OTHER,
                               "lib/" OTHER, OTHER "/",  "./"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fp_cupti c;
        fp_why why;
        CHECK_INT(fp_cupti_open(&c, bad[i], &why), -1);
        CHECK(contains(&why, "is not loaded: give an absolute path"));
        CHECK(contains(&why, bad[i]));
    }
}

FP_TEST(gpu_libs_f49_rejects_another_library_as_libcupti)
{
    const char *const paths[] = {OTHER, other_path()};
    for (int i = 0; i < 2; i++) {
        fp_cupti c;
        fp_why why;
        CHECK_INT(fp_cupti_open(&c, paths[i], &why), -1);
        CHECK(contains(&why, "has no function cuptiGetVersion"));
        CHECK(contains(&why, paths[i]));
        CHECK(c.subscribe == NULL && c.push_external == NULL);
    }
}

FP_TEST(gpu_libs_f49_a_path_of_any_length_fits_the_sentence)
{
    char path[3000] = "/";
    memset(path + 1, 'x', sizeof(path) - 2);
    path[sizeof(path) - 1] = '\0';
    fp_cupti c;
    fp_why why;
    CHECK_INT(fp_cupti_open(&c, path, &why), -1);
    CHECK(strlen(why.text) < sizeof(why.text));
    CHECK_INT(fp_cupti_open(&c, path + 1, &why), -1);
    path[10] = '/';
    CHECK_INT(fp_cupti_open(&c, path + 1, &why), -1);
    CHECK(contains(&why, "give an absolute path"));
}

static int
says_its_name(int result, const char **text)
{
    *text = "CUPTI_ERROR_X";
    return result == 39 ? 0 : 1;
}

FP_TEST(gpu_libs_describes_a_result_by_its_name)
{
    const fp_cupti c = {.get_result_string = says_its_name};
    char text[40];
    fp_cupti_describe(&c, 39, text, sizeof(text));
    CHECK_STR(text, "39 (CUPTI_ERROR_X)");
    fp_cupti_describe(&c, 4711, text, sizeof(text));
    CHECK_STR(text, "4711");
    fp_cupti_describe(&c, 39, text, 4);
    CHECK_STR(text, "39 ");
}

FP_TEST(gpu_libs_f49_rejects_another_library_as_driver)
{
    fp_cuda_driver d;
    fp_why why;
    for (int initialise = 0; initialise < 2; initialise++) {
        CHECK_INT(fp_cuda_driver_open(&d, other_path(), initialise, &why),
                  FP_DRIVER_NONE);
        CHECK(contains(&why, "has no function cuInit"));
        CHECK_INT(fp_cuda_driver_open(&d, "/no/libcuda.so", initialise, &why),
                  FP_DRIVER_NONE);
        CHECK(contains(&why, "/no/libcuda.so"));
        CHECK_INT(d.devices, 0);
    }
}

FP_TEST(gpu_libs_p8_a_driver_has_an_absolute_path)
{
    const char *const bad[] = {"", "./" OTHER, OTHER};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fp_cuda_driver d;
        fp_why why;
        CHECK_INT(fp_cuda_driver_open(&d, bad[i], 1, &why), FP_DRIVER_NONE);
        CHECK(contains(&why, "give an absolute path"));
    }
}

FP_TEST(gpu_libs_f49_without_a_device_no_driver_is_looked_for)
{
    if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0) {
        return;
    }
    fp_cuda_driver d;
    fp_why why;
    CHECK_INT(fp_cuda_driver_open(&d, NULL, 1, &why), FP_DRIVER_NONE);
    CHECK(contains(&why, "no NVIDIA device in this machine"));
    CHECK(d.handle == NULL);
}

FP_TEST(gpu_libs_every_call_of_the_table_has_its_class)
{
    uint32_t seen[FP_API_COPY_SYNC + 1] = {0};
    CHECK(fp_api_call_count > 200);
    for (uint32_t i = 0; i < fp_api_call_count; i++) {
        const fp_api_call *c = &fp_api_calls[i];
        CHECK(c->api_class > FP_API_NONE && c->api_class <= FP_API_COPY_SYNC);
        CHECK_INT(fp_api_class_of(c->domain, c->cbid), c->api_class);
        seen[c->api_class]++;
    }
    uint32_t classified = 0;
    for (int domain = -1; domain < 8; domain++) {
        for (uint32_t cbid = 0; cbid < 2000; cbid++) {
            classified += fp_api_class_of(domain, cbid) != FP_API_NONE;
        }
    }
    /* no duplicates, and nothing outside the table */
    CHECK_UINT(classified, fp_api_call_count);
    for (int i = FP_API_LAUNCH; i <= FP_API_COPY_SYNC; i++) {
        CHECK(seen[i] > 0);
    }
}

FP_TEST(gpu_libs_known_calls_have_the_right_class)
{
    const fp_api_call want[] = {
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_LAUNCH, 211}, /* cudaLaunchKernel */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_LAUNCH, 430}, /* ... ExC */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_LAUNCH, 269}, /* ... Cooperative */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_LAUNCH, 41},  /* cudaMemcpyAsync */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_LAUNCH, 51},  /* cudaMemsetAsync */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_GRAPH, 311},  /* cudaGraphLaunch */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_SYNC, 131},   /* a stream */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_SYNC, 165},   /* a device */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_SYNC, 137},   /* an event */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_COPY_SYNC, 31},
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_NONE, 20},   /* cudaMalloc */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_NONE, 135},  /* cudaEventRecord */
        {FP_CUPTI_DOMAIN_RUNTIME, FP_API_NONE, 310},  /* instantiation */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_LAUNCH, 307}, /* cuLaunchKernel */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_LAUNCH, 652}, /* ... Ex */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_LAUNCH, 477}, /* ... Cooperative */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_LAUNCH, 306}, /* cuMemcpyAsync */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_GRAPH, 514},  /* cuGraphLaunch */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_SYNC, 126},   /* a stream */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_SYNC, 17},    /* a context */
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_COPY_SYNC, 278},
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_NONE, 0},
        {FP_CUPTI_DOMAIN_DRIVER, FP_API_NONE, UINT16_MAX},
        {FP_CUPTI_DOMAIN_RESOURCE, FP_API_NONE, 13},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        CHECK_INT(fp_api_class_of(want[i].domain, want[i].cbid),
                  want[i].api_class);
    }
}
