#include "py/call_form.h"

#include "py/keytab.h"

#include <string.h>

/* Names of the instructions that announce a call. */
static const char *const call_names[] = {"CALL", "CALL_KW",
                                         "CALL_FUNCTION_EX"};

int
fp_call_form_init(fp_state *st)
{
    memset(st->call_opcodes, 0, sizeof(st->call_opcodes));
    if (!FP_HAVE_MONITORING) {
        return 0;
    }
    PyObject *opcode = PyImport_ImportModule("opcode");
    PyObject *map = opcode ? PyObject_GetAttrString(opcode, "opmap") : NULL;
    int rc = map != NULL ? 0 : -1;
    for (int i = 0; rc == 0 && i < FP_CALL_OPCODES; i++) {
        /* 3.12 has no CALL_KW. */
        PyObject *number = PyMapping_GetItemString(map, call_names[i]);
        if (number != NULL) {
            st->call_opcodes[i] = (unsigned char)PyLong_AsLong(number);
        }
        Py_XDECREF(number);
        PyErr_Clear();
    }
    Py_XDECREF(map);
    Py_XDECREF(opcode);
    return rc;
}

/* Is the instruction at which [frame] stands a call?  -1: not known. */
static int
at_call(const fp_state *st, PyFrameObject *frame)
{
    PyObject *bytes =
        fp_compat_code_bytes((PyCodeObject *)fp_compat_frame_code(frame));
    int found = -1;
    if (bytes != NULL && PyBytes_Check(bytes)) {
        const unsigned char *op = (unsigned char *)PyBytes_AS_STRING(bytes);
        Py_ssize_t at = fp_compat_frame_lasti(frame);
        /* It may stand at the instruction's last cache entry: these are 0. */
        while (at > 0 && at < PyBytes_GET_SIZE(bytes) && op[at] == 0) {
            at -= 2;
        }
        if (at >= 0 && at < PyBytes_GET_SIZE(bytes)) {
            found = op[at] != 0 &&
                    memchr(st->call_opcodes, op[at], FP_CALL_OPCODES) != NULL;
        }
    }
    Py_XDECREF(bytes);
    return found;
}

static int
function_called_implicitly(const fp_state *st, PyObject *code)
{
    int found = -1;
    fp_frame_walk walk;
    if (fp_compat_walk_begin(&walk) == code) {
        PyObject *caller = fp_compat_walk_next(&walk);
        /* Modules and classes run once, and their code may be long. */
        if (caller != NULL &&
            (((PyCodeObject *)caller)->co_flags & CO_NEWLOCALS) != 0) {
            found = at_call(st, walk.frame);
        }
    }
    fp_compat_walk_end(&walk);
    return found == 0;
}

int
fp_called_implicitly(const fp_state *st, fp_key key, PyObject *object)
{
    switch (fp_key_tag(key)) {
    case FP_TAG_PYTHON:
        /* A generator is announced when it is made, and begins later. */
        return st->call_opcodes[0] != 0 &&
               !fp_code_can_suspend((PyCodeObject *)object) &&
               function_called_implicitly(st, object);
    case FP_TAG_TYPE:
        return !fp_compat_enters_init((PyTypeObject *)object);
    default:
        return 0;
    }
}
