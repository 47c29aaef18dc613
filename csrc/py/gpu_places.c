/* Reports the threads' calling contexts to the collector: at sections and
 * steps, and at C calls if correlation ids are used. */
#include "py/gpu_layer_parts.h"
#include "py/interpreter_image.h"
#include "py/mode.h"

#include "gpu/cupti_abi.h"

/* ---- correlation ids: CUPTI gets the id of the current context ---- */

static void
pop(fp_gpu *g, fp_lane *lane)
{
    uint64_t last;
    /* If CUPTI has lost the ids, none are left to pop. */
    int result = g->cupti.pop_external(FP_CUPTI_EXTERNAL_CUSTOM2, &last);
    lane->pushed = result == FP_CUPTI_SUCCESS ? lane->pushed - 1 : 0;
}

static void
push(fp_gpu *g, fp_recorder *r, fp_lane *lane, const fp_thread *t)
{
    uint64_t id = fp_external_id(atomic_load(&g->attachments),
                                 fp_place_of(t, t->cur), !lane->has_sections);
    if (g->cupti.push_external(FP_CUPTI_EXTERNAL_CUSTOM2, id) !=
        FP_CUPTI_SUCCESS) {
        /* Stop here: each failing call would cost as much as a launch. */
        r->gpu.external = 0;
        fp_recorder_set_mode(r);
        atomic_fetch_add(&g->push_errors, 1);
        return;
    }
    lane->pushed++;
    uint64_t before =
        atomic_load_explicit(&lane->pushes, memory_order_relaxed);
    atomic_store_explicit(&lane->pushes, before + 1, memory_order_relaxed);
}

/* Sections may close in any order, so the stack is rebuilt. */
static void
push_anew(fp_gpu *g, fp_recorder *r, fp_lane *lane, const fp_thread *t)
{
    while (lane->pushed != 0) {
        pop(g, lane);
    }
    if (r->gpu.external) {
        push(g, r, lane, t);
    }
}

void
fp_gpu_layer_pop_own(fp_gpu *g)
{
    fp_lane *lane = fp_gpu_layer_pushes(g) ? fp_gpu_own_lane(g) : NULL;
    while (lane != NULL && lane->pushed != 0) {
        pop(g, lane);
    }
}

static const fp_node *
innermost_section(const fp_thread *t)
{
    const fp_node *n = t->open_len != 0 ? t->cur : NULL;
    while (n != NULL && fp_key_tag(n->key) != FP_TAG_SECTION) {
        n = n->parent;
    }
    return n;
}

static int
in_backward_phase(const fp_thread *t)
{
    for (uint32_t i = 0; i < t->open_len; i++) {
        if (t->open[i].phase == FP_PHASE_BACKWARD) {
            return 1;
        }
    }
    return 0;
}

/* Writes the thread's section and backward node to the log of owners. */
static void
tell_owner(fp_gpu *g, fp_lane *lane, const fp_thread *t, int64_t now)
{
    const fp_node *section = innermost_section(t);
    const fp_node *backward = fp_owners_backward_node(&g->owners, t->cur);
    fp_gpu_layer_tell(
        g, lane,
        &(fp_event){
            .kind = FP_EVENT_OWNER,
            .ticks = now,
            .place = section != NULL ? fp_place_of(t, section) : 0,
            .via = backward != NULL ? fp_place_of(t, backward) : 0,
            .corr = (uint32_t)lane->owner,
            .section = (uint16_t)in_backward_phase(t),
        });
}

static fp_lane *
lane_of(fp_gpu *g, const fp_thread *t)
{
    fp_lane *lane = fp_gpu_own_lane(g);
    if (lane != NULL) {
        fp_gpu_lane_for(g, lane, t);
    }
    return lane;
}

/* Is this a call that submits work to the device, or waits for it?  Only C code
 * does.  The interpreter's own functions (len, list.append) do so through
 * operators and functions that they call in C, which have no event at all;
 * float, int, bool and complex read a tensor's value.  A pair of ids costs
 * 230 ns on an H100, and a program calls such functions most. */
