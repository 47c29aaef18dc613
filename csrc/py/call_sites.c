#include "py/call_sites.h"

#include "core/path_rebuild.h"

/* Is a C function that the code [caller] called still running in some thread?
 * If so, switching off the call site would also switch off the end of that
 * call.  Sets *nodes to the number of nodes visited. */
static int
has_open_c_call(const fp_recorder *r, fp_key caller, uint32_t *nodes)
{
    *nodes = 0;
    for (const fp_thread *t = r->threads; t != NULL; t = t->next) {
        fp_path_walk w = fp_path_walk_begin(t);
        int from_c = 0;
        for (const fp_node *n; (n = fp_path_walk_next(t, &w)) != NULL;) {
            int tag = fp_key_tag(n->key);
            ++*nodes;
            if (tag == FP_TAG_PYTHON) {
                if (from_c && n->key == caller) {
                    return 1;
                }
                from_c = 0;
            }
            else if (tag != FP_TAG_SECTION) {
                from_c = 1;
            }
        }
    }
    return 0;
}

int
fp_call_site_goes_off(fp_recorder *r, fp_key caller)
{
    if (r->recording.sites_wait != 0) {
        r->recording.sites_wait--;
        return 0;
    }
    uint32_t nodes;
    int open = has_open_c_call(r, caller, &nodes);
    r->recording.budget.visits += nodes;
    if (open) {
        /* The check repeats at each call, so skip as many events as it
         * visited nodes. */
        r->recording.sites_wait = nodes;
        return 0;
    }
    r->recording.sites_off++;
    return 1;
}

void
fp_call_sites_count_anew(fp_recorder *r)
{
    r->recording.sites_off_most = fp_call_sites_off(r);
    r->recording.sites_off = 0;
}

uint64_t
fp_call_sites_off(const fp_recorder *r)
{
    const fp_recording *c = &r->recording;
    return c->sites_off > c->sites_off_most ? c->sites_off : c->sites_off_most;
}
