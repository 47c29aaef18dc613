/* export_values: helpers that create the values of Recorder.export(). */
#include "py/export_parts.h"

#include "py/call_form.h"
#include "py/export_folded.h"

#include <math.h>

int64_t
fp_export_ns(const fp_export *x, int64_t ticks)
{
    return (int64_t)llround((double)ticks * x->ns_per_tick);
}

int
fp_export_put(PyObject *d, const char *name, PyObject *value)
{
    int rc = value == NULL ? -1 : PyDict_SetItemString(d, name, value);
    Py_XDECREF(value);
    return rc;
}

int
fp_export_append(PyObject *list, PyObject *value)
{
    int rc = value == NULL ? -1 : PyList_Append(list, value);
    Py_XDECREF(value);
    return rc;
}

void
fp_export_add(PyObject **list, PyObject *value)
{
    if (fp_export_append(*list, value) < 0) {
        Py_CLEAR(*list);
    }
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
        PyObject *folded = fp_describe_folded(key);
        if (folded != NULL || PyErr_Occurred()) {
            return folded;
        }
        PyErr_SetString(PyExc_SystemError, "fastprof: a node without a key");
        return NULL;
    }
    return fp_export_describe(e);
}

PyObject *
fp_export_describe(const fp_keyent *e)
{
    /* Describing runs Python code, which may add keys and move the table. */
    fp_keyent copy = *e;
    Py_XINCREF(copy.object);
    Py_XINCREF((PyObject *)copy.type);
    Py_XINCREF(copy.module);
    PyObject *text = fp_keyent_describe(&copy);
    Py_XDECREF(copy.object);
    Py_XDECREF((PyObject *)copy.type);
    Py_XDECREF(copy.module);
    return text;
}

/* Adds the call form of the last key, unless it is the default. */
static int
add_form(fp_export *x, uint8_t form)
{
    if (form == FP_FORM_SHORT) {
        return 0;
    }
    return fp_export_append(x->forms,
                            Py_BuildValue("(ns)", PyList_GET_SIZE(x->keys) - 1,
                                          fp_call_form_names[form]));
}

Py_ssize_t
fp_export_key(fp_export *x, fp_key key)
{
    PyObject *number = PyLong_FromUnsignedLongLong(key);
    if (number == NULL) {
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
        PyObject *text = describe(x, key);
        if (text != NULL && PyList_Append(x->keys, text) == 0 &&
            add_form(x, form) == 0) {
            Py_ssize_t n = PyList_GET_SIZE(x->keys) - 1;
            PyObject *value = PyLong_FromSsize_t(n);
            if (value && PyDict_SetItem(x->key_index, number, value) == 0) {
                index = n;
            }
            Py_XDECREF(value);
        }
        Py_XDECREF(text);
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
    if (list == NULL) {
        fp_alloc_give(&x->r->alloc, rows, n + 1, sizeof(*rows));
        return NULL;
    }
    fp_hist_rows(h, rows, n);
    int64_t last = 0;
    for (uint32_t i = 0; i < n && list != NULL; i++) {
        /* Rounding must not make a bucket empty, or two buckets overlap. */
        int64_t low = fp_export_ns(x, rows[i].low),
                high = fp_export_ns(x, rows[i].high);
        low = low < last ? last : low;
        high = high <= low ? low + 1 : high;
        last = high;
        PyObject *one = Py_BuildValue("(LLK)", (long long)low, (long long)high,
                                      (unsigned long long)rows[i].count);
        fp_export_add(&list, one);
    }
    fp_alloc_give(&x->r->alloc, rows, n + 1, sizeof(*rows));
    return list;
}

PyObject *
fp_export_times(const fp_export *x, const int64_t *ticks, uint32_t n)
{
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; i < n && list != NULL; i++) {
        PyObject *v = PyLong_FromLongLong(fp_export_ns(x, ticks[i]));
        if (v == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, v);
    }
    return list;
}
