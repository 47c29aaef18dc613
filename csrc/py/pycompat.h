/* pycompat: hides the differences between the supported CPython versions
 * behind functions that are named after what they do.  No other file tests the
 * version. */
#ifndef FP_PY_PYCOMPAT_H
#define FP_PY_PYCOMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <pythread.h>
#include <structmember.h>

/* Do threads run at the same time?  See guard.h. */
#ifdef Py_GIL_DISABLED
#define FP_FREE_THREADED 1
#else
#define FP_FREE_THREADED 0
#endif

#if PY_VERSION_HEX >= 0x030C0000
#define FP_HAVE_MONITORING 1
#else
#define FP_HAVE_MONITORING 0
#endif

/* Does the main thread run a pending call at once, whoever requests it? */
#if PY_VERSION_HEX >= 0x030D0000
#define FP_PENDING_CALLS_INTERRUPT 1
#else
#define FP_PENDING_CALLS_INTERRUPT 0
#endif

/* Does CPython stop the other threads when a callback switches an event off?
 * (python/cpython#136994) */
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
#define FP_DISABLE_STOPS_WORLD 1
#else
#define FP_DISABLE_STOPS_WORLD 0
#endif

/* The context of the current task; each asyncio task has its context.
 * Borrowed; only to be compared. */
static inline const void *
fp_compat_context(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked()->context;
#else
    return _PyThreadState_UncheckedGet()->context; /* the GIL is held */
#endif
}

/* Does this thread hold the GIL, in the main interpreter?  (In a free-threaded
 * build: may it call Python?)  For code that may run on any thread:
 * PyGILState_Check() is true on all of them once a subinterpreter has
 * existed. */
static inline int
fp_compat_holds_gil(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyThreadState *ts = PyThreadState_GetUnchecked();
#else
    PyThreadState *ts = _PyThreadState_UncheckedGet();
#endif
    /* Before 3.12 this is the thread state of the GIL's holder. */
    return ts != NULL && ts == PyGILState_GetThisThreadState() &&
           ts->interp == PyInterpreterState_Main();
}

/* Is a profile function set in this thread, and is [arg] its argument?  The
 * public sys.getprofile() cannot see a function set without an argument. */
static inline int
fp_compat_has_profile_func(PyObject **arg)
{
    PyThreadState *ts = PyThreadState_Get();
    *arg = ts->c_profileobj;
    return ts->c_profilefunc != NULL;
}

/* Code of [frame]; borrowed: the frame keeps it alive. */
static inline PyObject *
fp_compat_frame_code(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_DECREF(code);
    return (PyObject *)code;
#else
    return (PyObject *)frame->f_code;
#endif
}

/* Bytes of an opcode and its argument. */
enum { FP_CODE_UNIT = 2 };

/* Byte offset of the last instruction; -1 if none has run. */
static inline int
fp_compat_frame_lasti(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    return frame->f_lasti < 0 ? -1 : frame->f_lasti * FP_CODE_UNIT;
#endif
}

/* ---- the frames of another thread, as they are in memory ----
 *
 * Offsets in bytes.  Nobody follows these pointers: whoever uses them copies
 * the memory with a system call that fails where there is none, and first
 * compares the result for its own thread with what the functions above say. */
enum {
#if PY_VERSION_HEX >= 0x030D0000
    FP_TS_FRAME = offsetof(PyThreadState, current_frame),
    FP_TS_FRAME_IN = -1, /* is the frame's address */
#elif PY_VERSION_HEX >= 0x030B0000
    FP_TS_FRAME = offsetof(PyThreadState, cframe),
    FP_TS_FRAME_IN = offsetof(_PyCFrame, current_frame), /* points there */
#else
    FP_TS_FRAME = offsetof(PyThreadState, frame),
    FP_TS_FRAME_IN = -1,
#endif
#if PY_VERSION_HEX >= 0x030C0000
    FP_FRAME_CODE = 0,
    FP_FRAME_BACK = sizeof(void *),
    FP_FRAME_AT = 7 * sizeof(void *),
#elif PY_VERSION_HEX >= 0x030B0000
    FP_FRAME_CODE = 4 * sizeof(void *),
    FP_FRAME_BACK = 6 * sizeof(void *),
    FP_FRAME_AT = 7 * sizeof(void *),
#else
    FP_FRAME_CODE = offsetof(PyFrameObject, f_code),
    FP_FRAME_BACK = offsetof(PyFrameObject, f_back),
    FP_FRAME_AT = offsetof(PyFrameObject, f_lasti),
#endif
    FP_FRAME_SIZE = FP_FRAME_AT + sizeof(void *),
};

