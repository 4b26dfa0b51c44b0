/* Traces of PyTorch's profiler (Kineto) as they stream by: JSON, plain or packed, an object with
 * distributedInfo, baseTimeNanoseconds and traceEvents.
 *
 * Read with yajl, which keeps nothing but the nesting: jansson, which the rest of moeperf reads
 * JSON with, makes a tree of the whole text, ten times its size in memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

enum kineto_category {
    KINETO_OTHER,      /* not read further */
    KINETO_ANNOTATION, /* user_annotation: record_function, the optimizer, ProfilerStep#N, gloo:...
                        */
    KINETO_MODULE,     /* python_function of a module's call: "nn.Module: Experts_3" */
    KINETO_OPERATOR,   /* cpu_op */
    KINETO_CALL,       /* cuda_runtime, cuda_driver and those of other vendors */
    KINETO_KERNEL,
    KINETO_COPY,
    KINETO_SET
};

enum { KINETO_TEXT = 4096 }; /* longer texts are cut */
#define KINETO_NO_SEQUENCE UINT32_MAX

/* One event of phase X.  Times count from the file's base_ns. */
struct kineto_event {
    enum kineto_category category;
    char name[KINETO_TEXT];
    int64_t start_ns, end_ns;
    uint32_t process, thread;   /* the system's; of a GPU's work: device and stream */
    uint32_t correlation;       /* 0: none, as of the others */
    uint32_t external;          /* the operator's that launched it, or its own */
    uint32_t sequence;          /* of autograd, KINETO_NO_SEQUENCE: none */
    uint32_t context;           /* of the GPU */
    uint64_t bytes;             /* of a copy or set */
    uint32_t registers, shared; /* of a kernel: per thread; bytes */
    uint32_t grid[3], block[3];
    int64_t first_size;  /* elements of the first input, -1: not recorded */
    int64_t first_width; /* of these in a row */
    char first_type[32];
    /* Of collectives of NCCL. */
    char collective[64], group[128], members[512], type[32];
    int64_t elements_in, group_size; /* -1: not recorded */
    int64_t number;                  /* "Seq", -1 */
};

struct kineto_header {
    int rank, ranks; /* -1: not said */
    int groups;      /* process groups, -1 */
    int64_t base_ns; /* times count from, since 1970 */
    char host[64];
    bool has_events;  /* there is "traceEvents" */
    int64_t events;   /* whole ones, of any phase */
    char damage[256]; /* "": the file is whole, else where and why reading ended, as a sentence */
};

/* Calls `take` for every event of phase X and a known category, in the file's order.  `header` is
 * whole afterwards.  Errors: MP_ENOTFOUND, MP_EIO, MP_ENOMEM, and what `take` returns.  A file that
 * is no such trace is no error here: it has no events, and damage says what is wrong. */
int kineto_read(const char *path,
                int (*take)(void *context, const struct kineto_event *event,
                            struct mp_error *error),
                void *context, struct kineto_header *header, struct mp_error *error);

/* Microseconds in decimal as nanoseconds, exactly up to three places; rounded towards zero. */
int64_t kineto_nanoseconds(const char *text, size_t length);
