/* export_spent: what each kept context of the training thread has spent since
 * the last look, for a fastprof thread next to it.  The training thread waits
 * for the GIL meanwhile, so a call reads at most PIECE nodes and describes
 * none; the caller lets others run between two calls. */
#include "py/export_parts.h"
#include "py/guard.h"
#include "py/recorder_methods.h"

#include "core/run_phases.h"

enum {
    PIECE = 4096,
    /* New nodes of a piece that are named; others are at a later look. */
    MOST_NEW = 64
};

/* Buffers of the caller; what they contain is not trusted. */
typedef struct spending {
    const fp_export *x;
    const fp_tree *tree;
    uint32_t first;
    uint32_t end;
    int64_t *known; /* per node: ticks and calls at the last look */
    int32_t *place; /* per node: its context; -1 - that of the next above */
    int64_t *sums;  /* per context: ns and calls */
    int32_t contexts;
    int64_t least_ns;
    int64_t fresh[3 * MOST_NEW]; /* node, ns and calls */
    uint32_t new_nodes;
} spending;

/* The contexts of phases' bases are the first ones. */
static int32_t
place_of(const spending *s, const fp_node *n)
{
    int32_t own = s->place[n->index], at = own;
    if (fp_key_is_base(n->key)) {
        at = (int32_t)fp_run_phase_of(n->key);
    }
    else if (own < 0 && n->parent != NULL) {
        int32_t above = s->place[n->parent->index];
        at = above < 0 ? above : -1 - above;
    }
    int32_t to = at < 0 ? -1 - at : at;
    return to < s->contexts ? at : 0;
}

static void
add_spent(void *arg)
{
    spending *s = arg;
    for (uint32_t i = s->first; i < s->end; i++) {
        const fp_node *n = fp_tree_node(s->tree, i);
        int32_t at = place_of(s, n);
        s->place[i] = at;
        int64_t calls = (int64_t)(n->calls + n->resumes);
        int64_t ticks = n->self_ticks - s->known[2 * i];
        int64_t more = calls - s->known[2 * i + 1];
        if (ticks == 0 && more == 0) {
            continue;
        }
        s->known[2 * i] = n->self_ticks;
        s->known[2 * i + 1] = calls;
        int64_t ns = ticks > 0 ? fp_export_ns(s->x, ticks) : 0;
        s->sums[2 * (at < 0 ? -1 - at : at)] += ns;
        if (at >= 0) {
            s->sums[2 * at + 1] += more > 0 ? more : 0;
        }
        else if ((ns >= s->least_ns || fp_key_tag(n->key) == FP_TAG_SECTION) &&
                 s->new_nodes < MOST_NEW) {
            int64_t *row = &s->fresh[3 * s->new_nodes++];
            row[0] = i;
            row[1] = ns;
            row[2] = more > 0 ? more : 0;
        }
    }
}

static PyObject *
spent(fp_recorder *r, long long first, long long least_ns,
      const Py_buffer *known, const Py_buffer *place, const Py_buffer *sums)
{
    const fp_thread *t = r->stepper;
    if (t == NULL) {
        Py_RETURN_NONE;
    }
    const fp_export x = {.r = r,
                         .ns_per_tick = fp_clock_ns_per_tick(&r->clock)};
    long long room = place->len / (Py_ssize_t)sizeof(int32_t);
    long long contexts = sums->len / (Py_ssize_t)(2 * sizeof(int64_t));
    if (room > known->len / (Py_ssize_t)(2 * sizeof(int64_t)) ||
        contexts < FP_RUN_PHASES || contexts > INT32_MAX || first < 0) {
        PyErr_SetString(PyExc_ValueError, "add_spent: wrong sizes");
        return NULL;
    }
    spending s = {.x = &x,
                  .tree = &t->tree,
                  .known = known->buf,
                  .place = place->buf,
                  .sums = sums->buf,
                  .contexts = (int32_t)contexts,
                  .least_ns = least_ns};
    long long end = first + PIECE;
    end = end < room ? end : room;
    end = end < t->tree.count ? end : t->tree.count;
    if (first < end) {
        s.first = (uint32_t)first;
        s.end = (uint32_t)end;
        fp_world_stopped(add_spent, &s);
    }
    return Py_BuildValue("(KILy#)", (unsigned long long)t->serial,
                         t->tree.count, first < end ? end : first,
                         (const char *)s.fresh,
                         (Py_ssize_t)(3 * s.new_nodes * sizeof(int64_t)));
}

PyObject *
fp_recorder_add_spent_method(PyObject *self, PyObject *args)
{
    FP_GUARD();
    long long first, least_ns;
    Py_buffer known, place, sums;
    if (!PyArg_ParseTuple(args, "LLw*w*w*:add_spent", &first, &least_ns,
                          &known, &place, &sums)) {
        return NULL;
    }
    PyObject *made =
        spent(fp_recorder_cast(self), first, least_ns, &known, &place, &sums);
    PyBuffer_Release(&known);
    PyBuffer_Release(&place);
    PyBuffer_Release(&sums);
    return made;
}