/* The address of the code from the word at FP_FRAME_CODE: since 3.14 its
 * lowest bits say who owns the reference. */
static inline uintptr_t
fp_compat_raw_code(uintptr_t word)
{
    return word & ~(uintptr_t)3;
}

/* The place of the instruction from the word at FP_FRAME_AT. */
static inline uintptr_t
fp_compat_raw_at(uintptr_t word)
{
#if PY_VERSION_HEX >= 0x030B0000
    return word; /* an address */
#else
    return (uint32_t)word; /* an int, the number of the instruction */
#endif
}

/* Byte offset in [code] of what fp_compat_raw_at() returned; -1: none of this
 * code's. */
static inline int
fp_compat_raw_offset(const PyCodeObject *code, uintptr_t raw)
{
#if PY_VERSION_HEX >= 0x030B0000
    uintptr_t at = raw - (uintptr_t)code->co_code_adaptive;
    uintptr_t end = (uintptr_t)Py_SIZE(code) * FP_CODE_UNIT;
#else
    uintptr_t at = raw * FP_CODE_UNIT;
    uintptr_t end = (uintptr_t)PyBytes_GET_SIZE(code->co_code);
#endif
    return at < end ? (int)at : -1;
}

/* ---- the frames of this thread, innermost first ----
 *
 * In 3.11 creating a frame object may run the garbage collector and thereby
 * any code, so collections are off during the walk. */
typedef struct fp_frame_walk {
    PyFrameObject *frame; /* owned */
    PyObject *type, *exc, *tb;
    int collecting;
} fp_frame_walk;

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define FP_FRAMES_COLLECT 1
#else
#define FP_FRAMES_COLLECT 0
#endif

/* Returns the code of the walk's current frame, borrowed; NULL: no more
 * frames. */
static inline PyObject *
fp_compat_walk_begin(fp_frame_walk *w)
{
    w->collecting = FP_FRAMES_COLLECT && PyGC_Disable();
    PyErr_Fetch(&w->type, &w->exc, &w->tb);
    w->frame = PyThreadState_GetFrame(PyThreadState_Get());
    return w->frame != NULL ? fp_compat_frame_code(w->frame) : NULL;
}

static inline PyObject *
fp_compat_walk_next(fp_frame_walk *w)
{
    PyFrameObject *back = PyFrame_GetBack(w->frame);
    Py_SETREF(w->frame, back);
    return back != NULL ? fp_compat_frame_code(back) : NULL;
}

static inline void
fp_compat_walk_end(fp_frame_walk *w)
{
    Py_CLEAR(w->frame);
    /* drops a MemoryError of the walk */
    PyErr_Restore(w->type, w->exc, w->tb);
    if (w->collecting) {
        PyGC_Enable();
    }
}

/* In 3.11 and later, the first instruction of a generator that can be traced
 * is its first RESUME.  Before, an unstarted frame has no last instruction. */
#if PY_VERSION_HEX >= 0x030B0000
#define FP_HAVE_RESUME_OPCODE 1
#else
#define FP_HAVE_RESUME_OPCODE 0
#endif

static inline PyObject *
fp_compat_code_qualname(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    return Py_NewRef(code->co_qualname);
#else
    return Py_NewRef(code->co_name);
#endif
}

