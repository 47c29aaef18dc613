/* Finds or creates sections by name. */
#include "py/section_methods.h"

#include "py/guard.h"

/* Further names share one section: otherwise names that contain a step number
 * would use up the memory. */
enum { MAX_NAMES = 10000, MAX_NAME_LENGTH = 1000 };

static const char other_name[] = "(other sections)";

/* The meaning of well-known section names: the phase of a step, and the kind
 * of all time inside. */
static const struct meaning {
    const char *name;
    fp_phase phase;
    fp_kind kind;
} meanings[] = {
    {"data", FP_PHASE_DATA, FP_KIND_DATA},
    {"data_loading", FP_PHASE_DATA, FP_KIND_DATA},
    {"forward", FP_PHASE_FORWARD, FP_KIND_NONE},
    {"forward_pass", FP_PHASE_FORWARD, FP_KIND_NONE},
    {"backward", FP_PHASE_BACKWARD, FP_KIND_NONE},
    {"backward_pass", FP_PHASE_BACKWARD, FP_KIND_NONE},
    {"optimizer", FP_PHASE_OPTIMIZER, FP_KIND_NONE},
    {"optimizer_step", FP_PHASE_OPTIMIZER, FP_KIND_NONE},
    {"synchronization", FP_PHASE_NONE, FP_KIND_COMMUNICATION},
};

enum { MEANINGS = sizeof(meanings) / sizeof(meanings[0]) };

static struct meaning
meaning_of(PyObject *name)
{
    for (size_t i = 0; i < MEANINGS; i++) {
        if (PyUnicode_CompareWithASCIIString(name, meanings[i].name) == 0) {
            return meanings[i];
        }
    }
    return (struct meaning){NULL, FP_PHASE_NONE, FP_KIND_NONE};
}

int
fp_section_add_covering(PyObject *module)
{
    PyObject *names = PyList_New(0);
    int rc = names != NULL ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < MEANINGS; i++) {
        if (meanings[i].kind != FP_KIND_NONE) {
            PyObject *name = PyUnicode_FromString(meanings[i].name);
            rc = name != NULL ? PyList_Append(names, name) : -1;
            Py_XDECREF(name);
        }
    }
    PyObject *kept = rc == 0 ? PyList_AsTuple(names) : NULL;
    rc = kept != NULL
             ? PyModule_AddObjectRef(module, "COVERING_SECTIONS", kept)
             : -1;
    Py_XDECREF(kept);
    Py_XDECREF(names);
    return rc;
}

/* The number of [name]; a new name gets the next one.  -1 with an
 * exception. */
static int64_t
number_of(fp_state *st, PyObject *name)
{
    PyObject *plain = PyDict_GetItemWithError(st->sections, name);
    if (plain != NULL) {
        return ((fp_section_object *)plain)->id;
    }
    if (PyErr_Occurred() || PyList_Append(st->section_names, name) < 0) {
        return -1;
    }
    return PyList_GET_SIZE(st->section_names) - 1;
}

/* Creates a section.  [key]: its key in the state's dict, the name or (name,
 * sync). */
static PyObject *
make_section(fp_state *st, PyObject *key, PyObject *name, int sync)
{
    int64_t id = number_of(st, name);
    if (id < 0) {
        return NULL;
    }
    fp_section_object *s =
        PyObject_GC_New(fp_section_object, st->section_type);
    if (s == NULL) {
        return NULL;
    }
    s->state = st;
    s->name = Py_NewRef(name);
    s->id = (uint32_t)id;
    struct meaning meaning = meaning_of(name);
    s->phase = (uint8_t)meaning.phase;
    s->cover = (uint8_t)meaning.kind;
    s->sync = (int8_t)sync;
    FP_WRITE(s->plain, sync <= 0 && s->cover == FP_KIND_NONE);
    PyObject_GC_Track(s);
    if (PyDict_SetItem(st->sections, key, (PyObject *)s) < 0) {
        Py_DECREF(s);
        return NULL;
    }
    fp_compat_immortal((PyObject *)s);
    return (PyObject *)s;
}

/* Cuts a very long name and marks the cut.  New reference; NULL with an
 * exception. */
static PyObject *
short_name(PyObject *name)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(name);
    if (length <= MAX_NAME_LENGTH) {
        return PyUnicode_FromObject(name);
    }
    PyObject *head = PyUnicode_Substring(name, 0, MAX_NAME_LENGTH);
    if (head == NULL) {
        return NULL;
    }
    PyObject *cut =
        PyUnicode_FromFormat("%U... (%zd characters)", head, length);
    Py_DECREF(head);
    return cut;
}

