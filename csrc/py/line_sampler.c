#include "py/line_sampler.h"

#include "core/own_file.h"
#include "core/spots.h"
#include "gpu/worker.h"
#include "py/guard.h"
#include "py/own_thread.h"

enum {
    MAX_SPOTS = 8192, /* 192 KiB */
    MAX_CALLS = 192,  /* of one sample, innermost first */
    MAX_SAMPLES = 100000,
    PAGE = 4096, /* or a part of one */
};

/* One sample takes at most this part of the time. */
enum { COST_PART = 100 };

/* While the training thread is in no step, samples are taken this much more
 * rarely, and thrown away. */
enum { IDLE_TIMES = 16 };

typedef struct sampler {
    /* set before the thread begins */
    fp_recorder *recorder; /* borrowed; NULL: no window */
    uintptr_t thread_state;
    uint64_t thread_id; /* PyThreadState.id: tells a reused address */
    int64_t interval_ns;
    int64_t until_ns; /* CLOCK_MONOTONIC */
    uint64_t most;
    /* the thread's until it has ended */
    fp_spots spots;
    fp_own_file memory; /* of this process */
    /* shared */
    _Atomic int over; /* the thread takes no more samples */
    fp_own_thread thread;
} sampler;

static void *
sample(void *arg);

/* Written under the GIL. */
static sampler the_sampler = {.thread = {.run = sample}};

/* ---- memory of the program ---- */

/* One copied piece of memory. */
typedef struct piece {
    uintptr_t start;
    size_t size;
    unsigned char bytes[PAGE + FP_FRAME_SIZE];
} piece;

/* A file, because reading it fails where there is no memory.  So does
 * process_vm_readv(), but filters of system calls in containers and sandboxes
 * refuse it, and some end the process. */
static int
copy(const fp_own_file *memory, uintptr_t from, void *to, size_t size)
{
    return fp_own_file_read(memory, to, size, from) == (int64_t)size ? 0 : -1;
}

/* Copies the frame at [at].  Frames lie close to each other, callers first, so
 * the part of the page before it is copied with it, at most once each. */
static int
copy_frame(piece *p, const fp_own_file *memory, uintptr_t at,
           unsigned char frame[FP_FRAME_SIZE])
{
    if (!fp_range_holds(p->start, p->size, at, FP_FRAME_SIZE)) {
        p->start = at & ~(uintptr_t)(PAGE - 1);
        p->size = at - p->start + FP_FRAME_SIZE;
        if (copy(memory, p->start, p->bytes, p->size) != 0) {
            p->size = 0;
            return -1;
        }
    }
    memcpy(frame, p->bytes + (at - p->start), FP_FRAME_SIZE);
    return 0;
}

static uintptr_t
word(const unsigned char *frame, int offset)
{
    uintptr_t value;
    memcpy(&value, frame + offset, sizeof(value));
    return value;
}

/* The open calls of the thread, innermost first; returns their number. */
static uint32_t
copy_calls(const sampler *s, fp_spot *open)
{
    const fp_own_file *m = &s->memory;
    uintptr_t ts = s->thread_state, at;
    uint64_t id;
    if (copy(m, ts + offsetof(PyThreadState, id), &id, sizeof(id)) != 0 ||
        id != s->thread_id ||
        copy(m, ts + FP_TS_FRAME, &at, sizeof(at)) != 0) {
        return 0;
    }
    if (FP_TS_FRAME_IN >= 0 &&
        copy(m, at + (uintptr_t)FP_TS_FRAME_IN, &at, sizeof(at)) != 0) {
        return 0;
    }
    piece p;
    p.start = p.size = 0;
    uint32_t n = 0;
    unsigned char frame[FP_FRAME_SIZE];
    while (n < MAX_CALLS && at != 0 && copy_frame(&p, m, at, frame) == 0) {
        open[n++] = (fp_spot){
            fp_compat_raw_code(word(frame, FP_FRAME_CODE)),
            fp_compat_raw_at(word(frame, FP_FRAME_AT)),
            0,
        };
        at = word(frame, FP_FRAME_BACK);
    }
    return n;
}

