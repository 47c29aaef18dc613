/* model: the expected behaviour of an fp_thread in its simplest form.  The
 * path is an array of keys, a context is looked up from the root each time,
 * and every question is answered by a full search.  It shares no code with the
 * core. */
#ifndef FP_MODEL_H
#define FP_MODEL_H

#include "core/thread.h"
#include "core/thread_sections.h"
#include "fp_test.h"

enum { MODEL_PATH = 256, MODEL_SECTIONS = 6, MODEL_NONE = -1 };

typedef struct model_element {
    fp_key key;
    uint64_t entry; /* number of the section entry; 0: a function */
} model_element;

typedef struct model_entry {
    uint64_t number;
    uint32_t id;
    const void *owner; /* compared only */
    int64_t start;
} model_entry;

typedef struct model_context {
    fp_key key;
    int parent, first_child, sibling; /* MODEL_NONE: none */
    uint64_t calls;
    int64_t self;
} model_context;

typedef struct model_section {
    uint64_t count, errors;
    int64_t sum, min, max, outer, since;
    uint32_t lost;
    int at_bottom; /* in this step */
    int64_t in_step, in_steps;
    uint64_t steps;
} model_section;

typedef struct model {
    model_element path[MODEL_PATH]; /* outermost first */
    uint32_t path_len;
    model_entry entry[MODEL_PATH]; /* open ones, oldest first */
    uint32_t entry_len;
    uint64_t entries;
    model_context *context; /* owned; [0] is the root */
    int contexts, capacity;
    model_section section[MODEL_SECTIONS];
    int64_t last;
    int64_t elapsed;
    uint64_t unbalanced, unmatched, out_of_order;
    uint64_t step_count, step_skip;
} model;

static inline int
model_new_context(model *m, int parent, fp_key key)
{
    if (m->contexts == m->capacity) {
        m->capacity = m->capacity * 2 + 64;
        m->context =
            realloc(m->context, (size_t)m->capacity * sizeof(*m->context));
        CHECK(m->context != NULL);
    }
    int c = m->contexts++;
    m->context[c] = (model_context){key, parent, MODEL_NONE, MODEL_NONE, 0, 0};
    if (parent != MODEL_NONE) {
        m->context[c].sibling = m->context[parent].first_child;
        m->context[parent].first_child = c;
    }
    return c;
}

static inline void
model_init(model *m, uint64_t step_skip)
{
    memset(m, 0, sizeof(*m));
    m->step_skip = step_skip;
    model_new_context(m, MODEL_NONE, 0);
}

static inline void
model_fini(model *m)
{
    free(m->context);
}

/* Number of the context that the path leads to. */
static inline int
model_here(model *m)
{
    int c = 0;
    for (uint32_t i = 0; i < m->path_len; i++) {
        int child = m->context[c].first_child;
        while (child != MODEL_NONE &&
               m->context[child].key != m->path[i].key) {
            child = m->context[child].sibling;
        }
        c = child != MODEL_NONE ? child
                                : model_new_context(m, c, m->path[i].key);
    }
    return c;
}

static inline void
model_pass(model *m, int64_t now)
{
    int64_t ticks = now - m->last;
    int here = model_here(m); /* may move the contexts */
    m->context[here].self += ticks;
    if (m->entry_len > 0) {
        model_section *bottom = &m->section[m->entry[0].id];
        bottom->at_bottom = 1;
        bottom->in_step += ticks;
    }
    m->elapsed += ticks;
    m->last = now;
}

static inline void
model_remove_path(model *m, uint32_t i)
{
    for (; i + 1 < m->path_len; i++) {
        m->path[i] = m->path[i + 1];
    }
    m->path_len--;
}

static inline void
model_enter(model *m, fp_key key, int64_t now)
{
    model_pass(m, now);
    CHECK(m->path_len < MODEL_PATH);
    m->path[m->path_len++] = (model_element){key, 0};
    int here = model_here(m);
    m->context[here].calls++;
}

