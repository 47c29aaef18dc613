/* fake_device: the program's CUDA calls as CUPTI sees them: callbacks around a
 * call, records after it, and a device that does the work. */
#include "fake_state.h"

#include <stdlib.h>
#include <string.h>

typedef struct fake_api { /* one call into CUDA */
    uint32_t runtime;     /* cbid; 0: the program called the driver itself */
    uint32_t driver;
    const char *runtime_name;
    const char *driver_name;
    const char *symbol; /* of a kernel */
    uint32_t device;
    uint32_t correlation;
    int64_t runtime_start;
    int64_t driver_start;
    uint64_t runtime_word; /* kept by a callback from enter to exit */
    uint64_t driver_word;
} fake_api;

typedef struct callback_data { /* CUpti_CallbackData */
    int site;
    const char *function_name;
    const void *params;
    void *return_value;
    const char *symbol_name;
    void *context;
    uint32_t context_uid;
    uint64_t *shared;
    uint32_t correlation;
} callback_data;

typedef struct resource_data { /* CUpti_ResourceData */
    void *context;
    void *stream;
    void *descriptor;
} resource_data;

typedef struct graph_data { /* CUpti_GraphData */
    void *graph;
    void *original_graph;
    void *node;
    void *original_node;
    int node_type;
    void *dependency;
    void *exec;
} graph_data;

enum { SITE_ENTER = 0, SITE_EXIT = 1 };

enum { NODE_CREATED = 13, NODE_CLONED = 20 };

static _Thread_local fake_graph *capturing;

/* Any address that is not NULL. */
static char contexts[256];

/* ---- callbacks ---- */

static int
callback_for(int domain, uint32_t cbid, fake_callback *f, void **user)
{
    pthread_mutex_lock(&fake.lock);
    int on = fake.callback != NULL && cbid < FAKE_CBIDS &&
             fake.callback_on[domain][cbid];
    *f = fake.callback;
    *user = fake.callback_user;
    if (on) {
        fake_count(domain == FAKE_DOMAIN_RESOURCE ? FAKE_CTR_resources
                                                  : FAKE_CTR_callbacks,
                   1);
    }
    pthread_mutex_unlock(&fake.lock);
    return on;
}

static void
call_back(fake_api *a, int domain, int site)
{
    int is_runtime = domain == FAKE_DOMAIN_RUNTIME;
    uint32_t cbid = is_runtime ? a->runtime : a->driver;
    fake_callback f;
    void *user;
    if (cbid == 0 || !callback_for(domain, cbid, &f, &user)) {
        return;
    }
    static const uint64_t no_params[32];
    int return_value = 0;
    callback_data data = {
        .site = site,
        .function_name = is_runtime ? a->runtime_name : a->driver_name,
        .params = no_params,
        .return_value = site == SITE_EXIT ? &return_value : NULL,
        .symbol_name = a->symbol,
        .context = &contexts[a->device % sizeof(contexts)],
        .context_uid = fake_context_of(a->device),
        .shared = is_runtime ? &a->runtime_word : &a->driver_word,
        .correlation = a->correlation,
    };
    f(user, domain, cbid, &data);
}

static void
node_callback(uint32_t cbid, graph_data *graph)
{
    fake_callback f;
    void *user;
    if (callback_for(FAKE_DOMAIN_RESOURCE, cbid, &f, &user)) {
        resource_data data = {contexts, NULL, graph};
        f(user, FAKE_DOMAIN_RESOURCE, cbid, &data);
    }
}

/* ---- one call ---- */

static void
api_begin(fake_api *a)
{
    pthread_mutex_lock(&fake.lock);
    a->correlation = fake.correlation++;
    a->runtime_start = fake_now();
    pthread_mutex_unlock(&fake.lock);
    call_back(a, FAKE_DOMAIN_RUNTIME, SITE_ENTER);
    a->driver_start = fake_cupti_now();
    call_back(a, FAKE_DOMAIN_DRIVER, SITE_ENTER);
}

