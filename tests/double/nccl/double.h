/* NCCL without GPUs: a library with the functions of nccl.h that reference/comm/nccl uses, over
 * processes and Unix sockets, on the streams of the CUDA double or of another device with
 * cuda_double_enqueue and cuda_double_is_device (tests/double/cuda/double.h), which it finds among
 * the program's symbols.
 *
 * It is as strict as NCCL may be: a send ends when its receive has the data; memory is read and
 * written when the stream comes to it and not before; after a failure the stream stands still until
 * ncclCommAbort.  It is stricter where NCCL would go wrong in silence: what meets must agree in
 * kind, bytes, root, type and place in the order of collectives, or of messages between the two
 * ranks, over all communicators of a process (which number ranks alike); memory must be the
 * device's, a group has one stream and one communicator, and kernels of all communicators fit the
 * GPU together.
 *
 * The directory of the sockets is in the unique id and goes when all ranks are there. */
#pragma once

#include <stdint.h>

/* Of this process.  Each starts from its environment variable. */
struct nccl_double_settings {
    int version;    /* MOEPERF_DOUBLE_NCCL_VERSION, 22809 */
    int fail_call;  /* MOEPERF_DOUBLE_NCCL_FAIL=n: the n-th send, receive or collective from now
                       returns ncclSystemError; 0: none */
    int fail_group; /* MOEPERF_DOUBLE_NCCL_ASYNC=n: the n-th group from now (an operation outside
                       of groups is one) fails on its stream with ncclRemoteError; 0: none */
    int fail_join;  /* MOEPERF_DOUBLE_NCCL_JOIN=1: ncclCommInitRankConfig fails */
    int delay_us;   /* MOEPERF_DOUBLE_NCCL_DELAY: longest random pause before a group, 0 */
    int processors; /* MOEPERF_DOUBLE_NCCL_PROCESSORS: multiprocessors of the GPU, 132 */
    int in_turn;    /* MOEPERF_DOUBLE_NCCL_IN_TURN=1: groups of all communicators of the process run
                       one at a time in the order of calls, as on streams that share a hardware
                       queue */
    /* Counted from the start: */
    int64_t groups, sends, receives, collectives;
    int64_t aborts, destroys;
};

/* Exported by the library; tests find it with dlsym. */
struct nccl_double_settings *nccl_double_settings(void);
