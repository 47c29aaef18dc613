/* Runs the tests of list.h, each in a child process.
 *
 *     fp_tests            all of them
 *     fp_tests NAME...    only these, in this process (for a debugger)
 *     fp_tests --list     their names
 *
 * Exit status 0: all passed.  1: some failed.  2: no such test. */
#define _POSIX_C_SOURCE 200809L

#include "fp_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* A test that takes longer hangs.  Far more than the slowest test takes under
 * valgrind, so no machine is too slow. */
#define LIMIT_SECONDS 300

#define X(name) void fp_test_##name(void);
#include "list.h"
#undef X

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

static const test_case cases[] = {
#define X(name) {#name, fp_test_##name},
#include "list.h"
#undef X
    {NULL, NULL},
};

/* Returns true if the test passed; else prints the reason. */
static bool
run_in_child(const test_case *test)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    if (child == 0) {
        alarm(LIMIT_SECONDS);
        test->run();
        /* exit() runs the sanitizers' checks at exit. */
        exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            perror("waitpid");
            exit(2);
        }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (WIFSIGNALED(status)) {
        printf("not ok  %s (%s)\n", test->name,
               WTERMSIG(status) == SIGALRM ? "hangs"
                                           : strsignal(WTERMSIG(status)));
    }
    else if (WEXITSTATUS(status) == FP_TEST_FAILED) {
        printf("not ok  %s\n", test->name);
    }
    else {
        printf("not ok  %s (exit status %d)\n", test->name,
               WEXITSTATUS(status));
    }
    return false;
}

static int
run_named(const char *name)
{
    for (const test_case *test = cases; test->name != NULL; test++) {
        if (strcmp(test->name, name) == 0) {
            test->run();
            return 0;
        }
    }
    fprintf(stderr, "no test is called %s\n", name);
    return 2;
}

int
main(int argc, char **argv)
{
    int count = 0;
    int failed = 0;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const test_case *test = cases; test->name != NULL; test++) {
            puts(test->name);
        }
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        int rc = run_named(argv[i]);
        if (rc != 0) {
            return rc;
        }
    }
    if (argc > 1) {
        return 0;
    }
    for (const test_case *test = cases; test->name != NULL; test++) {
        count++;
        if (!run_in_child(test)) {
            failed++;
        }
    }
    printf("%d C tests, %d failed\n", count, failed);
    return failed == 0 ? 0 : 1;
}
