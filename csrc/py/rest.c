#include "py/rest.h"

#include "py/guard.h"
#include "py/events.h"
#include "py/hooks.h"
#include "py/threads.h"

#include "core/path_rebuild.h"

/* Can the hook rest in the calling thread? */
static int
may_begin(fp_recorder *r)
{
    return r->functions_on && !r->paused && !r->switching &&
           r->config.timer == NULL &&
           r->recording.phases.now == FP_RUN_SETUP &&
           r->hooks.backend == FP_BACKEND_SETPROFILE &&
           fp_setprofile_is_home(r) && fp_recorder_here(r) != NULL;
}

static PyObject *
begin(fp_recorder *r, const char *file)
{
    if (!may_begin(r)) {
        return Py_NewRef(Py_None);
    }
    PyObject *module = (PyObject *)PyCode_NewEmpty(file, "<module>", 1);
    if (module == NULL) {
        return NULL;
    }
    if (r->hooks.resting == 0) {
        if (!fp_setprofile_rest(r)) {
            Py_DECREF(module);
            return Py_NewRef(Py_None);
        }
        r->hooks.resting = (fp_key)module;
    }
    fp_recorder_enter(r, (fp_key)module, module, 0);
    return module;
}

static void
put_back(fp_recorder *r)
{
    fp_thread *t = fp_recorder_own_thread(r);
    r->hooks.resting = 0;
    if (t != NULL) {
        t->stale = 1;
        if (!r->paused) {
            /* Calls on the path are charged up to now. */
            fp_thread_park(t, fp_clock_now(&r->clock));
            fp_paused_catch_up(r, t, 0);
        }
    }
    fp_setprofile_wake(r);
}

void
fp_rest_end(fp_recorder *r, PyObject *module)
{
    if (r->hooks.resting == 0 || !fp_setprofile_is_home(r)) {
        return;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    if (module == NULL || r->hooks.resting == (fp_key)module) {
        put_back(r);
    }
    else {
        fp_recorder_leave(r, (fp_key)module);
    }
    PyErr_Restore(type, exc, tb);
}

PyObject *
fp_recorder_rest_method(PyObject *self, PyObject *file)
{
    FP_GUARD();
    const char *name = PyUnicode_AsUTF8(file);
    return name == NULL ? NULL : begin(fp_recorder_cast(self), name);
}

PyObject *
fp_recorder_end_rest_method(PyObject *self, PyObject *module)
{
    FP_GUARD();
    fp_rest_end(fp_recorder_cast(self), module == Py_None ? NULL : module);
    Py_RETURN_NONE;
}
