/* nodes: creates the nodes of a thread, and the keys that they need. */
#ifndef FP_PY_NODES_H
#define FP_PY_NODES_H

#include "py/recorder.h"

/* The node for [key] below the current node of [t], created if needed.  NULL:
 * no memory for the key (counted). */
fp_node *
fp_recorder_node(fp_recorder *r, fp_thread *t, fp_key key, PyObject *object);

#endif