static inline uint32_t
model_functions(const model *m)
{
    uint32_t functions = 0;
    for (uint32_t i = 0; i < m->path_len; i++) {
        functions += m->path[i].entry == 0;
    }
    return functions;
}

static inline void
model_leave(model *m, fp_key key, int64_t now)
{
    model_pass(m, now);
    uint32_t at = m->path_len;
    while (at > 0 && m->path[at - 1].key != key) {
        at--;
    }
    if (at == 0) {
        m->unmatched += model_functions(m) > 0;
        return;
    }
    for (uint32_t i = m->path_len; i-- > at;) {
        if (m->path[i].entry == 0) {
            model_remove_path(m, i);
            m->unbalanced++;
        }
    }
    model_remove_path(m, at - 1);
}

static inline void
model_drop_functions(model *m, int64_t now)
{
    model_pass(m, now);
    for (uint32_t i = m->path_len; i-- > 0;) {
        if (m->path[i].entry == 0) {
            model_remove_path(m, i);
        }
    }
}

static inline uint32_t
model_open_entries(const model *m, uint32_t id)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < m->entry_len; i++) {
        open += m->entry[i].id == id;
    }
    return open;
}

static inline void
model_open(model *m, uint32_t id, const void *owner, int64_t now)
{
    model_pass(m, now);
    CHECK(m->path_len < MODEL_PATH);
    if (model_open_entries(m, id) == 0) {
        m->section[id].since = now;
    }
    uint64_t number = ++m->entries;
    m->entry[m->entry_len++] = (model_entry){number, id, owner, now};
    m->path[m->path_len++] = (model_element){fp_key_section(id), number};
    int here = model_here(m);
    m->context[here].calls++;
}

static inline void
model_remove_entry(model *m, uint32_t i)
{
    for (uint32_t k = m->path_len; k-- > 0;) {
        if (m->path[k].entry == m->entry[i].number) {
            model_remove_path(m, k);
        }
    }
    for (; i + 1 < m->entry_len; i++) {
        m->entry[i] = m->entry[i + 1];
    }
    m->entry_len--;
}

static inline fp_status
model_close(model *m, uint32_t id, const void *owner, unsigned flags,
            int64_t now)
{
    uint32_t i = m->entry_len;
    for (uint32_t k = 0; k < m->entry_len; k++) {
        if (m->entry[k].id == id && m->entry[k].owner == owner) {
            i = k;
        }
    }
    for (uint32_t k = 0; i == m->entry_len && k < m->entry_len; k++) {
        /* No entry of this owner: the last one of any owner. */
        uint32_t last = m->entry_len - 1 - k;
        i = m->entry[last].id == id ? last : i;
    }
    if (i == m->entry_len) {
        return FP_ENOTFOUND;
    }
    model_pass(m, now);
    m->out_of_order +=
        i + 1 < m->entry_len && m->entry[m->entry_len - 1].owner == owner;
    int64_t ticks = now - m->entry[i].start;
    model_remove_entry(m, i);
    model_section *s = &m->section[id];
    if (model_open_entries(m, id) == 0) {
        s->outer += now - s->since;
    }
    if (flags & FP_EXIT_CANCEL) {
        return FP_OK;
    }
    s->min = s->count == 0 || ticks < s->min ? ticks : s->min;
    s->max = s->count == 0 || ticks > s->max ? ticks : s->max;
    s->count++;
    s->sum += ticks;
    s->errors += (flags & FP_EXIT_ERROR) != 0;
    return FP_OK;
}

static inline void
model_drop_sections(model *m, int64_t now)
{
    model_pass(m, now);
    while (m->entry_len > 0) {
        m->section[m->entry[0].id].lost++;
        model_remove_entry(m, 0);
    }
}

static inline void
model_end_step(model *m, int64_t now)
{
    model_pass(m, now);
    int measured = ++m->step_count > m->step_skip;
    for (uint32_t id = 0; id < MODEL_SECTIONS; id++) {
        model_section *s = &m->section[id];
        if (measured && s->at_bottom) {
            s->in_steps += s->in_step;
            s->steps++;
        }
        s->in_step = 0;
        s->at_bottom = 0;
    }
}

#endif