static PyObject *
find_or_make(fp_state *st, PyObject *name, int sync)
{
    PyObject *key =
        sync < 0 ? Py_NewRef(name) : Py_BuildValue("(Oi)", name, sync);
    if (key == NULL) {
        return NULL;
    }
    PyObject *found = PyDict_GetItemWithError(st->sections, key);
    PyObject *section = Py_XNewRef(found);
    if (section == NULL && !PyErr_Occurred()) {
        section = make_section(st, key, name, sync);
    }
    Py_DECREF(key);
    return section;
}

static PyObject *
section_for(fp_state *st, PyObject *name, int sync)
{
    FP_GUARD();
    if (!PyUnicode_Check(name)) {
        return PyErr_Format(PyExc_TypeError,
                            "a section's name must be a str, not %.100s",
                            Py_TYPE(name)->tp_name);
    }
    if (PyUnicode_GET_LENGTH(name) == 0) {
        PyErr_SetString(PyExc_ValueError, "a section's name is empty: give "
                                          "one, such as \"forward\"");
        return NULL;
    }
    PyObject *cut = short_name(name);
    if (cut == NULL) {
        return NULL;
    }
    PyObject *section = NULL;
    int known = PyDict_Contains(st->sections, cut);
    if (known == 0 && PyList_GET_SIZE(st->section_names) >= MAX_NAMES) {
        st->names_dropped++;
        Py_SETREF(cut, PyUnicode_FromString(other_name));
    }
    if (known >= 0 && cut != NULL) {
        /* Create the plain section first: it owns the number. */
        section = find_or_make(st, cut, -1);
        if (section != NULL && sync >= 0) {
            Py_SETREF(section, find_or_make(st, cut, sync));
        }
    }
    Py_XDECREF(cut);
    return section;
}

PyObject *
fp_section_named(fp_state *st, PyObject *name)
{
    return section_for(st, name, -1);
}

/* The cache slot of a name, by its address: a literal is the same object each
 * time. */
static fp_section_object **
near_section(fp_state *st, const PyObject *name)
{
    uintptr_t at = (uintptr_t)name >> 4;
    return &st->near_sections[(at ^ at >> 6) & (FP_NEAR_SECTIONS - 1)];
}

PyObject *
fp_profile_section(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames)
{
    fp_state *st = fp_state_of(module);
    if (FP_LIKELY(nargs == 1 && kwnames == NULL)) {
        fp_section_object **near = near_section(st, args[0]);
        fp_section_object *s = __atomic_load_n(near, __ATOMIC_ACQUIRE);
        if (FP_LIKELY(s != NULL && s->name == args[0])) {
            return Py_NewRef((PyObject *)s);
        }
        if (FP_LIKELY(PyUnicode_CheckExact(args[0]))) {
            /* Without the guard, threads would wait for the dict's lock, and a
             * child forked at that moment would wait forever. */
            FP_GUARD();
            PyObject *found = PyDict_GetItemWithError(st->sections, args[0]);
            if (FP_LIKELY(found != NULL)) {
                __atomic_store_n(near, (fp_section_object *)found,
                                 __ATOMIC_RELEASE);
                return Py_NewRef(found);
            }
            if (PyErr_Occurred()) {
                return NULL;
            }
        }
        return section_for(st, args[0], -1);
    }
    PyObject *name = nargs > 0 ? args[0] : NULL;
    PyObject *sync = Py_None;
    Py_ssize_t keywords = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(key, "sync") == 0) {
            sync = args[nargs + i];
        }
        else if (name == NULL &&
                 PyUnicode_CompareWithASCIIString(key, "name") == 0) {
            name = args[nargs + i];
        }
        else {
            return PyErr_Format(PyExc_TypeError,
                                "profile_section() got an unexpected or "
                                "repeated argument '%U'",
                                key);
        }
    }
    if (nargs > 1 || name == NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "profile_section() takes one name, and sync= by "
                        "keyword");
        return NULL;
    }
    if (sync == Py_None) {
        return section_for(st, name, -1);
    }
    int wanted = PyObject_IsTrue(sync);
    return wanted < 0 ? NULL : section_for(st, name, wanted);
}
