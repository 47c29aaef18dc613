/* section_sync: synchronizes the GPU at the borders of sections. */
#ifndef FP_PY_SECTION_SYNC_H
#define FP_PY_SECTION_SYNC_H

#include "py/section_type.h"

/* Calls torch.cuda.synchronize(), or the function that was set, if [s] or the
 * recorder asks for it.  Never fails. */
void
fp_section_synchronize(fp_recorder *r, const fp_section_object *s);

#endif