static uint32_t
api_thread(void)
{
    return fake.thread_id_type == 1 ? (uint32_t)fake_thread()
                                    : (uint32_t)(uintptr_t)pthread_self();
}

/* Returns 1 if the call is recorded in [domain]; the record is then in [r]. */
static int
api_record(const fake_api *a, int domain, fake_record *r)
{
    int is_runtime = domain == FAKE_DOMAIN_RUNTIME;
    uint32_t cbid = is_runtime ? a->runtime : a->driver;
    uint32_t kind = is_runtime ? FAKE_RUNTIME : FAKE_DRIVER;
    if (cbid == 0) {
        return 0;
    }
    pthread_mutex_lock(&fake.lock);
    int on = fake.kind_on[kind] && !fake.api_off[domain][cbid];
    memset(r, 0, sizeof(*r));
    r->kind = kind;
    r->type = cbid;
    r->start = is_runtime ? a->runtime_start : a->driver_start;
    r->end = fake_now();
    r->correlation = a->correlation;
    r->thread = api_thread();
    pthread_mutex_unlock(&fake.lock);
    return on;
}

/* Records the call, after the external ids of its thread. */
static void
api_append(const fake_api *a, int domain)
{
    fake_record call;
    fake_record ids[FAKE_EXTERNAL_KINDS];
    if (!api_record(a, domain, &call)) {
        return;
    }
    pthread_mutex_lock(&fake.lock);
    int wanted = fake.kind_on[FAKE_EXTERNAL];
    pthread_mutex_unlock(&fake.lock);
    size_t n = wanted ? fake_externals(ids, a->correlation) : 0;
    for (size_t i = 0; i < n; i++) {
        fake_append(&ids[i]);
    }
    fake_append(&call);
}

static void
api_end(fake_api *a)
{
    pthread_mutex_lock(&fake.lock);
    if (fake.is_manual) {
        fake.manual_ns += fake.option.api_ns;
    }
    /* CUPTI 13.0 on a GPU has no record of a driver's call inside a
     * runtime's call. */
    int has_driver = a->runtime == 0 || fake.option.external_twice != 0;
    pthread_mutex_unlock(&fake.lock);
    call_back(a, FAKE_DOMAIN_DRIVER, SITE_EXIT);
    if (has_driver) {
        api_append(a, FAKE_DOMAIN_DRIVER);
    }
    call_back(a, FAKE_DOMAIN_RUNTIME, SITE_EXIT);
    api_append(a, FAKE_DOMAIN_RUNTIME);
}

/* ---- the device ---- */

/* The lock is held. */
static fake_stream *
stream_of(uint32_t device, uint32_t stream)
{
    for (size_t i = 0; i < fake.streams; i++) {
        fake_stream *s = &fake.stream[i];
        if (s->device == device && s->stream == stream) {
            return s;
        }
    }
    if (fake.streams == FAKE_STREAMS) {
        abort(); /* a test with more needs a larger table */
    }
    fake_stream *s = &fake.stream[fake.streams++];
    *s = (fake_stream){device, stream, 0};
    return s;
}

/* Puts [r] on its stream; returns 1 if its kind is recorded. */
static int
run(fake_record *r, int64_t duration_ns)
{
    pthread_mutex_lock(&fake.lock);
    fake_stream *s = stream_of(r->device, r->stream);
    int64_t earliest = fake_device_now() + fake.option.launch_latency_ns;
    r->start = earliest > s->free_at ? earliest : s->free_at;
    r->end = r->start + duration_ns;
    s->free_at = r->end;
    int on = fake.kind_on[r->kind];
    if (!fake.device_used) {
        fake.device_used = 1;
        fake.device_clock = fake.clock;
    }
    pthread_mutex_unlock(&fake.lock);
    return on;
}