/* The dict of [type], without its bases; new reference or NULL. */
static inline PyObject *
fp_compat_type_dict(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

/* The value of [key] in [dict]; new reference, NULL if there is none or with an
 * exception. */
static inline PyObject *
fp_compat_dict_get(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *value = NULL;
    (void)PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* What a weak reference refers to, or [object] itself if it is none; new
 * reference, NULL if that is gone or [object] is NULL. */
static inline PyObject *
fp_compat_strong(PyObject *object)
{
    if (object == NULL || !PyWeakref_Check(object)) {
        return Py_XNewRef(object);
    }
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *referent = NULL;
    (void)PyWeakref_GetRef(object, &referent);
    return referent;
#else
    PyObject *referent = PyWeakref_GetObject(object);
    return referent != Py_None ? Py_XNewRef(referent) : NULL;
#endif
}

/* Does a call instruction without a CALL event enter the `__init__` of [type]
 * without C code in between?  3.13 does for objects with inline values. */
static inline int
fp_compat_enters_init(const PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030E0000
    return (type->tp_flags & Py_TPFLAGS_INLINE_VALUES) != 0;
#else
    (void)type;
    return 1;
#endif
}

/* The original bytecode as a new bytes object; NULL with an exception. */
static inline PyObject *
fp_compat_code_bytes(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyCode_GetCode(code);
#else
    return Py_NewRef(code->co_code);
#endif
}

/* The opcode of [code] at the byte [offset] as it is now, with the events that
 * are on; 0: there is none. */
static inline unsigned char
fp_compat_opcode_now(const PyCodeObject *code, long offset)
{
#if FP_HAVE_MONITORING
    /* the size counts units of an opcode and its argument */
    return offset >= 0 && offset < 2 * (long)Py_SIZE(code)
               ? (unsigned char)code->co_code_adaptive[offset]
               : 0;
#else
    (void)code;
    (void)offset;
    return 0;
#endif
}

/* The module of [type] or of its base class that [def] created; borrowed, NULL
 * with an exception. */
static inline PyObject *
fp_compat_module_by_def(PyTypeObject *type, PyModuleDef *def)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyType_GetModuleByDef(type, def);
#else
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
        PyObject *base = PyTuple_GET_ITEM(type->tp_mro, i);
        if (!PyType_HasFeature((PyTypeObject *)base, Py_TPFLAGS_HEAPTYPE)) {
            continue;
        }
        PyObject *module = ((PyHeapTypeObject *)base)->ht_module;
        if (module != NULL && PyModule_GetDef(module) == def) {
            return module;
        }
    }
    PyErr_SetString(PyExc_TypeError, "not one of fastprof's types");
    return NULL;
#endif
}

#if FP_HAVE_MONITORING && PY_VERSION_HEX < 0x030E0000
/* Exported by CPython 3.12 and 3.13 though no header declares it. */
PyAPI_FUNC(int) _PyEval_SetProfile(PyThreadState *, Py_tracefunc, PyObject *);
#endif

/* Before 3.12 a thread's profile function is three fields of its thread state.
 * PyEval_SetProfile only writes them and raises an audit event.  While that
 * event runs Python code, 3.11 makes every other thread that sets a profile
 * function fail with RuntimeError.  That must not kill a thread of the
 * program, so the fields are written directly in all threads except the one
 * that starts a recording. */
#if PY_VERSION_HEX < 0x030C0000
#define FP_DIRECT_PROFILE 1
#else
#define FP_DIRECT_PROFILE 0
#endif

static inline void
fp_compat_set_profile_directly(PyThreadState *ts, Py_tracefunc func,
                               PyObject *arg)
{
#if FP_DIRECT_PROFILE
    PyObject *old = ts->c_profileobj;
    int on = func != NULL || ts->c_tracefunc != NULL;
    ts->c_profileobj = Py_XNewRef(arg);
    ts->c_profilefunc = func;
#if PY_VERSION_HEX >= 0x030B0000
    ts->cframe->use_tracing = on ? 255 : 0;
#else
    ts->cframe->use_tracing = on;
#endif
    Py_XDECREF(old);
#else
    (void)ts;
    PyEval_SetProfile(func, arg);
    PyErr_Clear();
#endif
}

#if FP_HAVE_MONITORING
static inline int
fp_compat_thread_lives(PyThreadState *ts, uint64_t id)
{
    PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; t != NULL; t = PyThreadState_Next(t)) {
        if (t == ts) {
            return t->id == id;
        }
    }
    return 0;
}
#endif

/* Between these two neither a trace nor a profile function is called in the
 * thread, nor a callback of sys.monitoring. */
static inline void
fp_compat_enter_tracing(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_EnterTracing(ts);
#else
    ts->tracing++;
    ts->cframe->use_tracing = 0;
#endif
}

static inline void
fp_compat_leave_tracing(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_LeaveTracing(ts);
#else
    ts->tracing--;
    ts->cframe->use_tracing =
        ts->c_tracefunc != NULL || ts->c_profilefunc != NULL;
#endif
}

/* Does [ts] have a profile function that must be left alone?  A function whose
 * argument satisfies [is_over] may be replaced. */
static inline int
fp_compat_thread_is_taken(PyThreadState *ts, int (*is_over)(PyObject *arg))
{
    PyObject *arg = ts->c_profileobj;
    return (ts->c_profilefunc != NULL || arg != NULL) &&
           !(arg != NULL && is_over(arg));
}

/* ---- free-threaded builds ---- */

#if FP_FREE_THREADED
/* A lock that a thread releases while it waits or stops, like the GIL. */
typedef PyCriticalSection fp_critical;

static inline void
fp_compat_critical_begin(fp_critical *c, PyObject *lock)
{
    PyCriticalSection_Begin(c, lock);
}

static inline void
fp_compat_critical_end(fp_critical *c)
{
    PyCriticalSection_End(c);
}

