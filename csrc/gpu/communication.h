/* communication: whether a kernel communicates with other ranks, by its name. */
#ifndef FP_GPU_COMMUNICATION_H
#define FP_GPU_COMMUNICATION_H

typedef enum fp_communication {
    FP_COMMUNICATION_NONE,
    /* broadcast, reduce, send and receive, all-to-all, unknown: a rank that
     * waits less than others need not be late */
    FP_COMMUNICATION_OTHER,
    /* all-reduce, all-gather, reduce-scatter: all ranks wait for the last */
    FP_COMMUNICATION_COLLECTIVE,
} fp_communication;

fp_communication
fp_communication_of(const char *name);

#endif
