/* Lets CUPTI tell which call launched an activity, and from where: by launch
 * callbacks, or by external correlation. */
#include "gpu/api_calls.h"
#include "gpu/cupti_abi.h"
#include "gpu/drainer.h"
#include "gpu/kineto_slot.h"

/* fp_drainer_check for a setting per CUDA call: a release need not know all
 * calls. */
static int
check_known(fp_gpu *g, int result)
{
    return result == FP_CUPTI_INVALID_PARAMETER ? result
                                                : fp_drainer_check(g, result);
}

void
fp_drainer_say(fp_gpu *g, const char *what, int result)
{
    char error[96];
    g->refused = result;
    if (result == FP_CUPTI_NOT_COMPATIBLE) {
        fp_why_set(&g->found,
                   "%s: another profiler of this process (such as "
                   "torch.profiler's monitor) uses CUPTI's second interface, "
                   "which excludes the first",
                   what);
        return;
    }
    fp_cupti_describe(&g->cupti, result, error, sizeof(error));
    fp_why_set(&g->found, "%s: CUPTI error %s", what, error);
}

/* Subscribes; if torch.profiler keeps the slot after a session, in its place.
 * None of its sessions records now: they pause this collector. */
static int
subscribe(fp_gpu *g)
{
    int rc = g->cupti.subscribe(&g->subscriber, g->entries.on_call, g);
    if (rc == FP_CUPTI_MULTIPLE_SUBSCRIBERS && g->options.takes_slot &&
        fp_kineto_slot_take(&g->cupti)) {
        rc = g->cupti.subscribe(&g->subscriber, g->entries.on_call, g);
    }
    return rc;
}

/* Enables the launch callbacks.  Leaves nothing enabled on failure. */
static int
enable_callbacks(fp_gpu *g)
{
    int rc = subscribe(g);
    if (rc != FP_CUPTI_SUCCESS) {
        g->subscriber = NULL;
        fp_drainer_say(
            g,
            rc == FP_CUPTI_MULTIPLE_SUBSCRIBERS
                ? "CUPTI's one subscriber slot is held by another client "
                  "(torch.profiler keeps it after its first profile)"
                : "CUPTI rejected the subscription",
            rc);
        return -1;
    }
    uint32_t known = 0;
    for (uint32_t i = 0; i < fp_api_call_count; i++) {
        const fp_api_call *call = &fp_api_calls[i];
        if (call->domain == FP_CUPTI_DOMAIN_RUNTIME) {
            g->nested[call->cbid].is_off = 0;
        }
        rc = check_known(g, g->cupti.enable_callback(
                                1, g->subscriber, call->domain, call->cbid));
        known += rc == FP_CUPTI_SUCCESS;
    }
    if (known == 0) {
        fp_drainer_say(g, "CUPTI rejected every launch callback", rc);
        fp_drainer_check(g, g->cupti.unsubscribe(g->subscriber));
        g->subscriber = NULL;
        return -1;
    }
    if (g->cupti.get_graph_node_id != NULL) {
        fp_drainer_check(g, g->cupti.enable_callback(
                                1, g->subscriber, FP_CUPTI_DOMAIN_RESOURCE,
                                FP_CUPTI_GRAPHNODE_CREATED));
        fp_drainer_check(g, g->cupti.enable_callback(
                                1, g->subscriber, FP_CUPTI_DOMAIN_RESOURCE,
                                FP_CUPTI_GRAPHNODE_CLONED));
    }
    return 0;
}

/* Leaves the calls that are not in api_calls.h out of the API records (on: 0),
 * or puts them back (on: 1).  Most calls of a program launch nothing, and each
 * record costs it some 100 ns. */
static void
select_api_records(fp_gpu *g, uint8_t on)
{
    const fp_cupti *c = &g->cupti;
    if (c->enable_runtime_api == NULL || c->enable_driver_api == NULL) {
        return; /* before 12.6 all calls have records */
    }
    for (uint32_t cbid = 1; cbid < FP_API_CALLS; cbid++) {
        if (fp_api_class_of(FP_CUPTI_DOMAIN_RUNTIME, cbid) == FP_API_NONE) {
            (void)check_known(g, c->enable_runtime_api(cbid, on));
        }
        if (fp_api_class_of(FP_CUPTI_DOMAIN_DRIVER, cbid) == FP_API_NONE) {
            (void)check_known(g, c->enable_driver_api(cbid, on));
        }
    }
}

/* Enables API records.  External ids come with them only.  Selected calls of a
 * kind that is off have none (CUPTI 13.0 on an H100), so both kinds are
 * enabled first: the runtime's for its calls, the driver's for launches without
 * the runtime. */
static int
enable_api_records(fp_gpu *g)
{
    const fp_cupti *c = &g->cupti;
    int rc = c->enable(FP_CUPTI_RUNTIME);
    if (rc != FP_CUPTI_SUCCESS) {
        return rc;
    }
    rc = c->enable(FP_CUPTI_DRIVER);
    if (rc != FP_CUPTI_SUCCESS) {
        (void)c->disable(FP_CUPTI_RUNTIME);
        return rc;
    }
    select_api_records(g, 0);
    return FP_CUPTI_SUCCESS;
}

/* The selection is put back first: if a release keeps it, the next client
 * would miss calls. */
static void
disable_api_records(fp_gpu *g)
{
    select_api_records(g, 1);
    fp_drainer_check(g, g->cupti.disable(FP_CUPTI_RUNTIME));
    fp_drainer_check(g, g->cupti.disable(FP_CUPTI_DRIVER));
}

static int
enable_external(fp_gpu *g)
{
    const fp_cupti *c = &g->cupti;
    if (c->push_external == NULL || c->pop_external == NULL) {
        if (g->found.text[0] == '\0') {
            fp_why_set(&g->found,
                       "this CUPTI does not support external correlation");
        }
        return -1;
    }
    int rc = c->enable(FP_CUPTI_EXTERNAL_CORRELATION);
    if (rc == FP_CUPTI_SUCCESS) {
        rc = enable_api_records(g);
        if (rc != FP_CUPTI_SUCCESS) {
            (void)c->disable(FP_CUPTI_EXTERNAL_CORRELATION);
        }
    }
    if (rc != FP_CUPTI_SUCCESS) {
        fp_drainer_say(g, "CUPTI rejected external correlation", rc);
        return -1;
    }
    return 0;
}

fp_gpu_tier
fp_drainer_enable_correlation(fp_gpu *g)
{
    fp_gpu_tier wanted = g->options.tier;
    if (wanted != FP_TIER_EXTERNAL && enable_callbacks(g) == 0) {
        return FP_TIER_CALLBACKS;
    }
    if (wanted != FP_TIER_CALLBACKS && enable_external(g) == 0) {
        return FP_TIER_EXTERNAL;
    }
    return FP_TIER_NONE;
}

void
fp_drainer_disable_correlation(fp_gpu *g, fp_gpu_tier tier)
{
    atomic_store(&g->tier, FP_TIER_NONE);
    if (tier == FP_TIER_CALLBACKS) {
        fp_drainer_check(g, g->cupti.unsubscribe(g->subscriber));
        g->subscriber = NULL;
    }
    else if (tier == FP_TIER_EXTERNAL) {
        fp_drainer_check(g, g->cupti.disable(FP_CUPTI_EXTERNAL_CORRELATION));
        disable_api_records(g);
    }
}
