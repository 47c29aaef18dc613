/* export_values: helpers that create the values of Recorder.export(). */
#include "py/export_parts.h"

#include "py/call_form.h"

#include "py/recorder_reset.h"

#include <math.h>

int
fp_export_begin(fp_export *x, fp_recorder *r)
{
    /* Creating a list may run the garbage collector, and with it any code. */
    fp_recorder_begin_export(r);
    *x = (fp_export){
        .r = r,
        .ns_per_tick = fp_clock_ns_per_tick(&r->clock),
        .key_index = PyDict_New(),
        .keys = PyList_New(0),
        .forms = PyList_New(0),
    };
    return x->key_index && x->keys && x->forms ? 0 : -1;
}

void
fp_export_end(fp_export *x)
{
    fp_recorder_end_export(x->r);
    Py_XDECREF(x->key_index);
    Py_XDECREF(x->keys);
    Py_XDECREF(x->forms);
}

int64_t
fp_export_ns(const fp_export *x, int64_t ticks)
{
    return (int64_t)llround((double)ticks * x->ns_per_tick);
}

PyObject *
fp_export_time(const fp_export *x, int64_t ticks)
{
    return PyLong_FromLongLong(fp_export_ns(x, ticks));
}

void
fp_export_put(PyObject **d, const char *name, PyObject *value)
{
    if (*d != NULL &&
        (value == NULL || PyDict_SetItemString(*d, name, value) < 0)) {
        Py_CLEAR(*d);
    }
    Py_XDECREF(value);
}

void
fp_export_add(PyObject **list, PyObject *value)
{
    if (*list != NULL && (value == NULL || PyList_Append(*list, value) < 0)) {
        Py_CLEAR(*list);
    }
    Py_XDECREF(value);
}

/* ---- keys ---- */

/* Functions that are counted together: see export_imports.h. */
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

static PyObject *
describe_folded(fp_key key)
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

static PyObject *
describe(const fp_export *x, fp_key key)
{
    if (key == FP_KEY_ROOT) {
        return Py_BuildValue("(ssiss)", "root", "", 0, "(thread)", "(thread)");
    }
    if (key == FP_KEY_TRUNCATED) {
        return Py_BuildValue("(ssiss)", "truncated", "", 0, "(truncated)",
                             "(truncated)");
    }
    if (fp_key_tag(key) == FP_TAG_SECTION) {
        PyObject *name =
            PyList_GetItem(x->r->state->section_names, fp_key_section_id(key));
        return name ? Py_BuildValue("(ssiOO)", "section", "", 0, name, name)
                    : NULL;
    }
    const fp_keyent *e = fp_keytab_find(&x->r->keys, key);
    if (e == NULL) {
        PyObject *folded = describe_folded(key);
        if (folded != NULL || PyErr_Occurred()) {
            return folded;
        }
        PyErr_SetString(PyExc_SystemError, "fastprof: a node without a key");
        return NULL;
    }
    return fp_keyent_describe(e);
}

Py_ssize_t
fp_export_key(fp_export *x, fp_key key)
{
    PyObject *number = PyLong_FromUnsignedLongLong(key);
    if (number == NULL || x->keys == NULL) { /* NULL: there was no memory */
        Py_XDECREF(number);
        return -1;
    }
    Py_ssize_t index = -1;
    PyObject *known = PyDict_GetItemWithError(x->key_index, number);
    if (known != NULL) {
        index = PyLong_AsSsize_t(known);
    }
    else if (!PyErr_Occurred()) {
        const fp_keyent *e = fp_keytab_find(&x->r->keys, key);
        uint8_t form = e != NULL ? e->form : FP_FORM_SHORT;
        Py_ssize_t n = PyList_GET_SIZE(x->keys);
        fp_export_add(&x->keys, describe(x, key));
        if (form != FP_FORM_SHORT) { /* the default is left out */
            fp_export_add(&x->forms,
                          Py_BuildValue("(ns)", n, fp_call_form_names[form]));
        }
        PyObject *value = PyLong_FromSsize_t(n);
        if (x->keys && x->forms && value &&
            PyDict_SetItem(x->key_index, number, value) == 0) {
            index = n;
        }
        Py_XDECREF(value);
    }
    Py_DECREF(number);
    return index;
}

PyObject *
fp_export_hist(const fp_export *x, const fp_hist *h)
{
    uint32_t n = fp_hist_rows(h, NULL, 0);
    fp_hist_row *rows = fp_alloc_zeroed(&x->r->alloc, n + 1, sizeof(*rows));
    PyObject *list = rows ? PyList_New(0) : PyErr_NoMemory();
    int64_t last = 0;
    fp_hist_rows(h, rows, rows != NULL ? n : 0);
    for (uint32_t i = 0; i < n && list != NULL; i++) {
        /* Rounding must not make a bucket empty, or two buckets overlap. */
        int64_t low = fp_export_ns(x, rows[i].low),
                high = fp_export_ns(x, rows[i].high);
        low = low < last ? last : low;
        high = high <= low ? low + 1 : high;
        last = high;
        fp_export_add(&list,
                      Py_BuildValue("(LLK)", (long long)low, (long long)high,
                                    (unsigned long long)rows[i].count));
    }
    fp_alloc_give(&x->r->alloc, rows, n + 1, sizeof(*rows));
    return list;
}

PyObject *
fp_export_times(const fp_export *x, const int64_t *ticks, uint32_t n)
{
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; i < n && list != NULL; i++) {
        PyObject *v = x != NULL ? fp_export_time(x, ticks[i])
                                : PyLong_FromLongLong(ticks[i]);
        if (v == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, v);
    }
    return list;
}
