#include "py/call_form.h"

#include "py/keytab.h"

const char *const fp_call_form_names[FP_FORMS] = {
    [FP_FORM_SHORT] = "short",
    [FP_FORM_IMPLICIT] = "implicit",
    [FP_FORM_GENERAL] = "general",
    [FP_FORM_UNPACKED] = "unpacked",
};

/* Opcodes that send a CALL event.  KW_NAMES: 3.12 has it before a call with
 * keywords; later versions have CALL_KW instead. */
enum { CALL, CALL_KW, CALL_EX, KW_NAMES };

/* What the same opcodes become while they send events. */
enum { SENDING_CALL = FP_OPCODE_RESUME + 1, SENDING_KW, SENDING_EX };

static const char *const opcode_names[FP_OPCODES] = {
    [CALL] = "CALL",
    [CALL_KW] = "CALL_KW",
    [CALL_EX] = "CALL_FUNCTION_EX",
    [KW_NAMES] = "KW_NAMES",
    [FP_OPCODE_RESUME] = "RESUME",
    [SENDING_CALL] = "INSTRUMENTED_CALL",
    [SENDING_KW] = "INSTRUMENTED_CALL_KW",
    [SENDING_EX] = "INSTRUMENTED_CALL_FUNCTION_EX",
};

int
fp_call_form_init(fp_state *st)
{
    PyObject *opcode = PyImport_ImportModule("opcode");
    PyObject *map = opcode ? PyObject_GetAttrString(opcode, "opmap") : NULL;
    int rc = map != NULL ? 0 : -1;
    for (int i = 0; rc == 0 && i < FP_OPCODES; i++) {
        PyObject *number = PyMapping_GetItemString(map, opcode_names[i]);
        st->opcodes[i] = number ? (unsigned char)PyLong_AsLong(number) : 0;
        Py_XDECREF(number);
        if (FP_HAVE_RESUME_OPCODE && i == FP_OPCODE_RESUME && !number) {
            rc = -1; /* calls of generators would be miscounted */
        }
        else {
            PyErr_Clear();
        }
    }
    Py_XDECREF(map);
    Py_XDECREF(opcode);
    return rc;
}

typedef enum at_call {
    AT_UNKNOWN,
    AT_OTHER,
    AT_CALL,
    AT_KEYWORDS, /* this and the next: not a plain call */
    AT_STARS
} at_call;

/* Classifies the instruction [op][at], which is not a cache entry. */
static at_call
which_call(const fp_state *st, const unsigned char *op, Py_ssize_t at)
{
    const unsigned char *known = st->opcodes;
    if (op[at] == known[CALL]) {
        int named =
            known[KW_NAMES] != 0 && at >= 2 && op[at - 2] == known[KW_NAMES];
        return named ? AT_KEYWORDS : AT_CALL;
    }
    if (op[at] == known[CALL_KW]) {
        return AT_KEYWORDS;
    }
    return op[at] == known[CALL_EX] ? AT_STARS : AT_OTHER;
}

/* Classifies the current instruction of [frame].  Modules and classes are
 * skipped: they run once, and their code may be long. */
static at_call
instruction(const fp_state *st, PyFrameObject *frame)
{
    PyCodeObject *code = (PyCodeObject *)fp_compat_frame_code(frame);
    if (st->opcodes[CALL] == 0 || (code->co_flags & CO_NEWLOCALS) == 0) {
        return AT_UNKNOWN;
    }
    PyObject *bytes = fp_compat_code_bytes(code);
    at_call found = AT_UNKNOWN;
    if (bytes != NULL && PyBytes_Check(bytes)) {
        const unsigned char *op = (unsigned char *)PyBytes_AS_STRING(bytes);
        Py_ssize_t at = fp_compat_frame_lasti(frame);
        /* The offset may be that of the instruction's last cache entry; those
         * are 0. */
        while (at > 0 && at < PyBytes_GET_SIZE(bytes) && op[at] == 0) {
            at -= 2;
        }
        if (at >= 0 && at < PyBytes_GET_SIZE(bytes) && op[at] != 0) {
            found = which_call(st, op, at);
        }
    }
    Py_XDECREF(bytes);
    return found;
}

/* Classifies the call instruction that called the innermost frame's code, or,
 * if [callee] is NULL, the one at which that frame stands. */
static at_call
called_at(const fp_state *st, PyObject *callee)
{
    fp_frame_walk walk;
    PyObject *caller = fp_compat_walk_begin(&walk);
    if (callee != NULL) {
        caller = caller == callee ? fp_compat_walk_next(&walk) : NULL;
    }
    at_call found = caller != NULL ? instruction(st, walk.frame) : AT_UNKNOWN;
    fp_compat_walk_end(&walk);
    return found;
}

static fp_call_form
form_of_function(const fp_state *st, PyCodeObject *code)
{
    if (fp_code_can_suspend(code)) {
        return FP_FORM_SHORT; /* the call creates it; its code starts later */
    }
    switch (called_at(st, (PyObject *)code)) {
    case AT_OTHER:
        return FP_FORM_IMPLICIT;
    case AT_KEYWORDS:
        return FP_FORM_GENERAL;
    case AT_STARS:
        return FP_FORM_UNPACKED;
    default:
        return (code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0 ||
                       code->co_kwonlyargcount != 0
                   ? FP_FORM_GENERAL
                   : FP_FORM_SHORT;
    }
}

fp_call_form
fp_called_how(const fp_state *st, fp_key key, PyObject *object)
{
    at_call at;
    switch (fp_key_tag(key)) {
    case FP_TAG_PYTHON:
        return form_of_function(st, (PyCodeObject *)object);
    case FP_TAG_C:
        if ((fp_key_method(key)->ml_flags & METH_VARARGS) != 0) {
            return FP_FORM_GENERAL;
        }
        at = called_at(st, NULL);
        return at >= AT_KEYWORDS ? FP_FORM_GENERAL : FP_FORM_SHORT;
    case FP_TAG_TYPE:
        if (!fp_compat_enters_init((PyTypeObject *)object)) {
            return FP_FORM_IMPLICIT;
        }
        at = called_at(st, NULL);
        return at >= AT_KEYWORDS ? FP_FORM_IMPLICIT : FP_FORM_SHORT;
    default:
        return FP_FORM_SHORT;
    }
}

int
fp_is_star_call(const fp_state *st, PyObject *code, long offset)
{
    const unsigned char *known = st->opcodes;
    unsigned char now = fp_compat_opcode_now((PyCodeObject *)code, offset);
    if (now == 0 || now == known[SENDING_CALL] || now == known[SENDING_KW]) {
        return 0;
    }
    if (now == known[SENDING_EX]) {
        return 1;
    }
    /* Another tool's event of the line or instruction hides the opcode. */
    PyObject *bytes = fp_compat_code_bytes((PyCodeObject *)code);
    int star = 0;
    if (bytes != NULL && PyBytes_Check(bytes) &&
        offset < PyBytes_GET_SIZE(bytes)) {
        star =
            (unsigned char)PyBytes_AS_STRING(bytes)[offset] == known[CALL_EX];
    }
    PyErr_Clear(); /* no memory */
    Py_XDECREF(bytes);
    return star;
}