static int64_t
done_at(int wait, uint32_t device, uint32_t stream)
{
    int64_t at = 0;
    pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < fake.streams; i++) {
        const fake_stream *s = &fake.stream[i];
        int counts = s->device == device &&
                     (wait == FAKE_WAIT_DEVICE || s->stream == stream);
        if (counts && s->free_at > at) {
            at = s->free_at;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return at;
}

static void
count(fake_counter c)
{
    pthread_mutex_lock(&fake.lock);
    fake_count(c, 1);
    pthread_mutex_unlock(&fake.lock);
}

static void
add_node(fake_graph *g, const fake_record *r, int64_t duration_ns)
{
    fake_node *node = calloc(1, sizeof(*node));
    fake_node **grown = realloc(g->node, (g->nodes + 1) * sizeof(*grown));
    if (node == NULL || grown == NULL) {
        abort();
    }
    g->node = grown;
    node->id = (uint64_t)g->id << 32 | (g->nodes + 1);
    node->record = *r;
    node->duration_ns = duration_ns;
    g->node[g->nodes++] = node;
    graph_data data = {.graph = g, .node = node};
    node_callback(NODE_CREATED, &data);
}

/* The call [a] gives the device [r], or the graph under capture a node. */
static uint32_t
give_work(fake_api *a, fake_record *r, int64_t duration_ns, int wait)
{
    api_begin(a);
    count(FAKE_CTR_launches);
    r->correlation = a->correlation;
    int on = 0;
    if (capturing != NULL) {
        add_node(capturing, r, duration_ns);
    }
    else {
        on = run(r, duration_ns);
    }
    pthread_mutex_lock(&fake.lock);
    int first = fake.option.kernel_first != 0;
    pthread_mutex_unlock(&fake.lock);
    if (on && first) {
        fake_append(r);
    }
    if (wait && capturing == NULL) {
        count(FAKE_CTR_waits);
        fake_wait_until(r->end);
    }
    api_end(a);
    if (on && !first) {
        fake_append(r);
    }
    return a->correlation;
}

/* ---- kernels, copies, memsets ---- */

uint32_t
fake_cupti_launch(const fake_kernel *k)
{
    fake_api a = {
        .runtime = k->runtime_cbid != 0 ? k->runtime_cbid : 211,
        .driver = k->driver_cbid != 0 ? k->driver_cbid : 307,
        .runtime_name = "cudaLaunchKernel",
        .driver_name = "cuLaunchKernel",
        .symbol = k->name,
        .device = k->device,
    };
    if (k->driver_only) {
        a.runtime = 0;
    }
    pthread_mutex_lock(&fake.lock);
    if (fake.option.driver_hidden && !k->driver_only) {
        a.driver = 0;
    }
    const char *name = fake_name_address(k->name);
    pthread_mutex_unlock(&fake.lock);
    fake_record r = {
        .kind = FAKE_KERNEL,
        .device = k->device,
        .stream = k->stream,
        .name = name,
        .registers = k->registers,
        .static_shared = k->static_shared,
        .dynamic_shared = k->dynamic_shared,
    };
    memcpy(r.grid, k->grid, sizeof(r.grid));
    memcpy(r.block, k->block, sizeof(r.block));
    return give_work(&a, &r, k->duration_ns, 0);
}

enum { HTOD = 1, DTOH = 2, PTOP = 10 };

static void
name_copy(fake_api *a, const fake_copy *c)
{
    static const struct {
        uint32_t direction;
        uint32_t driver; /* and with the wait */
        uint32_t driver_wait;
        const char *name;
    } calls[] = {
        {HTOD, 277, 276, "cuMemcpyHtoDAsync_v2"},
        {DTOH, 279, 278, "cuMemcpyDtoHAsync_v2"},
        {PTOP, 319, 318, "cuMemcpyPeerAsync"},
        {0, 281, 280, "cuMemcpyDtoDAsync_v2"},
    };
    size_t i = 0;
    while (calls[i].direction != 0 && calls[i].direction != c->direction) {
        i++;
    }
    int is_peer = c->direction == PTOP;
    uint32_t with_wait = is_peer ? 160 : 31;
    uint32_t without = is_peer ? 161 : 41;
    a->driver = c->wait ? calls[i].driver_wait : calls[i].driver;
    a->driver_name = calls[i].name;
    a->runtime = c->wait ? with_wait : without;
    a->runtime_name = is_peer ? "cudaMemcpyPeerAsync" : "cudaMemcpyAsync";
    if (c->driver_only) {
        a->runtime = 0;
    }
}

uint32_t
fake_cupti_memcpy(const fake_copy *c)
{
    fake_api a = {.device = c->device};
    name_copy(&a, c);
    fake_record r = {
        .kind = c->direction == PTOP ? FAKE_PEER : FAKE_MEMCPY,
        .type = c->direction,
        .bytes = c->bytes,
        .device = c->device,
        .stream = c->stream,
        .to_device = c->to_device,
    };
    return give_work(&a, &r, c->duration_ns, c->wait != 0);
}

uint32_t
fake_cupti_memset(uint64_t bytes, int64_t duration_ns, uint32_t device,
                  uint32_t stream)
{
    fake_api a = {
        .runtime = 51,
        .driver = 216,
        .runtime_name = "cudaMemsetAsync",
        .driver_name = "cuMemsetD8Async",
        .device = device,
    };
    fake_record r = {
        .kind = FAKE_MEMSET,
        .bytes = bytes,
        .device = device,
        .stream = stream,
    };
    return give_work(&a, &r, duration_ns, 0);
}

/* ---- waits ---- */

static fake_api
wait_call(int wait)
{
    fake_api a = {0};
    switch (wait) {
    case FAKE_WAIT_EVENT:
        a.runtime = 137;
        a.driver = 121;
        a.runtime_name = "cudaEventSynchronize";
        a.driver_name = "cuEventSynchronize";
        break;
    case FAKE_WAIT_STREAM:
        a.runtime = 131;
        a.driver = 126;
        a.runtime_name = "cudaStreamSynchronize";
        a.driver_name = "cuStreamSynchronize";
        break;
    default:
        a.runtime = 165;
        a.driver = 17;
        a.runtime_name = "cudaDeviceSynchronize";
        a.driver_name = "cuCtxSynchronize";
    }
    return a;
}

uint32_t
fake_cupti_synchronize(int wait, uint32_t device, uint32_t stream)
{
    fake_api a = wait_call(wait);
    a.device = device;
    int64_t until = done_at(wait, device, stream);
    api_begin(&a);
    count(FAKE_CTR_waits);
    fake_record r = {
        .kind = FAKE_SYNC,
        .type = (uint32_t)wait,
        .start = fake_cupti_now(),
        .device = device,
        .stream = stream,
        .correlation = a.correlation,
    };
    fake_wait_until(until);
    r.end = fake_cupti_now();
    pthread_mutex_lock(&fake.lock);
    int on = fake.kind_on[FAKE_SYNC];
    pthread_mutex_unlock(&fake.lock);
    api_end(&a);
    if (on) {
        fake_append(&r);
    }
    return a.correlation;
}

/* ---- graphs ---- */

static fake_graph *
graph_new(void)
{
    fake_graph *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        abort();
    }
    pthread_mutex_lock(&fake.lock);
    g->id = ++fake.graph_ids;
    g->next = fake.graphs;
    fake.graphs = g;
    pthread_mutex_unlock(&fake.lock);
    return g;
}

