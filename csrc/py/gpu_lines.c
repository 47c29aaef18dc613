/* gpu_lines: finds the source lines that wait for the GPU.
 *
 * A CUPTI callback must not take the GIL, so it cannot read frames.  It
 * requests a pending call instead.  That call runs on the main thread as soon
 * as the C function that waited has returned, when the line is still the
 * caller's.  If the thread has moved on (the wait was not a call, as in `if
 * tensor:`), the wait has no line. */
#include "py/gpu_layer.h"
#include "py/guard.h"
#include "py/threads.h"

#include <string.h>

enum { MAX_LINES = 10000 };

static fp_recorder *keeper; /* borrowed; guarded by the GIL */

/* Written by the main thread only, in its callbacks and in the pending
 * call. */
static struct {
    fp_place place;
    int64_t ticks;
    uint64_t count;
    int asked;
} wait_under_way;

void
fp_gpu_lines_for(fp_recorder *r)
{
    keeper = r;
}

/* Is the node of [place], or its parent, the thread's current node? */
static int
still_there(fp_recorder *r, fp_place place)
{
    const fp_thread *t = fp_recorder_own_thread(r);
    if (t == NULL || (uint32_t)t->serial != fp_place_thread(place) ||
        fp_place_node(place) >= t->tree.count) {
        return 0;
    }
    const fp_node *n = fp_tree_node(&t->tree, fp_place_node(place));
    return t->cur == n || t->cur == n->parent;
}

/* Is [frame] a function of fastprof, such as a wrapper of Tensor.to? */
static int
is_ours(PyFrameObject *frame)
{
    PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
    PyObject *name = globals != NULL && PyDict_Check(globals)
                         ? PyDict_GetItemString(globals, "__name__")
                         : NULL;
    const char *text =
        name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    int ours = text != NULL && strncmp(text, "fastprof.", 9) == 0;
    Py_XDECREF(globals);
    PyErr_Clear();
    return ours;
}

/* The innermost frame of the program.  New reference or NULL. */
static PyFrameObject *
program_frame(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL && is_ours(frame)) {
        PyFrameObject *caller = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    return frame;
}

/* New reference: (place, file, line, function); NULL with or without an
 * exception. */
static PyObject *
line_key(fp_place place)
{
    PyFrameObject *frame = program_frame();
    if (frame == NULL) {
        return NULL;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *key =
        Py_BuildValue("(KOiO)", (unsigned long long)place, code->co_filename,
                      PyFrame_GetLineNumber(frame), code->co_name);
    Py_DECREF(code);
    Py_DECREF(frame);
    return key;
}

static int
add(PyObject *lines, PyObject *key, uint64_t count, int64_t ticks)
{
    PyObject *sum = PyDict_GetItemWithError(lines, key);
    if (sum == NULL && (PyErr_Occurred() || PyDict_Size(lines) >= MAX_LINES)) {
        return -1;
    }
    unsigned long long counted = 0;
    long long waited = 0;
    if (sum != NULL && !PyArg_ParseTuple(sum, "KL", &counted, &waited)) {
        return -1;
    }
    PyObject *more = Py_BuildValue("(KL)", counted + count, waited + ticks);
    int rc = more != NULL ? PyDict_SetItem(lines, key, more) : -1;
    Py_XDECREF(more);
    return rc;
}

static int
look(void *ignored)
{
    FP_GUARD();
    (void)ignored;
    fp_place place = wait_under_way.place;
    int64_t ticks = wait_under_way.ticks;
    uint64_t count = wait_under_way.count;
    wait_under_way.asked = 0;
    fp_recorder *r = keeper;
    if (r == NULL || r->gpu.lines == NULL || !still_there(r, place)) {
        return 0;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    PyObject *lines = Py_NewRef(r->gpu.lines);
    PyObject *key = line_key(place);
    if (key != NULL) {
        (void)add(lines, key, count, ticks);
    }
    PyErr_Clear(); /* without memory the wait has no line */
    Py_XDECREF(key);
    Py_DECREF(lines);
    PyErr_Restore(type, exc, tb);
    return 0;
}

void
fp_gpu_lines_note(fp_place place, int64_t blocked_ticks)
{
    if (wait_under_way.asked && wait_under_way.place == place) {
        wait_under_way.ticks += blocked_ticks;
        wait_under_way.count++;
        return;
    }
    int asked = wait_under_way.asked;
    wait_under_way.place = place;
    wait_under_way.ticks = blocked_ticks;
    wait_under_way.count = 1;
    wait_under_way.asked = 1;
    if (!asked && Py_AddPendingCall(look, NULL) != 0) {
        /* the queue of pending calls is full: no line */
        wait_under_way.asked = 0;
    }
}
