/* nvtx_abi: the part of NVTX 3's binary interface that fastprof uses, declared
 * without its headers.
 *
 * NVTX has no library.  Each module that emits ranges (a client) holds a table
 * of function pointers.  At its first call it loads the library named by
 * NVTX_INJECTION64_PATH (the tool) and calls its InitializeInjectionNvtx2 with
 * a function that returns the client's export tables.  The tool writes its own
 * functions to the client's pointers.  This happens once per client and cannot
 * be undone.  tests/native/test_nvtx_headers.py compares these numbers to the
 * real headers if they are installed. */
#ifndef FP_GPU_NVTX_ABI_H
#define FP_GPU_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#define FP_NVTX_PATH_VARIABLE "NVTX_INJECTION64_PATH"
#define FP_NVTX_INIT_SYMBOL "InitializeInjectionNvtx2"

/* Export tables. */
enum { FP_NVTX_EXPORT_CALLBACKS = 1, FP_NVTX_EXPORT_VERSION = 3 };

enum { /* modules of functions */
       FP_NVTX_CORE = 1,
       FP_NVTX_CORE2 = 5, /* with domains */
       FP_NVTX_SYNC = 6,
       FP_NVTX_MODULES = 7,
};

enum { /* functions of CORE */
       FP_NVTX_RANGE_START_EX = 4,
       FP_NVTX_RANGE_START_A = 5,
       FP_NVTX_RANGE_START_W = 6,
       FP_NVTX_RANGE_END = 7,
       FP_NVTX_RANGE_PUSH_EX = 8,
       FP_NVTX_RANGE_PUSH_A = 9,
       FP_NVTX_RANGE_PUSH_W = 10,
       FP_NVTX_RANGE_POP = 11,
};

enum { /* functions of CORE2 */
       FP_NVTX_DOMAIN_RANGE_START_EX = 2,
       FP_NVTX_DOMAIN_RANGE_END = 3,
       FP_NVTX_DOMAIN_RANGE_PUSH_EX = 4,
       FP_NVTX_DOMAIN_RANGE_POP = 5,
       FP_NVTX_DOMAIN_REGISTER_STRING_A = 10,
       FP_NVTX_DOMAIN_REGISTER_STRING_W = 11,
       FP_NVTX_DOMAIN_CREATE_A = 12,
       FP_NVTX_DOMAIN_CREATE_W = 13,
};

/* Upper limit of a module's function count (its last id plus one). */
enum { FP_NVTX_MAX_FUNCTIONS = 16 };

/* Result of a push or pop if the tool does not track levels. */
enum { FP_NVTX_NO_LEVELS = -2 };

enum { FP_NVTX_VERSION = 3 };

enum { /* kinds of message */
       FP_NVTX_MESSAGE_NONE = 0,
       FP_NVTX_MESSAGE_ASCII = 1, /* in practice UTF-8 */
       FP_NVTX_MESSAGE_WIDE = 2,
       FP_NVTX_MESSAGE_REGISTERED = 3,
};

typedef struct fp_nvtx_event {
    uint16_t version;
    uint16_t size; /* size of this struct in the client */
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *wide;
        const void *registered;
    } message;
} fp_nvtx_event;

_Static_assert(sizeof(void *) != 8 || sizeof(fp_nvtx_event) == 48,
               "the layout of an event's attributes");

/* Any function; cast it before the call. */
typedef void (*fp_nvtx_function)(void);

/* Element [id] is the address of the client's pointer to that function;
 * element 0 is NULL. */
typedef fp_nvtx_function **fp_nvtx_table;

typedef struct fp_nvtx_callbacks {
    size_t size;
    /* Returns 1, or 0 if the module does not exist.  [count] becomes its last
     * id plus one. */
    int (*get_module)(int module, fp_nvtx_table *table, unsigned *count);
} fp_nvtx_callbacks;

typedef struct fp_nvtx_version_info {
    size_t size;
    uint32_t version;
    uint32_t reserved;
    void (*set_tool_version)(uint32_t version);
} fp_nvtx_version_info;

typedef const void *(*fp_nvtx_get_export)(uint32_t table);

/* Returns 1 if the tool listens to this client, else 0. */
typedef int (*fp_nvtx_init)(fp_nvtx_get_export get_export);

#endif
