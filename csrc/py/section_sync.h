/* section_sync: sections that wait for the GPU at their borders. */
#ifndef FP_PY_SECTION_SYNC_H
#define FP_PY_SECTION_SYNC_H

#include "py/section_type.h"

/* If [s] wants it: torch.cuda.synchronize(), or whatever was set; never fails. */
void
fp_section_synchronize(fp_recorder *r, const fp_section_object *s);

#endif
