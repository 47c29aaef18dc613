#include "py/stats_file.h"

/* Types of marshal's values; see read/pstats.py. */
enum { REF = 0x80, SHORT = 256, DIGIT_BITS = 15 };

typedef struct stats_function {
    uint32_t first; /* pair in which it is called; 0: none */
    uint32_t last;
    uint32_t number; /* of the reference to its label, from 1; 0: none */
} stats_function;

typedef struct stats_file {
    const fp_pairs *p;
    PyObject *labels; /* borrowed */
    PyObject *files;  /* owned: file -> number of the reference to it */
    PyObject *bytes;  /* owned; NULL after an error */
    Py_ssize_t used;
    stats_function *function; /* owned, per group */
    uint32_t *next;           /* owned: per pair, the callee's next one */
    uint32_t references;
    int is_odd; /* a line is negative or too large */
} stats_file;

static void
put(stats_file *f, const void *bytes, Py_ssize_t size)
{
    if (f->bytes != NULL && size > PyBytes_GET_SIZE(f->bytes) - f->used) {
        _PyBytes_Resize(&f->bytes, 2 * PyBytes_GET_SIZE(f->bytes) + size);
    }
    if (f->bytes != NULL) {
        memcpy(PyBytes_AS_STRING(f->bytes) + f->used, bytes, (size_t)size);
        f->used += size;
    }
}

/* Writes a type and a little-endian number. */
static void
put_number(stats_file *f, int type, uint64_t bits, int size)
{
    uint8_t bytes[1 + sizeof(bits)] = {(uint8_t)type};
    for (int i = 0; i < size; i++) {
        bytes[1 + i] = (uint8_t)(bits >> (8 * i));
    }
    put(f, bytes, 1 + size);
}

static void
put_count(stats_file *f, uint64_t count)
{
    if (count <= INT32_MAX) {
        put_number(f, 'i', count, 4);
        return;
    }
    uint32_t digits = 0;
    for (uint64_t rest = count; rest != 0; rest >>= DIGIT_BITS) {
        digits++;
    }
    put_number(f, 'l', digits, 4);
    for (; count != 0; count >>= DIGIT_BITS) {
        uint16_t digit = count & ((1 << DIGIT_BITS) - 1);
        uint8_t bytes[] = {(uint8_t)digit, (uint8_t)(digit >> 8)};
        put(f, bytes, sizeof(bytes));
    }
}

static void
put_seconds(stats_file *f, int64_t ns)
{
    double seconds = (double)ns / 1e9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof(bits));
    put_number(f, 'g', bits, sizeof(bits));
}

static void
put_text(stats_file *f, PyObject *text, int flag)
{
    Py_ssize_t size = 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        Py_CLEAR(f->bytes);
        return;
    }
    int is_ascii = PyUnicode_IS_ASCII(text);
    int is_short = is_ascii && size < SHORT;
    put_number(f,
               (is_short   ? 'z'
                : is_ascii ? 'a'
                           : 'u') |
                   flag,
               (uint64_t)size, is_short ? 1 : 4);
    put(f, bytes, size);
}

/* Many functions are in one file. */
static void
put_file(stats_file *f, PyObject *file)
{
    PyObject *known = PyDict_GetItemWithError(f->files, file);
    if (known != NULL) {
        put_number(f, 'r', PyLong_AsUnsignedLong(known), 4);
        return;
    }
    PyObject *number = PyLong_FromUnsignedLong(f->references++);
    if (number == NULL || PyDict_SetItem(f->files, file, number) < 0) {
        Py_CLEAR(f->bytes);
    }
    Py_XDECREF(number);
    put_text(f, file, REF);
}

/* Borrowed; NULL if there is none of that type. */
static PyObject *
item_of(PyObject *label, Py_ssize_t i, PyTypeObject *type)
{
    if (!PyTuple_CheckExact(label) || PyTuple_GET_SIZE(label) != 3) {
        return NULL;
    }
    PyObject *item = PyTuple_GET_ITEM(label, i);
    return Py_IS_TYPE(item, type) ? item : NULL;
}

static void
put_label(stats_file *f, int32_t group)
{
    stats_function *function = &f->function[group];
    if (f->bytes == NULL) {
        return;
    }
    if (function->number != 0) {
        put_number(f, 'r', function->number - 1, 4);
        return;
    }
    PyObject *label = PyList_GET_ITEM(f->labels, group);
    PyObject *file = item_of(label, 0, &PyUnicode_Type);
    PyObject *line = item_of(label, 1, &PyLong_Type);
    PyObject *name = item_of(label, 2, &PyUnicode_Type);
    if (file == NULL || line == NULL || name == NULL) {
        PyErr_SetString(PyExc_TypeError, "expected (file, line, name)");
        Py_CLEAR(f->bytes);
        return;
    }
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(line, &overflow);
    f->is_odd |= overflow || number < 0;
    function->number = ++f->references;
    put_number(f, ')' | REF, 3, 1);
    put_file(f, file);
    put_count(f, (uint64_t)number);
    put_text(f, name, 0);
}