/* ---- the thread ---- */

/* Are the samples those of steps? */
static int
is_in_step(const sampler *s)
{
    fp_run_phase now =
        __atomic_load_n(&s->recorder->recording.phases.now, __ATOMIC_RELAXED);
    return now == FP_RUN_STEPS || now == FP_RUN_UNPROFILED;
}

static void *
sample(void *arg)
{
    sampler *s = &the_sampler;
    uintptr_t number = (uintptr_t)arg;
    fp_spot open[MAX_CALLS];
    int64_t interval = s->interval_ns;
    uint64_t random = s->thread_id + 1, wakes = 0;
    while (fp_own_thread_goes_on(&s->thread, number) &&
           s->spots.samples < s->most &&
           fp_worker_now(CLOCK_MONOTONIC) < s->until_ns) {
        int counts = is_in_step(s);
        /* Between half and one and a half of it: a program may have a rhythm
         * of its own. */
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        int64_t ns = interval / 2 + (int64_t)((random >> 33) % interval);
        fp_worker_sleep(&s->thread.woken, counts ? ns : IDLE_TIMES * ns);
        wakes++;
        if (counts && is_in_step(s) &&
            fp_own_thread_goes_on(&s->thread, number)) {
            fp_spots_add(&s->spots, open, copy_calls(s, open));
        }
        /* The thread's own CPU time limits how often it wakes. */
        int64_t least =
            fp_worker_now(CLOCK_THREAD_CPUTIME_ID) / (int64_t)wakes;
        interval = least * COST_PART;
        interval = interval > s->interval_ns ? interval : s->interval_ns;
    }
    /* Here, because a forked child that drops its rights must not have it. */
    fp_own_file_close(&s->memory);
    atomic_store(&s->over, 1);
    return NULL;
}

static void
drop(sampler *s)
{
    fp_own_thread_end(&s->thread);
    s->recorder = NULL;
    fp_own_file_close(&s->memory);
    fp_spots_fini(&s->spots);
}

/* ---- windows ---- */

/* Is what copy_calls() returns for this thread what CPython says? */
static int
frames_are_as_expected(const sampler *s)
{
    enum { COMPARED = 12 };
    fp_spot open[MAX_CALLS];
    uint32_t n = copy_calls(s, open), i = 0, same = 0, all = 0;
    fp_frame_walk walk;
    PyObject *code = fp_compat_walk_begin(&walk);
    for (; code != NULL && all < COMPARED; all++) {
        /* there are frames that CPython does not show */
        while (i < n && open[i].code != (uintptr_t)code) {
            i++;
        }
        if (i < n && fp_compat_raw_offset((PyCodeObject *)code,
                                          (uintptr_t)open[i].at) ==
                         fp_compat_frame_lasti(walk.frame)) {
            same++;
        }
        i++;
        code = fp_compat_walk_next(&walk);
    }
    fp_compat_walk_end(&walk);
    return all > 0 && same == all;
}

static int
begin(sampler *s, fp_recorder *r, int64_t interval_ns, int64_t limit_ns,
      uint64_t most)
{
    PyThreadState *ts = PyThreadState_Get();
    s->thread_state = (uintptr_t)ts;
    s->thread_id = ts->id;
    s->interval_ns = interval_ns;
    s->until_ns = fp_worker_now(CLOCK_MONOTONIC) + limit_ns;
    s->most = most;
    atomic_store(&s->over, 1);
    fp_own_file_open(&s->memory, "/proc/self/mem");
    if (!frames_are_as_expected(s)) {
        drop(s);
        return 0;
    }
    fp_alloc a = fp_alloc_libc();
    if (fp_spots_init(&s->spots, &a, MAX_SPOTS) != FP_OK) {
        drop(s);
        return 0;
    }
    s->recorder = r;
    atomic_store(&s->over, 0);
    if (!fp_own_thread_begin(&s->thread)) {
        atomic_store(&s->over, 1);
        drop(s);
        return 0;
    }
    return 1;
}

