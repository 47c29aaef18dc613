/* fp_test: the checks of the C tests.  They are functions of this header, not
 * assert(): a build with NDEBUG keeps all of them.
 *
 *      #include "fp_test.h"
 *
 *      FP_TEST(tree_gives_the_same_node_for_the_same_key)
 *      {
 *          CHECK(fp_tree_child(...) == node);
 *          CHECK_INT(tree.count, 2);
 *      }
 *
 * list.h names each test once more; tools/ctest.py fails if the two differ.
 * Every test runs in a separate process, so a crash or a hang fails one test
 * only, and a failed check simply exits. */
#ifndef FP_TEST_H
#define FP_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FP_TEST(name) \
    void fp_test_##name(void); \
    void fp_test_##name(void)

/* Exit status of a test whose check failed; main.c tells it from a crash. */
#define FP_TEST_FAILED 1

static inline void
fp_test_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, what);
    fflush(NULL);
    /* Not exit(): another thread of the test may still run. */
    _Exit(FP_TEST_FAILED);
}

static inline void
fp_test_int(const char *file, int line, const char *what, intmax_t got,
            intmax_t want)
{
    if (got != want) {
        fprintf(stderr, "%s:%d: %s is %jd, not %jd\n", file, line, what, got,
                want);
        fp_test_fail(file, line, what);
    }
}

static inline void
fp_test_uint(const char *file, int line, const char *what, uintmax_t got,
             uintmax_t want)
{
    if (got != want) {
        fprintf(stderr, "%s:%d: %s is %ju, not %ju\n", file, line, what, got,
                want);
        fp_test_fail(file, line, what);
    }
}

/* A NaN is near nothing. */
static inline void
fp_test_near(const char *file, int line, const char *what, double got,
             double want, double within)
{
    if (!(fabs(got - want) <= within)) {
        fprintf(stderr, "%s:%d: %s is %.17g, not within %g of %.17g\n", file,
                line, what, got, within, want);
        fp_test_fail(file, line, what);
    }
}

static inline void
fp_test_str(const char *file, int line, const char *what, const char *got,
            const char *want)
{
    if (got == NULL || strcmp(got, want) != 0) {
        fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line, what,
                got == NULL ? "(null)" : got, want);
        fp_test_fail(file, line, what);
    }
}

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fp_test_fail(__FILE__, __LINE__, #condition); \
        } \
    } while (0)

/* The same for integers; a failure shows the value and the expected one. */
#define CHECK_INT(got, want) \
    fp_test_int(__FILE__, __LINE__, #got, (intmax_t)(got), (intmax_t)(want))
#define CHECK_UINT(got, want) \
    fp_test_uint(__FILE__, __LINE__, #got, (uintmax_t)(got), (uintmax_t)(want))
#define CHECK_NEAR(got, want, within) \
    fp_test_near(__FILE__, __LINE__, #got, (double)(got), (double)(want), \
                 (double)(within))
#define CHECK_STR(got, want) \
    fp_test_str(__FILE__, __LINE__, #got, (got), (want))

#endif
