/* A program without Python that emits an NVTX range and prints its level. */
#include <stdio.h>

int
push_a(const char *text);

int
main(void)
{
    printf("%d\n", push_a("alone"));
    return 0;
}
