/* export_imports: reduces the part of a tree that belongs to imports.
 *
 * Importing torch creates 250,000 calling contexts, nearly all of a run.  A
 * reader needs the time per module, not every function that a library calls
 * during its import.  So those functions are counted together, per module and
 * kind of function. */
#ifndef FP_PY_EXPORT_IMPORTS_H
#define FP_PY_EXPORT_IMPORTS_H

#include "py/export_parts.h"

/* The class of a code object, as returned by the callable of export(). */
typedef enum fp_code_class {
    /* the program's code: kept with everything that it calls */
    FP_CODE_PROGRAM,
    FP_CODE_LIBRARY,
    FP_CODE_MODULE, /* the body of a library's module */
    FP_CODE_IMPORT, /* the import system's code, where an import begins */
    FP_CODE_CLASSES,
} fp_code_class;

/* Builds the smaller tree *into from [rows]; the caller must fini it.  to[i]
 * becomes the index of the node of row i.  Returns 0, or -1 with an exception;
 * runs Python code. */
int
fp_fold_imports(fp_export *x, const fp_export_row *rows, uint32_t count,
                fp_tree *into, uint32_t *to);

#endif
