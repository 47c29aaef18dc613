/* export_imports: a tree in which imports take little room.
 *
 * Importing torch makes 250,000 contexts, nearly all of a run.  Which module took
 * how long is of interest, and not each function that a library calls while it is
 * imported: these are counted together, per module and kind of function. */
#ifndef FP_PY_EXPORT_IMPORTS_H
#define FP_PY_EXPORT_IMPORTS_H

#include "py/export_parts.h"

/* What a code object is, as the callable of export() tells. */
typedef enum fp_code_class {
    FP_CODE_PROGRAM, /* the program's: with all that it calls, left as it is */
    FP_CODE_LIBRARY,
    FP_CODE_MODULE, /* the body of a library's module */
    FP_CODE_IMPORT, /* the import system's, where an import begins */
    FP_CODE_CLASSES,
} fp_code_class;

/* Makes of [rows] the smaller tree *into, which is the caller's to give back.
 * to[i] gets the node of row i.  -1 with an exception; runs Python code. */
int
fp_fold_imports(fp_export *x, const fp_export_row *rows, uint32_t count,
                fp_tree *into, uint32_t *to);

#endif
