#include "py/export_folded.h"

static const struct {
    fp_key key;
    const char *kind, *name;
} folded[] = {
    {FP_FOLDED_ANY | FP_TAG_PYTHON, "python", "(functions during imports)"},
    {FP_FOLDED_ANY | FP_TAG_C, "c", "<built-in functions during imports>"},
    {FP_FOLDED_METHOD | FP_TAG_C, "c", "<method calls during imports>"},
    {FP_FOLDED_ANY | FP_TAG_TYPE, "type", "<classes called during imports>"},
    {FP_FOLDED_ANY | FP_TAG_CALLABLE, "type",
     "<callable objects called during imports>"},
};
enum { FOLDED = sizeof(folded) / sizeof(folded[0]) };

PyObject *
fp_describe_folded(fp_key key)
{
    for (int i = 0; i < FOLDED; i++) {
        if (folded[i].key == key) {
            return Py_BuildValue("(ssiss)", folded[i].kind,
                                 "<frozen importlib._bootstrap>", 0,
                                 folded[i].name, folded[i].name);
        }
    }
    return NULL;
}