void
fake_cupti_capture_begin(void)
{
    capturing = graph_new();
}

void *
fake_cupti_capture_end(void)
{
    fake_graph *g = capturing;
    capturing = NULL;
    return g;
}

void *
fake_cupti_instantiate(void *graph)
{
    fake_graph *from = graph;
    fake_graph *to = graph_new();
    to->original = from;
    to->node = calloc(from->nodes + 1, sizeof(fake_node *));
    if (to->node == NULL) {
        abort();
    }
    for (size_t i = 0; i < from->nodes; i++) {
        fake_node *node = malloc(sizeof(*node));
        if (node == NULL) {
            abort();
        }
        *node = *from->node[i];
        node->id = (uint64_t)to->id << 32 | (i + 1);
        to->node[to->nodes++] = node;
        graph_data data = {
            .graph = to,
            .original_graph = from,
            .node = node,
            .original_node = from->node[i],
            .exec = to,
        };
        node_callback(NODE_CLONED, &data);
    }
    return to;
}

static int
graph_ids_are_wrong(void)
{
    pthread_mutex_lock(&fake.lock);
    int wrong = fake.option.graph_ids_wrong == 2 ||
                (fake.option.graph_ids_wrong && fake.sessions > 1 &&
                 fake.option.release < 13010);
    pthread_mutex_unlock(&fake.lock);
    return wrong;
}

