/* wait_class: tells which C functions wait, and for what. */
#include "py/keytab.h"

#include <string.h>

/* Waiting functions of one module, or methods of one type. */
typedef struct owner {
    const char *name;  /* the type's name as in repr(), or the module's name */
    const char *waits; /* names, each between spaces */
    fp_kind kind;
} owner;

static const char c10d[] = "torch._C._distributed_c10d";

static const owner owners[] = {
    {"_thread.lock", " acquire acquire_lock __enter__ ", FP_KIND_LOCK},
    {"_thread.RLock", " acquire __enter__ ", FP_KIND_LOCK},
    {"_thread._ThreadHandle", " join ", FP_KIND_LOCK},
    {"_queue.SimpleQueue", " get ", FP_KIND_LOCK},
    {"_multiprocessing.SemLock", " acquire __enter__ ", FP_KIND_LOCK},
    {"time", " sleep ", FP_KIND_IO},
    {"select", " select ", FP_KIND_IO},
    {"select.poll", " poll ", FP_KIND_IO},
    {"select.epoll", " poll ", FP_KIND_IO},
    {"select.kqueue", " control ", FP_KIND_IO},
    {"signal", " pause sigwait sigwaitinfo sigtimedwait ", FP_KIND_IO},
    {"posix",
     " read readv pread preadv write writev pwrite pwritev fsync fdatasync "
     "sync sendfile copy_file_range splice wait wait3 wait4 waitid waitpid "
     "system lockf ",
     FP_KIND_IO},
    {"fcntl", " flock lockf ", FP_KIND_IO},
    {"_posixsubprocess", " fork_exec ", FP_KIND_IO},
    {"_socket", " getaddrinfo gethostbyname gethostbyaddr ", FP_KIND_IO},
    {"_socket.socket",
     " accept _accept connect connect_ex recv recv_into recvfrom "
     "recvfrom_into recvmsg recvmsg_into send sendall sendto sendmsg ",
     FP_KIND_IO},
    {"_ssl._SSLSocket", " read write do_handshake shutdown ", FP_KIND_IO},
    {"_io.FileIO", " read readall readinto write close ", FP_KIND_IO},
    {"_io.BufferedReader", " read read1 readinto readinto1 readline peek ",
     FP_KIND_IO},
    {"_io.BufferedWriter", " write flush close ", FP_KIND_IO},
    {"_io.BufferedRandom", " read read1 readinto readline write flush close ",
     FP_KIND_IO},
    {"_io.TextIOWrapper", " read readline write flush close ", FP_KIND_IO},
    {"mmap.mmap", " flush ", FP_KIND_IO},
    {c10d,
     " wait synchronize barrier monitored_barrier allreduce "
     "allreduce_coalesced _allreduce_sparse reduce broadcast allgather "
     "_allgather_base allgather_coalesced allgather_into_tensor_coalesced "
     "gather scatter reduce_scatter _reduce_scatter_base "
     "reduce_scatter_tensor_coalesced alltoall alltoall_base send recv "
     "recv_anysource get all_gather_single all_gather_single_coalesced "
     "reduce_scatter_single reduce_scatter_single_coalesced "
     "all_to_all_single _wait_for_pending_works ",
     FP_KIND_COMMUNICATION},
    /* DTensor, tensor parallelism and FSDP2 call collectives as operators. */
    {"torch._ops._c10d_functional", " wait_tensor ", FP_KIND_COMMUNICATION},
    /* Its self time is time in C++ code: kernels, and
     * DistributedDataParallel's wait for the gradients of other ranks. */
    {"torch._C._EngineBase", " run_backward ", FP_KIND_AUTOGRAD},
};

static int
is_among(const char *name, const char *names)
{
    size_t length = strlen(name);
    for (const char *at = strstr(names, name); at != NULL;
         at = strstr(at + 1, name)) {
        if (at[-1] == ' ' && at[length] == ' ') {
            return 1;
        }
    }
    return 0;
}

/* Is [e] a method of the type, or a function of the module, called [name]? */
static int
belongs_to(const fp_keyent *e, const char *name)
{
    if (e->object != NULL && Py_TYPE(e->object) == &PyMethodDescr_Type) {
        return strcmp(PyDescr_TYPE(e->object)->tp_name, name) == 0;
    }
    return e->name != NULL && PyUnicode_Check(e->name) &&
           PyUnicode_CompareWithASCIIString(e->name, name) == 0;
}

fp_kind
fp_wait_class(const fp_keyent *e)
{
    const char *name = e->method->ml_name;
    /* An empty name, or one with spaces, cannot be in a list of words. */
    if (name == NULL || name[0] == '\0' || strchr(name, ' ') != NULL) {
        return FP_KIND_NONE;
    }
    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
        if (is_among(name, owners[i].waits) && belongs_to(e, owners[i].name)) {
            return owners[i].kind;
        }
    }
    return FP_KIND_NONE;
}