static int
may_use_device(fp_key key)
{
    int tag = fp_key_tag(key);
    if (tag == FP_TAG_PYTHON) {
        return 0;
    }
    if (!fp_interpreter_has(key)) {
        return 1;
    }
    if (tag != FP_TAG_TYPE && tag != FP_TAG_CALLABLE) {
        return 0;
    }
    /* The interpreter has the names of some classes of the program, too. */
    const PyObject *type = fp_key_object(key);
    return PyUnicode_CheckExact(type) ||
           (tag == FP_TAG_TYPE && (type == (PyObject *)&PyFloat_Type ||
                                   type == (PyObject *)&PyLong_Type ||
                                   type == (PyObject *)&PyBool_Type ||
                                   type == (PyObject *)&PyComplex_Type));
}

void
fp_gpu_layer_entered(fp_recorder *r, fp_thread *t, fp_key key)
{
    fp_gpu *g = fp_gpu_if_any();
    if (!may_use_device(key) || !fp_gpu_layer_pushes(g) ||
        t->cur->key != key) {
        return;
    }
    fp_lane *lane = lane_of(g, t);
    if (lane == NULL) {
        return;
    }
    push(g, r, lane, t);
    if (lane->owner >= 0 && fp_key_tag(key) == FP_TAG_C &&
        g->owners.is_backward(key)) {
        tell_owner(g, lane, t, fp_clock_now(&r->clock));
    }
}

void
fp_gpu_layer_left(fp_recorder *r, fp_thread *t, fp_key key, int paired)
{
    fp_gpu *g = fp_gpu_if_any();
    /* An unpaired call may have left other ones open. */
    if ((paired ? !may_use_device(key) : fp_key_tag(key) == FP_TAG_PYTHON) ||
        !fp_gpu_layer_pushes(g)) {
        return;
    }
    fp_lane *lane = lane_of(g, t);
    if (lane == NULL) {
        return;
    }
    if (paired && lane->pushed > 1) {
        pop(g, lane);
    }
    else {
        push_anew(g, r, lane, t);
    }
    if (lane->owner >= 0 && fp_key_tag(key) == FP_TAG_C &&
        g->owners.is_backward(key)) {
        tell_owner(g, lane, t, fp_clock_now(&r->clock));
    }
}

/* ---- sections and steps ---- */

static uint16_t
outermost_section(const fp_thread *t)
{
    return t->open_len == 0
               ? 0
               : (uint16_t)(fp_key_section_id(t->open[0].key) + 1);
}

void
fp_gpu_layer_section(fp_recorder *r, fp_thread *t, int64_t now)
{
    fp_gpu *g = fp_gpu_if_any();
    fp_lane *lane = r->gpu_on ? lane_of(g, t) : NULL;
    if (lane == NULL) {
        return;
    }
    lane->has_sections = 1;
    if (lane->owner >= 0) {
        const fp_node *n = innermost_section(t);
        fp_owners_section(&g->owners, lane->owner,
                          n != NULL ? fp_place_of(t, n) : 0,
                          in_backward_phase(t));
    }
    if (r->gpu.external && fp_gpu_layer_pushes(g)) {
        push_anew(g, r, lane, t);
        if (lane->owner >= 0) {
            tell_owner(g, lane, t, now);
        }
    }
    uint16_t outermost = outermost_section(t);
    if (t == r->stepper && outermost != lane->outermost) {
        lane->outermost = outermost;
        fp_gpu_layer_tell(g, lane,
                          &(fp_event){.kind = FP_EVENT_SECTION,
                                      .ticks = now,
                                      .section = outermost});
    }
}

void
fp_gpu_layer_step(fp_recorder *r, fp_thread *t, int64_t began, int64_t now,
                  int measured)
{
    (void)began;
    fp_gpu *g = fp_gpu_if_any();
    fp_lane *lane = r->gpu_on ? lane_of(g, t) : NULL;
    if (lane != NULL) {
        int seen =
            measured && !r->gpu.partial && atomic_load(&g->state) == FP_GPU_ON;
        r->gpu.partial = 0;
        fp_gpu_layer_tell(g, lane,
                          &(fp_event){.kind = FP_EVENT_STEP,
                                      .ticks = now,
                                      .id = t->steps->count - 1,
                                      .section = (uint16_t)seen});
    }
}
