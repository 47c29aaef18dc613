#include "py/nvtx_glue.h"

#include "py/guard.h"
#include "py/nvtx_in.h"
#include "py/nvtx_thread.h"

#include <stdlib.h>

/* ---- out: sections become NVTX ranges ----
 *
 * Global, because the tool's request has no user pointer. */

static fp_nvtx_out out;
static int is_open;
static uint64_t out_epoch; /* epoch of the latest start */

static int
get_module(int module, fp_nvtx_table *table, unsigned *count)
{
    return fp_nvtx_out_module(&out, module, table, count);
}

static void
set_tool_version(uint32_t version)
{
    (void)version;
}

static const fp_nvtx_callbacks callbacks = {
    .size = sizeof(callbacks),
    .get_module = get_module,
};

static const fp_nvtx_version_info version_info = {
    .size = sizeof(version_info),
    .version = FP_NVTX_VERSION,
    .set_tool_version = set_tool_version,
};

static const void *
get_export(uint32_t table)
{
    switch (table) {
    case FP_NVTX_EXPORT_CALLBACKS:
        return &callbacks;
    case FP_NVTX_EXPORT_VERSION:
        return &version_info;
    default:
        return NULL;
    }
}

static fp_nvtx_open
what_of(const fp_section_object *s)
{
    return (fp_nvtx_open){
        .owner = fp_compat_context(),
        .epoch = out_epoch,
        .id = s->id,
    };
}

static void
section_opens(const fp_section_object *s)
{
    fp_nvtx_thread *t = fp_nvtx_thread_get(1);
    if (t == NULL) {
        return;
    }
    /* The str keeps the UTF-8 as long as the section exists. */
    const char *name = PyUnicode_AsUTF8(s->name);
    if (name == NULL) {
        PyErr_Clear(); /* the name has a lone surrogate */
        name = "(section)";
    }
    fp_alloc a = fp_alloc_libc();
    fp_nvtx_out_push(&out, &t->out, &a, name, what_of(s));
}

static void
section_closed(const fp_section_object *s, fp_recorder *r)
{
    fp_nvtx_thread *t = fp_nvtx_thread_get(0);
    if (t != NULL) {
        r->recording.nvtx_unbalanced +=
            fp_nvtx_out_pop(&out, &t->out, what_of(s));
    }
}

const fp_layer fp_nvtx_layer = {
    .sections_stop = fp_nvtx_in_collect,
    .section_opens = section_opens,
    .section_closed = section_closed,
    .exporting = fp_nvtx_in_collect,
};

static void
set_nvtx_out(fp_state *st, uint8_t on)
{
    st->nvtx_out = on;
    if (st->section_owner != NULL) {
        FP_WRITE(st->section_owner->nvtx_out, on);
    }
}

static void
out_off(fp_state *st)
{
    fp_nvtx_thread *t = fp_nvtx_thread_get(0);
    if (t != NULL && is_open) {
        fp_nvtx_out_end(&out, &t->out);
    }
    set_nvtx_out(st, 0);
}

static PyObject *
set_out(PyObject *module, PyObject *value)
{
    FP_GUARD();
    fp_state *st = fp_state_of(module);
    int on = PyObject_IsTrue(value);
    if (on < 0) {
        return NULL;
    }
    if (!on) {
        out_off(st);
        Py_RETURN_NONE;
    }
    const char *path = getenv(FP_NVTX_PATH_VARIABLE);
    fp_why why = {""};
    if (st->forced_off) {
        fp_why_set(&why, "profiling is forced off");
    }
    else if (!is_open && (path == NULL || path[0] == '\0')) {
        fp_why_set(&why, "no tool listens to NVTX");
    }
    else if (is_open ||
             fp_nvtx_out_open(&out, path, get_export, InitializeInjectionNvtx2,
                              &why) == 0) {
        is_open = 1;
        out_epoch = fp_new_epoch();
        set_nvtx_out(st, 1);
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeFSDefault(why.text);
}

static PyObject *
emits(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(fp_state_of(module)->nvtx_out);
}

/* ---- in ---- */

static PyObject *
set_in(PyObject *module, PyObject *value)
{
    FP_GUARD();
    int on = PyObject_IsTrue(value);
    if (on < 0) {
        return NULL;
    }
    fp_nvtx_in_switch(on && !fp_state_of(module)->forced_off);
    Py_RETURN_NONE;
}

static PyObject *
tool(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const char *path = getenv(FP_NVTX_PATH_VARIABLE);
    if (path == NULL || path[0] == '\0') {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeFSDefault(path);
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"nvtx_in", set_in, METH_O, "nvtx_in($module, on, /)\n--\n\n"},
    {"nvtx_emits", emits, METH_NOARGS, "nvtx_emits($module, /)\n--\n\n"},
    {"nvtx_out", set_out, METH_O, "nvtx_out($module, on, /)\n--\n\n"},
    {"nvtx_tool", tool, METH_NOARGS, "nvtx_tool($module, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

int
fp_nvtx_add_functions(PyObject *module, fp_state *st)
{
    if (PyModule_AddFunctions(module, functions) < 0) {
        return -1;
    }
    fp_nvtx_in_allow(st);
    return 0;
}

void
fp_nvtx_switch_off(fp_state *st)
{
    fp_nvtx_in_switch(0);
    st->nvtx_out = 0;
}

void
fp_nvtx_forbid(fp_state *st)
{
    st->nvtx_out = 0;
    fp_nvtx_in_forbid(st);
}
