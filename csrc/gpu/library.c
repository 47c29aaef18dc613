#include "gpu/library.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
fp_why_set(fp_why *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
}

/* An empty name would open the program itself. */
static int
is_safe(const char *path)
{
    return path[0] == '/' || (path[0] != '\0' && strchr(path, '/') == NULL);
}

void *
fp_library_open(const char *path, fp_why *why)
{
    if (!is_safe(path)) {
        fp_why_set(
            why,
            "\"%.200s\" is not loaded: give an absolute path, or a file "
            "name without a directory",
            path);
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *error = dlerror();
        fp_why_set(why, "cannot be loaded: %.250s",
                   error != NULL ? error : path);
    }
    return handle;
}

void *
fp_library_load(const fp_library *l, const char *path, void *table,
                fp_why *why)
{
    fp_why reason;
    void *handle = fp_library_open(path, &reason);
    if (handle == NULL) {
        fp_why_set(why, "%s%.300s", l->name, reason.text);
        return NULL;
    }
    const char *missing = NULL;
    for (size_t i = 0; i < l->count; i++) {
        void *function = dlsym(handle, l->symbols[i].name);
        /* memcpy: C has no cast from an object pointer to a function
         * pointer. */
        memcpy((char *)table + l->symbols[i].offset, &function,
               sizeof(function));
        if (function == NULL && l->symbols[i].is_needed && missing == NULL) {
            missing = l->symbols[i].name;
        }
    }
    if (missing != NULL) {
        fp_why_set(why, "%.200s has no function %s: it is not %s", path,
                   missing, l->is_none);
    }
    return missing == NULL ? handle : NULL;
}

void
fp_result_describe(int result, const char *name, char *text, size_t size)
{
    (void)snprintf(text, size, "%d%s%.80s%s", result, name ? " (" : "",
                   name ? name : "", name ? ")" : "");
}