PyObject *
fp_recorder_begin_lines_method(PyObject *self, PyObject *args)
{
    FP_GUARD();
    long long interval_ns, limit_ns;
    unsigned int most;
    if (!PyArg_ParseTuple(args, "LLI:begin_lines", &interval_ns, &limit_ns,
                          &most)) {
        return NULL;
    }
    if (interval_ns < 100000 || limit_ns < 0 || most > MAX_SAMPLES) {
        PyErr_Format(PyExc_ValueError,
                     "begin_lines(%lld, %lld, %u): the interval is at least "
                     "100000 ns, the limit not negative, and there are at "
                     "most %d samples",
                     interval_ns, limit_ns, most, MAX_SAMPLES);
        return NULL;
    }
    sampler *s = &the_sampler;
    fp_recorder *r = fp_recorder_cast(self);
    if (FP_FREE_THREADED || s->recorder != NULL) {
        Py_RETURN_FALSE;
    }
    return PyBool_FromLong(begin(s, r, interval_ns, limit_ns, most));
}

/* (file, first line, name, line, samples); new reference, or NULL: with an
 * exception, or the function is unknown. */
static PyObject *
row(fp_recorder *r, const fp_spot *spot)
{
    fp_key key = (fp_key)spot->code | FP_TAG_PYTHON;
    const fp_keyent *e = fp_keytab_find(&r->keys, key);
    if (e == NULL) {
        return NULL;
    }
    /* Kept, because making the row may run the collector, and with it code that
     * clears the recorder. */
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(e->object);
    int offset = fp_compat_raw_offset(code, (uintptr_t)spot->at);
    int line = offset >= 0 ? PyCode_Addr2Line(code, offset) : -1;
    PyObject *made = NULL;
    if (line > 0) {
        made = Py_BuildValue("(OiOiK)", code->co_filename,
                             code->co_firstlineno, code->co_name, line,
                             (unsigned long long)spot->count);
    }
    Py_DECREF(code);
    return made;
}

PyObject *
fp_recorder_take_lines_method(PyObject *self, PyObject *wait)
{
    FP_GUARD();
    sampler *s = &the_sampler;
    fp_recorder *r = fp_recorder_cast(self);
    int waits = PyObject_IsTrue(wait);
    if (waits < 0) {
        return NULL;
    }
    if (s->recorder != r) {
        return PyList_New(0);
    }
    if (!waits && !atomic_load(&s->over)) {
        Py_RETURN_NONE;
    }
    fp_own_thread_end(&s->thread);
    /* Making rows may run a collection, and that another window. */
    fp_spots spots = s->spots;
    s->spots = (fp_spots){0};
    s->recorder = NULL;
    PyObject *rows = PyList_New(0);
    for (uint32_t i = 0; rows != NULL && i < spots.capacity; i++) {
        PyObject *one =
            spots.spot[i].code != 0 ? row(r, &spots.spot[i]) : NULL;
        if (PyErr_Occurred() ||
            (one != NULL && PyList_Append(rows, one) < 0)) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(one);
    }
    fp_spots_fini(&spots);
    return rows;
}

/* ---- the layer ---- */

/* The functions that samples found are about to be freed. */
static void
forget(fp_recorder *r)
{
    if (the_sampler.recorder == r) {
        drop(&the_sampler);
    }
}

void
fp_line_sampler_end(void)
{
    if (the_sampler.recorder != NULL) {
        drop(&the_sampler);
    }
}

const fp_layer fp_line_layer = {
    .cleared = forget,
    .end = forget,
};
