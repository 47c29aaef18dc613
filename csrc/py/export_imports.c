#include "py/export_imports.h"

/* An additional class, which the callable never returns. */
enum { FP_CODE_METHOD = FP_CODE_CLASSES };

/* Cache of the classes of code objects. */
typedef struct classes {
    const fp_export *x;
    PyObject *method; /* owned: the prefix of method names */
    uint8_t *of; /* owned; by index in the key table: class + 1; 0: unknown */
    uint32_t places; /* keys added later are not in any row */
    PyObject *file;  /* owned: the last file; NULL: none */
    int file_class;  /* of its code with an ordinary name */
} classes;

/* The names of modules' bodies and of the import system begin like this; the
 * class of other code depends on its file only. */
static int
is_ordinary(PyObject *name)
{
    if (!PyUnicode_Check(name) || PyUnicode_GET_LENGTH(name) == 0) {
        return 0;
    }
    Py_UCS4 first = PyUnicode_READ_CHAR(name, 0);
    return first != '_' && first != '<';
}

static int
ask(const classes *c, PyObject *object)
{
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(object);
    PyObject *answer = PyObject_CallFunctionObjArgs(
        c->x->fold, code->co_filename, code->co_name, NULL);
    Py_DECREF(code);
    long class = answer == NULL ? -1 : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    if (class >= 0 && class < FP_CODE_CLASSES) {
        return (int)class;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "invalid class of code objects: %ld",
                     class);
    }
    return -1;
}

static int
ask_class(classes *c, PyObject *object)
{
    PyCodeObject *code = (PyCodeObject *)object;
    if (!is_ordinary(code->co_name)) {
        return ask(c, object);
    }
    if (c->file != code->co_filename) {
        PyObject *file = Py_NewRef(code->co_filename);
        int class = ask(c, object);
        Py_XSETREF(c->file, class < 0 ? NULL : Py_NewRef(file));
        Py_DECREF(file);
        c->file_class = class;
    }
    return c->file_class;
}

/* Is the C function shown as a method of a type?  Calls of methods have
 * another cost.  -1 with an exception. */
static int
is_method(const classes *c, const fp_keyent *e)
{
    PyObject *text = fp_keyent_describe(e);
    if (text == NULL) {
        return -1;
    }
    PyObject *name = PyTuple_GET_ITEM(text, 3);
    Py_ssize_t found =
        PyUnicode_Check(name)
            ? PyUnicode_Tailmatch(name, c->method, 0, PY_SSIZE_T_MAX, -1)
            : 0;
    Py_DECREF(text);
    return (int)found;
}

/* fp_code_class, or FP_CODE_METHOD; -1 with an exception. */
static int
class_of(classes *c, fp_key key)
{
    int tag = fp_key_tag(key);
    if (tag == FP_TAG_SECTION || tag == FP_TAG_SPECIAL) {
        return FP_CODE_PROGRAM;
    }
    const fp_keytab *keys = &c->x->r->keys;
    const fp_keyent *e = fp_keytab_find(keys, key);
    uint32_t place = e != NULL ? (uint32_t)(e - keys->entry) : c->places;
    if (place >= c->places || (tag != FP_TAG_PYTHON && tag != FP_TAG_C)) {
        return FP_CODE_LIBRARY;
    }
    if (c->of[place] == 0) {
        int class = FP_CODE_LIBRARY;
        if (tag == FP_TAG_PYTHON) {
            class = ask_class(c, e->object);
        }
        else {
            int method = is_method(c, e);
            class = method < 0 ? -1 : method ? FP_CODE_METHOD : class;
        }
        if (class < 0) {
            return -1;
        }
        c->of[place] = (uint8_t)(class + 1);
    }
    return c->of[place] - 1;
}

/* The parent for the calls that a row makes. */
typedef struct place {
    fp_node *node;
    int imports; /* the row belongs to an import, not to the program's code */
} place;

/* The child of [parent], created if needed; NULL with an exception. */
static fp_node *
child(fp_tree *t, fp_node *parent, fp_key key)
{
    fp_node *n = fp_tree_find(t, parent, key);
    n = n != NULL ? n : fp_tree_add(t, parent, key);
    if (n == NULL) {
        PyErr_NoMemory();
    }
    return n;
}

static int
fold(classes *c, const fp_export_row *rows, uint32_t count, fp_tree *t,
     uint32_t *to, place *at)
{
    for (uint32_t i = 0; i < count; i++) {
        const fp_export_row *w = &rows[i];
        fp_node *n = fp_tree_root(t);
        at[i] = (place){n, 0};
        if (i > 0) {
            at[i] = at[w->parent];
            int of_setup = w->phase == FP_RUN_SETUP;
            int class = of_setup ? class_of(c, w->key) : FP_CODE_PROGRAM;
            if (class < 0) {
                return -1;
            }
            int together = at[i].imports && class != FP_CODE_PROGRAM &&
                           class != FP_CODE_MODULE;
            fp_key key = w->key;
            if (together) {
                int kind =
                    class == FP_CODE_METHOD ? FP_FOLDED_METHOD : FP_FOLDED_ANY;
                key = (fp_key)kind | (fp_key)fp_key_tag(key);
            }
            n = child(t, at[i].node, key);
            if (n == NULL) {
                return -1;
            }
            if (!together) {
                at[i].imports = class == FP_CODE_IMPORT ||
                                (at[i].imports && class == FP_CODE_MODULE);
                at[i].node = n;
            }
        }
        n->calls += w->calls;
        n->resumes += w->resumes;
        n->self_ticks += w->self_ticks;
        to[i] = n->index;
    }
    return 0;
}

int
fp_fold_imports(fp_export *x, const fp_export_row *rows, uint32_t count,
                fp_tree *into, uint32_t *to)
{
    const fp_alloc *a = &x->r->alloc;
    classes c = {
        .x = x,
        .method = PyUnicode_FromString("<method "),
        .places = x->r->keys.count + 1,
    };
    place *at = fp_alloc_zeroed(a, count, sizeof(*at));
    c.of = fp_alloc_zeroed(a, c.places, sizeof(*c.of));
    int rc = -1;
    if (c.method == NULL || at == NULL || c.of == NULL ||
        fp_tree_init(into, a) != FP_OK) {
        PyErr_NoMemory();
    }
    else {
        rc = fold(&c, rows, count, into, to, at);
        if (rc < 0) {
            fp_tree_fini(into);
        }
    }
    Py_XDECREF(c.method);
    Py_XDECREF(c.file);
    fp_alloc_give(a, at, count, sizeof(*at));
    fp_alloc_give(a, c.of, c.places, sizeof(*c.of));
    return rc;
}
