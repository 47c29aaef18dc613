/* interpreter_image: tells the interpreter's own functions and types from those
 * of extension modules, by their address. */
#ifndef FP_PY_INTERPRETER_IMAGE_H
#define FP_PY_INTERPRETER_IMAGE_H

#include "py/pycompat.h"

#include "core/key.h"

/* Finds the program or library that contains the interpreter. */
void
fp_interpreter_image_find(void);

/* Is [key], of a C function or a type, in it?  Before it is found, nothing
 * is. */
int
fp_interpreter_has(fp_key key);

#endif
