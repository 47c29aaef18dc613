#include "py/nvtx_in.h"

#include "py/guard.h"
#include "py/nvtx_thread.h"
#include "py/section_type.h"
#include "py/threads.h"

#include "core/path_rebuild.h"
#include "core/thread_sections.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Limits the new names: programs often put a step's number into a range. */
enum { MAX_NEW_NAMES = 500 };
enum { MAX_PROCESS_RANGES = 256 };

/* Global: NVTX has one tool per process and passes it no user pointer. */
static atomic_int may_attach;
static atomic_int is_on;
static atomic_uint_fast64_t without_gil;
static atomic_uint_fast64_t unmatched;

/* The GIL guards these: */
static fp_state *state;
/* validates the section cached in an fp_nvtx_name */
static uint64_t generation;
static Py_ssize_t new_names;

/* ---- sections; everything here runs under the GIL ---- */

static PyObject *
make_name(const fp_nvtx_name *domain, const char *text)
{
    Py_ssize_t length = (Py_ssize_t)fp_nvtx_length(text);
    PyObject *name = PyUnicode_DecodeUTF8(text, length, "replace");
    if (name != NULL && domain != NULL) {
        Py_SETREF(name, PyUnicode_FromFormat("%s/%U", domain->text, name));
    }
    return name;
}

/* Borrowed: the module keeps all sections. */
static fp_section_object *
look_up(const fp_nvtx_name *domain, const char *text)
{
    Py_ssize_t before = PyList_GET_SIZE(state->section_names);
    PyObject *name = make_name(domain, text);
    int known = name != NULL ? PyDict_Contains(state->sections, name) : -1;
    if (known == 0 && new_names >= MAX_NEW_NAMES) {
        Py_SETREF(name, PyUnicode_FromString("(other NVTX ranges)"));
    }
    PyObject *section =
        known >= 0 && name != NULL ? fp_section_named(state, name) : NULL;
    Py_XDECREF(name);
    new_names += PyList_GET_SIZE(state->section_names) - before;
    if (section == NULL) {
        PyErr_Clear(); /* no memory: no section */
        return NULL;
    }
    Py_DECREF(section);
    return (fp_section_object *)section;
}

