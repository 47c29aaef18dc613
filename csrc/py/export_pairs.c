/* export_pairs: converts the blocks of steps without the hook to Python
 * values. */
#include "py/export_parts.h"

#include "core/steps_pairs.h"

static PyObject *
pair_steps(const fp_export *x, const fp_pair_step *step, uint32_t n,
           uint32_t sections)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        PyObject *ns = fp_export_times(x, step[i].section, sections);
        PyObject *one =
            ns == NULL
                ? NULL
                : Py_BuildValue("(LN)",
                                (long long)fp_export_ns(x, step[i].ticks), ns);
        fp_export_add(&list, one);
    }
    return list;
}

PyObject *
fp_export_pairs(const fp_export *x, const fp_pairs *p, uint32_t columns)
{
    PyObject *list = PyList_New(0);
    uint64_t n = p == NULL                     ? 0
                 : p->blocks < FP_PAIRS_BLOCKS ? p->blocks
                                               : FP_PAIRS_BLOCKS;
    uint32_t sections =
        columns < FP_PAIRS_COLUMNS ? columns : FP_PAIRS_COLUMNS;
    for (uint64_t i = 0; list != NULL && i < n; i++) {
        const fp_pair_block *b =
            &p->block[(p->blocks - n + i) % FP_PAIRS_BLOCKS];
        PyObject *plain = pair_steps(x, b->plain, b->plain_count, sections);
        PyObject *near = pair_steps(x, b->near, b->near_count, sections);
        PyObject *one = NULL;
        if (plain != NULL && near != NULL) {
            one = Py_BuildValue("(KOO)", (unsigned long long)b->first, plain,
                                near);
        }
        Py_XDECREF(plain);
        Py_XDECREF(near);
        fp_export_add(&list, one);
    }
    return list;
}
