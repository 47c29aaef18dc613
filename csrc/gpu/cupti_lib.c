#include "gpu/cupti_lib.h"

#include "gpu/cupti_abi.h"

#define NEEDED(name, field) {name, offsetof(fp_cupti, field), 1}
#define WANTED(name, field) {name, offsetof(fp_cupti, field), 0}

static const fp_symbol symbols[] = {
    NEEDED("cuptiGetVersion", get_version),
    NEEDED("cuptiGetResultString", get_result_string),
    NEEDED("cuptiSubscribe", subscribe),
    NEEDED("cuptiUnsubscribe", unsubscribe),
    NEEDED("cuptiEnableCallback", enable_callback),
    NEEDED("cuptiActivityRegisterCallbacks", register_buffers),
    NEEDED("cuptiActivityEnable", enable),
    NEEDED("cuptiActivityDisable", disable),
    NEEDED("cuptiActivityFlushAll", flush_all),
    NEEDED("cuptiActivityGetNextRecord", next_record),
    NEEDED("cuptiActivityGetNumDroppedRecords", dropped),
    NEEDED("cuptiGetTimestamp", get_timestamp),
    WANTED("cuptiActivityPushExternalCorrelationId", push_external),
    WANTED("cuptiActivityPopExternalCorrelationId", pop_external),
    WANTED("cuptiActivityEnableRuntimeApi", enable_runtime_api),
    WANTED("cuptiActivityEnableDriverApi", enable_driver_api),
    WANTED("cuptiGetGraphNodeId", get_graph_node_id),
    WANTED("cuptiActivityGetAttribute", get_attribute),
    WANTED("cuptiActivitySetAttribute", set_attribute),
    WANTED("cuptiActivityRegisterTimestampCallback", register_clock),
};

static const fp_library library = {"", "libcupti", symbols,
                                   sizeof(symbols) / sizeof(symbols[0])};

int
fp_cupti_open(fp_cupti *c, const char *path, fp_why *why)
{
    *c = (fp_cupti){0};
    why->text[0] = '\0';
    c->handle = fp_library_load(&library, path, c, why);
    if (c->handle == NULL) {
        return -1;
    }
    int result = c->get_version(&c->version);
    if (result != FP_CUPTI_SUCCESS) {
        char text[80];
        fp_cupti_describe(c, result, text, sizeof(text));
        fp_why_set(why, "cuptiGetVersion of %.160s failed with %s", path,
                   text);
        return -1;
    }
    return 0;
}

void
fp_cupti_describe(const fp_cupti *c, int result, char *text, size_t size)
{
    const char *name = NULL;
    int known = c->get_result_string(result, &name) == FP_CUPTI_SUCCESS;
    fp_result_describe(result, known ? name : NULL, text, size);
}