static fp_section_object *
section_of(const fp_nvtx_name *domain, const fp_nvtx_message *m)
{
    fp_nvtx_name *kept = m->registered;
    if (kept != NULL && kept->generation == generation) {
        return kept->section;
    }
    const char *text = kept != NULL ? kept->text : m->text;
    if (text == NULL || text[0] == '\0') {
        text = "(unnamed NVTX range)";
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    /* A garbage collection could run Python code inside a foreign library. */
    int collects = PyGC_Disable();
    fp_section_object *s = look_up(domain, text);
    if (collects) {
        PyGC_Enable();
    }
    PyErr_Restore(type, exc, tb);
    if (kept != NULL && s != NULL) {
        kept->section = s;
        kept->generation = generation;
    }
    return s;
}

static fp_nvtx_range
open_section(const fp_nvtx_name *domain, const fp_nvtx_message *m)
{
    fp_nvtx_range range = {0};
    fp_section_object *s = section_of(domain, m);
    /* NULL: another thread has stopped the recording meanwhile. */
    fp_recorder *r = state->section_owner;
    fp_thread *t = s != NULL && r != NULL ? fp_section_begin(r, s) : NULL;
    if (t != NULL) {
        range.epoch = r->section_epoch;
        range.serial = t->serial;
        range.owner = fp_compat_context();
        range.id = s->id;
    }
    return range;
}

typedef struct closing {
    fp_thread *t;
    const fp_nvtx_range *range;
    unsigned flags;
    int64_t now;
} closing;

static void
close_in(void *arg)
{
    const closing *c = arg;
    int64_t now = fp_thread_from(c->t, c->now);
    int parked = fp_thread_is_parked(c->t);
    fp_thread_unpark(c->t, now);
    (void)fp_thread_close_section(c->t, c->range->id, c->range->owner,
                                  c->flags, now);
    if (parked) {
        fp_thread_park(c->t, now);
    }
}

/* May run on another thread than the one that opened it. */
static void
close_section(fp_nvtx_range range, unsigned flags)
{
    fp_recorder *r = state != NULL ? state->section_owner : NULL;
    if (r == NULL || r->section_epoch != range.epoch) {
        return; /* the stop of the recording has closed it */
    }
    fp_thread *own = fp_recorder_section_thread(r);
    fp_thread *t = fp_recorder_thread_numbered(r, range.serial);
    if (t == NULL) {
        return; /* its thread has ended */
    }
    flags |= t != own ? FP_EXIT_ELSEWHERE : 0;
    int64_t now = fp_clock_now(&r->clock);
    closing it = {t, &range, flags, now};
    if (t == own) {
        close_in(&it);
    }
    else {
        fp_world_stopped(close_in, &it);
    }
    fp_recorder_trace(r, t, now);
    if (t == own) {
        FP_LAYERS(r, sections_changed, r, t, now);
    }
}

/* ---- ranges of the process ----
 *
 * Such a range has a number, may begin and end on any thread, and need not
 * nest.  The lowest bit of the number says whether the range has a section. */

typedef struct process_range {
    uint64_t number; /* 0: free */
    fp_nvtx_range range;
} process_range;

static process_range process_ranges[MAX_PROCESS_RANGES]; /* under the GIL */
static atomic_uint_fast64_t last_number;

static int
is_free(const process_range *p)
{
    /* Ranges of an earlier recording may never end. */
    const fp_recorder *r = state != NULL ? state->section_owner : NULL;
    return p->number == 0 || r == NULL || p->range.epoch != r->section_epoch;
}

/* NULL: all slots are taken. */
static process_range *
free_slot(uint64_t number)
{
    for (uint64_t i = 0; i < MAX_PROCESS_RANGES; i++) {
        uint64_t at = (number / 2 + i) % MAX_PROCESS_RANGES;
        if (is_free(&process_ranges[at])) {
            return &process_ranges[at];
        }
    }
    return NULL;
}

static void
close_process_range(uint64_t number, unsigned flags)
{
    for (uint64_t i = 0; i < MAX_PROCESS_RANGES; i++) {
        uint64_t at = (number / 2 + i) % MAX_PROCESS_RANGES;
        if (process_ranges[at].number == number) {
            process_ranges[at].number = 0;
            close_section(process_ranges[at].range, flags);
            return;
        }
    }
}

/* ---- ends without the GIL ----
 *
 * They are put on a list.  The next range that begins or ends with the GIL
 * closes their sections without a duration: the end time is then unknown. */

typedef struct ending {
    struct ending *next;
    uint64_t number; /* of a process range; 0: [range] */
    fp_nvtx_range range;
} ending;

static _Atomic(ending *) endings;

static void
end_later(uint64_t number, fp_nvtx_range range)
{
    atomic_fetch_add_explicit(&without_gil, 1, memory_order_relaxed);
    ending *e = malloc(sizeof(*e));
    if (e == NULL) {
        return; /* its section stays open until the recording stops */
    }
    e->number = number;
    e->range = range;
    e->next = atomic_load_explicit(&endings, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(
        &endings, &e->next, e, memory_order_release, memory_order_relaxed)) {
    }
}

static void
end_those_now(void)
{
    if (atomic_load_explicit(&endings, memory_order_relaxed) == NULL) {
        return;
    }
    ending *e = atomic_exchange_explicit(&endings, NULL, memory_order_acquire);
    while (e != NULL) {
        ending *next = e->next;
        if (e->number != 0) {
            close_process_range(e->number, FP_EXIT_CANCEL);
        }
        else {
            close_section(e->range, FP_EXIT_CANCEL);
        }
        free(e);
        e = next;
    }
}

/* ---- begin and end, on any thread ---- */

static fp_nvtx_range
begin_range(const fp_nvtx_name *domain, const fp_nvtx_message *m)
{
    if (!atomic_load_explicit(&is_on, memory_order_relaxed)) {
        return (fp_nvtx_range){0};
    }
    if (!fp_compat_holds_gil()) {
        atomic_fetch_add_explicit(&without_gil, 1, memory_order_relaxed);
        return (fp_nvtx_range){0};
    }
    FP_GUARD();
    end_those_now();
    if (state == NULL || state->section_owner == NULL) {
        return (fp_nvtx_range){0};
    }
    return open_section(domain, m);
}

static void
end_range(fp_nvtx_range range)
{
    if (range.epoch == 0) {
        return;
    }
    if (!fp_compat_holds_gil()) {
        end_later(0, range);
        return;
    }
    FP_GUARD();
    end_those_now();
    close_section(range, 0);
}

int
fp_nvtx_in_push(const fp_nvtx_name *domain, fp_nvtx_message m)
{
    fp_nvtx_levels *l = fp_nvtx_thread_levels(domain, 1);
    if (l == NULL) {
        return FP_NVTX_NO_LEVELS;
    }
    if (!fp_nvtx_levels_room(l)) {
        l->beyond++;
        return (int)(l->length + l->beyond - 1);
    }
    l->range[l->length] = begin_range(domain, &m);
    return (int)l->length++;
}

int
fp_nvtx_in_pop(const fp_nvtx_name *domain)
{
    fp_nvtx_levels *l = fp_nvtx_thread_levels(domain, 0);
    if (l == NULL || l->length + l->beyond == 0) {
        if (atomic_load_explicit(&is_on, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&unmatched, 1, memory_order_relaxed);
        }
        return -1;
    }
    if (l->beyond > 0) {
        l->beyond--;
        return (int)(l->length + l->beyond);
    }
    end_range(l->range[--l->length]);
    return (int)l->length;
}

uint64_t
fp_nvtx_in_start(const fp_nvtx_name *domain, fp_nvtx_message m)
{
    uint64_t number = (atomic_fetch_add(&last_number, 1) + 1) * 2;
    fp_nvtx_range range = begin_range(domain, &m);
    if (range.epoch == 0) {
        return number;
    }
    FP_GUARD();
    process_range *slot = free_slot(number);
    if (slot == NULL) {
        close_section(range, FP_EXIT_CANCEL);
        return number;
    }
    slot->number = number | 1;
    slot->range = range;
    return number | 1;
}

void
fp_nvtx_in_end(uint64_t number)
{
    if ((number & 1) == 0) {
        return;
    }
    if (!fp_compat_holds_gil()) {
        end_later(number, (fp_nvtx_range){0});
        return;
    }
    FP_GUARD();
    end_those_now();
    close_process_range(number, 0);
}

/* ---- switches, under the GIL ---- */

void
fp_nvtx_in_allow(fp_state *st)
{
    state = st;
    atomic_store(&may_attach, 1);
}

int
fp_nvtx_in_may_attach(void)
{
    return atomic_load(&may_attach);
}

void
fp_nvtx_in_forbid(const fp_state *st)
{
    if (state == st) { /* not if the module was imported again */
        atomic_store(&may_attach, 0);
        atomic_store(&is_on, 0);
        state = NULL;
    }
}

void
fp_nvtx_in_switch(int on)
{
    if (on) {
        generation = fp_new_epoch();
        atomic_store(&without_gil, 0);
        atomic_store(&unmatched, 0);
    }
    atomic_store(&is_on, on);
}

void
fp_nvtx_in_collect(fp_recorder *r)
{
    if (r == r->state->section_owner) {
        r->recording.nvtx_without_gil += atomic_exchange(&without_gil, 0);
        r->recording.nvtx_unmatched += atomic_exchange(&unmatched, 0);
    }
}