/* As CUPTI 13.0.85 was seen to do it (there 100,000 records fit into a
 * buffer): without another one, records have no times. */
static void
leak(fake_record *r)
{
    pthread_mutex_lock(&fake.lock);
    if (fake.option.nodes_leak) {
        uint64_t size = fake.attribute[0], limit = fake.attribute[2];
        uint64_t room = (uint64_t)fake.option.nodes_leak;
        uint64_t buffers = fake.leaked / room + 1;
        if (buffers > limit) {
            r->start = r->end = 0;
        }
        else {
            fake.leaked++;
            fake.counter[FAKE_CTR_device_bytes] = (int64_t)(buffers * size);
        }
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Makes [r] the record of a whole graph, as CUPTI does instead of the nodes';
 * returns 0 if that kind is off. */
static int
whole_graph(fake_record *r, const fake_graph *g, int64_t start)
{
    pthread_mutex_lock(&fake.lock);
    int on = fake.kind_on[FAKE_GRAPH_TRACE];
    pthread_mutex_unlock(&fake.lock);
    r->kind = FAKE_GRAPH_TRACE;
    r->start = start;
    r->graph = g->id;
    return on && g->nodes != 0;
}

uint32_t
fake_cupti_graph_launch(void *exec, uint32_t device, uint32_t stream)
{
    const fake_graph *g = exec;
    fake_api a = {
        .runtime = 311,
        .driver = 514,
        .runtime_name = "cudaGraphLaunch",
        .driver_name = "cuGraphLaunch",
        .device = device,
    };
    api_begin(&a);
    count(FAKE_CTR_launches);
    count(FAKE_CTR_graph_launches);
    fake_record *done = calloc(g->nodes + 1, sizeof(*done));
    if (done == NULL) {
        abort();
    }
    size_t n = 0;
    int64_t start = 0;
    fake_record last = {0};
    for (size_t i = 0; i < g->nodes; i++) {
        fake_record r = g->node[i]->record;
        r.device = device;
        r.stream = stream;
        r.correlation = a.correlation;
        r.graph = g->id;
        r.graph_node = g->node[i]->id;
        if (graph_ids_are_wrong()) {
            r.correlation += 1;
        }
        int on = run(&r, g->node[i]->duration_ns);
        start = i == 0 ? r.start : start;
        last = r;
        if (on) {
            done[n++] = r;
        }
    }
    if (whole_graph(&last, g, start)) {
        done[0] = last;
        n = 1;
    }
    for (size_t i = 0; i < n && done[0].kind != FAKE_GRAPH_TRACE; i++) {
        leak(&done[i]);
    }
    api_end(&a);
    for (size_t i = 0; i < n; i++) {
        fake_append(&done[i]);
    }
    free(done);
    return a.correlation;
}

void
fake_device_reset(void)
{
    while (fake.graphs != NULL) {
        fake_graph *g = fake.graphs;
        fake.graphs = g->next;
        for (size_t i = 0; i < g->nodes; i++) {
            free(g->node[i]);
        }
        free(g->node);
        free(g);
    }
    capturing = NULL;
}