static void
put_times(stats_file *f, uint64_t first, uint64_t second, int64_t self_ns,
          int64_t cum_ns)
{
    put_count(f, first);
    put_count(f, second);
    put_seconds(f, self_ns);
    put_seconds(f, cum_ns);
}

/* Each is at most INT64_MAX. */
static uint64_t
activations(int64_t calls, int64_t resumes)
{
    return (uint64_t)calls + (uint64_t)resumes;
}

/* Returns the number of its callers. */
static Py_ssize_t
put_function(stats_file *f, int32_t group)
{
    const fp_pair *pair = f->p->pair;
    uint64_t primitive = 0, calls = 0;
    int64_t self_ns = 0, cum_ns = 0;
    uint32_t first = f->function[group].first;
    for (uint32_t i = first; i != 0; i = f->next[i]) {
        primitive += activations(pair[i].outer.calls, pair[i].outer.resumes);
        calls += activations(pair[i].calls, pair[i].resumes);
        self_ns += pair[i].self_ns;
        cum_ns += pair[i].outer.cum_ns;
    }
    put_label(f, group);
    put_number(f, ')', 5, 1);
    put_times(f, primitive, calls, self_ns, cum_ns);
    put(f, "{", 1);
    Py_ssize_t edges = 0;
    for (uint32_t i = first; i != 0; i = f->next[i]) {
        if (pair[i].caller < 0) {
            continue;
        }
        const fp_pairs_outer *outer = &pair[i].outer, *more = &pair[i].more;
        put_label(f, pair[i].caller);
        put_number(f, ')', 4, 1);
        put_times(f, activations(pair[i].calls, pair[i].resumes),
                  activations(outer->calls, outer->resumes) +
                      activations(more->calls, more->resumes),
                  pair[i].self_ns, outer->cum_ns + more->cum_ns);
        edges++;
    }
    put(f, "0", 1);
    return edges;
}

/* Returns -1 if a pair has no label. */
static int
chain_pairs(stats_file *f, Py_ssize_t groups)
{
    for (uint32_t i = 1; i < f->p->count; i++) {
        int32_t callee = f->p->pair[i].callee;
        if (callee >= groups || f->p->pair[i].caller >= groups) {
            PyErr_SetString(PyExc_ValueError, "expected a label per group");
            return -1;
        }
        stats_function *function = &f->function[callee];
        if (function->first == 0) {
            function->first = i;
        }
        else {
            f->next[function->last] = i;
        }
        function->last = i;
    }
    return 0;
}

/* A function's place is that of its first pair. */
static PyObject *
put_table(stats_file *f)
{
    Py_ssize_t functions = 0, edges = 0;
    put(f, "{", 1);
    for (uint32_t i = 1; i < f->p->count && f->bytes != NULL; i++) {
        int32_t callee = f->p->pair[i].callee;
        if (f->function[callee].first == i) {
            edges += put_function(f, callee);
            functions++;
        }
    }
    put(f, "0", 1);
    if (f->bytes == NULL || _PyBytes_Resize(&f->bytes, f->used) < 0) {
        return NULL;
    }
    return Py_BuildValue("Onn", f->bytes, functions, edges);
}

PyObject *
fp_stats_file(const fp_pairs *p, PyObject *labels)
{
    fp_alloc a = fp_alloc_libc();
    if (!PyList_CheckExact(labels)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of labels");
        return NULL;
    }
    size_t groups = (size_t)PyList_GET_SIZE(labels);
    stats_file f = {
        .p = p,
        .labels = labels,
        .files = PyDict_New(),
        .bytes = PyBytes_FromStringAndSize(NULL, 1 << 16),
        .function = fp_alloc_zeroed(&a, groups + 1, sizeof(*f.function)),
        .next = fp_alloc_zeroed(&a, p->count + 1, sizeof(*f.next)),
    };
    PyObject *made = NULL;
    if (f.function == NULL || f.next == NULL) {
        PyErr_NoMemory();
    }
    else if (f.files != NULL && chain_pairs(&f, (Py_ssize_t)groups) == 0) {
        made = put_table(&f);
    }
    if (made != NULL && f.is_odd) {
        Py_SETREF(made, Py_NewRef(Py_None));
    }
    fp_alloc_give(&a, f.function, groups + 1, sizeof(*f.function));
    fp_alloc_give(&a, f.next, p->count + 1, sizeof(*f.next));
    Py_XDECREF(f.files);
    Py_XDECREF(f.bytes);
    return made;
}
