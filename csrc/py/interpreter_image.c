#include "py/interpreter_image.h"

typedef struct image {
    uintptr_t begin, end;
} image;

static image interpreter; /* of the process */

#ifdef __linux__
#include <link.h>

/* Ends the search at the object with the methods of lists. */
static int
look_at(struct dl_phdr_info *object, size_t size, void *found)
{
    (void)size;
    image one = {UINTPTR_MAX, 0};
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD) {
            uintptr_t begin = object->dlpi_addr + segment->p_vaddr;
            uintptr_t end = begin + segment->p_memsz;
            one.begin = begin < one.begin ? begin : one.begin;
            one.end = end > one.end ? end : one.end;
        }
    }
    uintptr_t inside = (uintptr_t)PyList_Type.tp_methods;
    if (inside < one.begin || inside >= one.end) {
        return 0;
    }
    *(image *)found = one;
    return 1;
}
#endif

void
fp_interpreter_image_find(void)
{
#ifdef __linux__
    if (interpreter.end == 0) {
        (void)dl_iterate_phdr(look_at, &interpreter);
    }
#endif
}

int
fp_interpreter_has(fp_key key)
{
    uintptr_t address = (uintptr_t)(key & ~(fp_key)FP_TAG_MASK);
    return address >= interpreter.begin && address < interpreter.end;
}