/* In a forked child: [held] by this thread, or by nobody.  CPython may have
 * handed the lock to a thread that does not exist here. */
static inline void
fp_compat_critical_reset(PyObject *lock, int held)
{
    lock->ob_mutex._bits = held ? 1 : 0;
}

static inline int
fp_compat_has_one_thread(void)
{
    PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    return PyThreadState_Next(t) == NULL;
}

typedef struct fp_world_call {
    void (*function)(void *);
    void *arg;
} fp_world_call;

static int
fp_compat_world_visit(PyObject *Py_UNUSED(object), void *arg)
{
    fp_world_call *call = (fp_world_call *)arg;
    if (call->function != NULL) {
        call->function(call->arg);
        call->function = NULL;
    }
    return 0; /* visit no further object */
}

/* Calls function(arg) while every other thread stands still, outside of C code
 * that holds references.  The public API stops the world only in order to
 * visit objects; there is always one to visit.  [function] must not call
 * Python. */
static inline void
fp_compat_stop_world(void (*function)(void *), void *arg)
{
    fp_world_call call = {function, arg};
    PyUnstable_GC_VisitObjects(fp_compat_world_visit, &call);
}
#endif

/* Threads of a free-threaded build would take turns to count references to
 * [object], which lives as long as the process.  An immortal object has no
 * count. */
static inline void
fp_compat_immortal(PyObject *object)
{
#if FP_FREE_THREADED
    object->ob_tid = _Py_UNOWNED_TID;
    object->ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL;
    object->ob_ref_shared = 0;
#else
    (void)object;
#endif
}

/* Has another thread a profile function of a recording that is over?  Without
 * the GIL that thread may end meanwhile. */
static inline int
fp_compat_profile_is_elsewhere(int (*is_over)(PyObject *arg))
{
    if (FP_FREE_THREADED) {
        return 0;
    }
    PyThreadState *me = PyThreadState_Get();
    PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; t != NULL; t = PyThreadState_Next(t)) {
        if (t != me && t->c_profileobj != NULL && is_over(t->c_profileobj)) {
            return 1;
        }
    }
    return 0;
}

/* Sets [func], or none if it is NULL, in every other thread without a foreign
 * profile function.  Since 3.14 it can only be set in all threads at once, so
 * nothing is done if one of them has a foreign function.
 * PyEval_SetProfileAllThreads walks a list that may change meanwhile
 * (python/cpython#137400); before that was fixed in 3.14.1, each thread is
 * looked up again before it is changed. */
static inline void
fp_compat_set_profile_elsewhere(Py_tracefunc func, PyObject *arg,
                                int (*is_over)(PyObject *arg))
{
#if PY_VERSION_HEX >= 0x030E0000
    if (Py_Version < 0x030E0100) {
        return; /* 3.14.0 crashes if a thread ends meanwhile */
    }
    PyThreadState *me = PyThreadState_Get();
    PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; t != NULL; t = PyThreadState_Next(t)) {
        if (t != me && fp_compat_thread_is_taken(t, is_over)) {
            return;
        }
    }
    PyEval_SetProfileAllThreads(func, arg);
#elif FP_FREE_THREADED
    /* 3.13 cannot set it safely in a thread that runs. */
    (void)func;
    (void)arg;
    (void)is_over;
#elif FP_DIRECT_PROFILE
    /* Nothing here releases the GIL, so the list does not change. */
    PyThreadState *me = PyThreadState_Get();
    PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; t != NULL; t = PyThreadState_Next(t)) {
        if (t != me && !fp_compat_thread_is_taken(t, is_over) &&
            t->cframe != NULL) {
            fp_compat_set_profile_directly(t, func, arg);
        }
    }
#else
    enum { MAX_THREADS = 4096 };
    PyThreadState *me = PyThreadState_Get();
    PyThreadState *t = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    struct {
        PyThreadState *ts;
        uint64_t id;
    } *seen = PyMem_RawMalloc(MAX_THREADS * sizeof(*seen));
    int n = 0;
    if (seen == NULL) {
        return;
    }
    for (; t != NULL && n < MAX_THREADS; t = PyThreadState_Next(t)) {
        if (t != me) {
            seen[n].ts = t;
            seen[n++].id = t->id;
        }
    }
    for (int i = 0; i < n; i++) {
        if (fp_compat_thread_lives(seen[i].ts, seen[i].id) &&
            !fp_compat_thread_is_taken(seen[i].ts, is_over) &&
            _PyEval_SetProfile(seen[i].ts, func, arg) < 0) {
            PyErr_Clear();
        }
    }
    PyMem_RawFree(seen);
#endif
}

#endif
