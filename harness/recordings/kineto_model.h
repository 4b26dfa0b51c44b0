/* A PyTorch trace in memory, between reading and writing: what its files of this folder share.
 *
 * On the host, an event lies inside others of its thread.  Ranges are those that rules may map:
 * what users and torch annotate, calls of modules, and operators that a rule matches.  Work that
 * was begun in a range may be done later: on a GPU, or by autograd, whose evaluations carry the
 * sequence number of their forward operator.  Such work echoes the ranges around what began it. */
#pragma once

#include <stddef.h>

#include "harness/record/rules.h"
#include "harness/recordings/kineto_json.h"
#include "harness/recordings/writer.h"
#include "profiler/record/name_table.h"
#include "reference/base/arena.h"

enum { KINETO_NONE = -1 };

/* Of an operation that ranks do together; the order is that in which names are looked through. */
enum kineto_function {
    KINETO_ALL_TO_ALL,
    KINETO_ALL_REDUCE,
    KINETO_ALL_GATHER,
    KINETO_REDUCE_SCATTER,
    KINETO_BROADCAST,
    KINETO_BARRIER,
    KINETO_GATHER,
    KINETO_SCATTER,
    KINETO_REDUCE,
    KINETO_SEND,
    KINETO_RECV,
    KINETO_FUNCTIONS /* it is none */
};
const char *kineto_function_name(enum kineto_function function); /* "all_to_all", as torch has it */
/* By a name in any spelling: "c10d::_allgather_base_", "ncclDevKernel_AllToAll_f32". */
enum kineto_function kineto_function_of(const char *name);

/* What is known of a name. */
struct kineto_name {
    const char *text;
    const struct mp_rule *rule; /* of ranges of the default domain; NULL: none */
    bool ends_iterations;
    bool is_evaluation;            /* autograd evaluates a node */
    bool is_gloo, is_issue;        /* gloo does it; the call that asks for it */
    bool is_nccl;                  /* torch's annotation around a call of NCCL */
    bool is_wait;                  /* the call that waits for one that was asked for before */
    bool is_product;               /* multiplies the rows of its first input by a matrix */
    enum kineto_function function; /* of one of these */
};

struct kineto_host {
    int64_t start_ns, end_ns;
    uint32_t name, thread; /* indices */
    uint32_t correlation;  /* of a call */
    uint32_t external;     /* of an operator */
    uint32_t sequence;     /* KINETO_NO_SEQUENCE: none */
    int32_t around;        /* innermost range around it; KINETO_NONE */
    int32_t evaluation;    /* autograd's evaluation that it is in; KINETO_NONE */
    int32_t issue;         /* of an operation of gloo: the call that asked for it; KINETO_NONE */
    int32_t extra;         /* index; KINETO_NONE: nothing more is said of it */
    uint16_t level;        /* ranges around it */
    uint8_t category;      /* enum kineto_category */
};

struct kineto_device {
    int64_t start_ns, end_ns;
    uint64_t bytes;
    uint32_t name, correlation, external;
    uint32_t device, stream, context;
    uint32_t grid[3], block[3], registers, shared;
    int32_t collective; /* index; KINETO_NONE */
    int32_t launch;     /* host event that launched it; KINETO_NONE */
    uint8_t category;
};

/* What torch says of a collective beside its times; of the first input of a product; of a range,
 * what the products in it say together, of inputs as wide as the first one's. */
struct kineto_extra {
    uint64_t communicator; /* 0: not said */
    bool is_named;         /* function is what torch calls it, not the kernel */
    int64_t count, group_size, number;
    int64_t rows, width;
    uint32_t function, type; /* names; 0: not said */
};

struct kineto_thread {
    uint32_t process, thread; /* the system's */
};

/* An event by a number of it, for looking it up. */
struct kineto_key {
    uint64_t number;
    int64_t start_ns;
    int32_t event;
};

/* An operation that the thread which asked for it waited for: from that call on, or in a call that
 * does nothing else. */
struct kineto_wait {
    int32_t issue; /* host event: that call */
    int32_t from;  /* host event: from its start on */
    int64_t end_ns;
    uint32_t name;
};

struct kineto_model {
    const struct mp_rules *rules;
    const char *path;
    struct kineto_header header;
    struct name_table names;
    struct mp_arena texts;
    struct kineto_name *name; /* by number - 1 */
    size_t name_count;
    struct kineto_host *host;
    size_t hosts;
    struct kineto_device *device;
    size_t devices;
    struct kineto_extra *extra;
    size_t extras;
    struct kineto_thread *thread;
    size_t threads;
    uint32_t latest_thread;
    struct kineto_key
        *forward; /* [forwards] operators with a sequence number, by it and by start */
    size_t forwards;
    struct kineto_wait *wait; /* by issue */
    size_t waits;
};

static inline const struct kineto_name *kineto_name_of(const struct kineto_model *model,
                                                       uint32_t number) {
    return &model->name[number - 1];
}

/* Whether an event is a range that rules may map. */
static inline bool kineto_is_range(const struct kineto_model *model,
                                   const struct kineto_host *event) {
    const struct kineto_name *name = kineto_name_of(model, event->name);
    return event->category == KINETO_ANNOTATION || event->category == KINETO_MODULE ||
           (event->category == KINETO_OPERATOR && (name->rule || name->ends_iterations));
}

/* MP_ENOMEM. */
int kineto_add_extra(struct kineto_model *model, const struct kineto_extra *extra, int32_t *index,
                     struct mp_error *error);

/* kineto_nest.c: puts events in order, and finds what lies in what, what launched what, which
 * forward operators there are, and which operations their threads waited for. */
int kineto_nest(struct kineto_model *model, struct mp_error *error);

/* The first wait for what was asked for in this host event or behind it; their count: none. */
size_t kineto_first_wait(const struct kineto_model *model, int32_t issue);

/* The forward operator of an evaluation, and the range in whose name the work of both is done: that
 * around the operator.  KINETO_NONE: not known. */
int32_t kineto_forward_operator(const struct kineto_model *model, int32_t evaluation);
int32_t kineto_forward_range(const struct kineto_model *model, int32_t evaluation);

/* Of an operation of NCCL that autograd evaluates: that of the same name in the forward operator.
 * KINETO_NONE: it is no such, or there is none. */
int32_t kineto_counterpart(const struct kineto_model *model, int32_t range);

/* kineto_echo.c: writes what echoes ranges: evaluations of autograd, the GPU's work.  The latter is
 * written as activities, too, linked with the echo that counts. */
int kineto_write_echoes(const struct kineto_model *model, struct mp_recording_process *process,
                        struct mp_error *error);
