/* recorder_reset: clears what a recorder has recorded. */
#ifndef FP_PY_RECORDER_RESET_H
#define FP_PY_RECORDER_RESET_H

#include "py/recorder.h"

/* Clears the recording.  Active layers stay on.  Unless it is NULL, [keys] gets
 * the table of keys, for the caller to clear.  Returns -1 without an exception
 * if the recorder is being read; nothing has changed then. */
int
fp_recorder_reset(fp_recorder *r, fp_keytab *keys);

/* In a forked child: clears the recording, which belongs to the parent.  If
 * this thread forked during an export, the end of that export does it. */
void
fp_recorder_forget(fp_recorder *r);

/* Call these around code that reads the records while Python code may run:
 * they keep the records from being freed. */
void
fp_recorder_begin_export(fp_recorder *r);

void
fp_recorder_end_export(fp_recorder *r);

#endif
