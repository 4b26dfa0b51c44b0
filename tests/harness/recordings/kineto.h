/* Traces as torch.profiler writes them, of ranks of a model with experts whose times are planted.
 *
 * Every rank's layers compute (expert), and meet before and after (dispatch, combine); the backward
 * pass is autograd's alone, on a thread of its own, known by sequence numbers.  On a GPU the host
 * only launches: its ranges are short, and the times are those of the kernels. */
#pragma once

#include <string.h>
#include <zlib.h>

#include "tests/support.h"

enum {
    KINETO_LAYERS = 2,
    KINETO_RANKS = 3,
    KINETO_MAIN = 100, /* threads */
    KINETO_AUTOGRAD = 101,
    KINETO_LOOP = 102,
    KINETO_STREAM = 7,
    KINETO_COMM_STREAM = 20,
    KINETO_TRANSFER_NS = 200000,
    KINETO_EXPERT_NS = 3000000,
    KINETO_LAUNCH_NS = 20000,
    KINETO_CALL_NS = 5000, /* that asks for an exchange */
    KINETO_DONE_NS = 9000, /* and finds later that it is over */
    KINETO_STEP_NS = 100000000
};

struct kineto_job {
    bool on_gpu, annotated, named_hosts;
    bool unnamed;    /* torch says of NCCL's kernels only what is annotated around their launches */
    bool functional; /* exchanges are waited for in a call of their own, by the last rank after they
                        are over, and all is in modules */
    bool late;       /* the last rank's recording begins after its first exchange */
    int groups;      /* process groups; 0: one */
    int steps;
    int slow_rank, slow_layer;
    int64_t slow_ns;                 /* longer, forward */
    int64_t offset_ns[KINETO_RANKS]; /* of their clocks */
    int64_t base_ns;
};

/* One rank's file while it is written. */
struct kineto_file {
    const struct kineto_job *job;
    gzFile file;
    int rank, external, correlation, exchanges;
    bool silent;     /* what it does is not recorded */
    int64_t now_ns;  /* of the work */
    int64_t host_ns; /* of the launching thread, on a GPU */
};

/* Microseconds with three places, as torch writes them. */
static inline void kineto_event(struct kineto_file *file, const char *category, const char *name,
                                int thread, int64_t start_ns, int64_t end_ns,
                                const char *arguments) {
    if (file->silent)
        return;
    const int64_t own_ns = start_ns + file->job->offset_ns[file->rank], ns = end_ns - start_ns;
    gzprintf(
        file->file,
        "  {\n    \"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d,\n"
        "    \"ts\": %lld.%03lld, \"dur\": %lld.%03lld,\n    \"args\": {\n      %s\n    }\n  },\n",
        category, name, category[0] == 'k' ? 0 : 4000 + file->rank, thread,
        (long long)(own_ns / 1000), (long long)(own_ns % 1000), (long long)(ns / 1000),
        (long long)(ns % 1000), arguments);
}

static inline void kineto_open(struct kineto_file *file, const struct kineto_job *job, int rank,
                               const char *path) {
    const char *ending = strrchr(path, '.');
    *file = (struct kineto_file){.job = job, .rank = rank};
    file->file = gzopen(path, ending && !strcmp(ending, ".gz") ? "wb" : "wT");
    assert_non_null(file->file);
    gzprintf(file->file,
             "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{\"id\": 0, \"name\": \"x\"}],\n"
             "  \"distributedInfo\": {\"backend\": \"gloo\", \"rank\": %d, \"world_size\": %d, "
             "\"pg_count\": %d, \"pg_config\": [{\"pg_name\": \"0\", \"ranks\": [0, 1, 2]}]},\n",
             rank, KINETO_RANKS, job->groups ? job->groups : 1);
    if (job->named_hosts)
        gzprintf(file->file, "  \"host_name\": \"host\",\n");
    gzprintf(file->file,
             "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": %lld,\n"
             "  \"traceEvents\": [\n  {\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, "
             "\"tid\": 0, \"args\": {\"name\": \"python\"}},\n",
             (long long)job->base_ns);
}

static inline void kineto_close(struct kineto_file *file) {
    gzprintf(file->file,
             "  {\"ph\": \"i\", \"s\": \"g\", \"name\": \"Record Window End\", \"pid\": "
             "\"\", \"tid\": \"\", \"ts\": 1.5}\n  ],\n  \"traceName\": \"x\"\n}\n");
    assert_int_equal(gzclose(file->file), Z_OK);
}

/* Work of `ns` on the thread or, launched by a call there, on the GPU.  end_ns: when it is over, if
 * it meets others; 0: after `ns`. */
static inline void kineto_work(struct kineto_file *file, const char *name, const char *kernel,
                               int thread, int sequence, const char *dimensions, int64_t ns,
                               int64_t end_ns) {
    const int64_t start_ns = file->now_ns, until_ns = end_ns ? end_ns : start_ns + ns;
    const int stream = end_ns ? KINETO_COMM_STREAM : KINETO_STREAM;
    char arguments[384], collective[256];
    const int64_t host_ns = file->job->on_gpu ? file->host_ns : start_ns;
    const int64_t host_end_ns = file->job->on_gpu                 ? host_ns + KINETO_LAUNCH_NS
                                : end_ns && file->job->functional ? start_ns + KINETO_CALL_NS
                                                                  : until_ns;
    snprintf(arguments, sizeof arguments,
             "\"External id\": %d, \"Sequence number\": %d, \"Fwd thread id\": %d, \"Input Dims\": "
             "%s, \"Input type\": [\"float\", \"float\"]",
             ++file->external, sequence, thread == KINETO_AUTOGRAD, dimensions);
    kineto_event(file, "cpu_op", name, thread, host_ns, host_end_ns, arguments);
    if (file->job->on_gpu) {
        snprintf(arguments, sizeof arguments,
                 "\"External id\": %d, \"cbid\": 211, \"correlation\": %d", file->external,
                 ++file->correlation);
        kineto_event(file, "cuda_runtime", "cudaLaunchKernel", thread, host_ns + 1000,
                     host_ns + 5000, arguments);
        snprintf(collective, sizeof collective,
                 ", \"Collective name\": \"all_to_all\", \"Process Group Name\": \"0\", "
                 "\"Process Group Ranks\": \"[0, 1, 2]\", \"Group size\": 3, \"dtype\": \"Float\", "
                 "\"In msg nelems\": 1000, \"Seq\": %d",
                 file->exchanges);
        snprintf(arguments, sizeof arguments,
                 "\"External id\": %d, \"device\": 0, \"stream\": %d, \"correlation\": %d%s",
                 file->external, stream, file->correlation,
                 end_ns ? (file->job->unnamed ? "" : collective)
                        : ", \"grid\": [4, 2, 1], \"block\": [128, 1, 1]");
        kineto_event(file, "kernel", kernel, stream, start_ns, until_ns, arguments);
        if (end_ns && file->job->unnamed)
            kineto_event(file, "user_annotation", "nccl:all_to_all", thread, host_ns + 500,
                         host_ns + 6000, "\"External id\": 6");
        file->host_ns = host_end_ns;
    }
    file->now_ns = until_ns;
}

/* An exchange, which is over when the last rank has come and it was transferred. */
static inline void kineto_exchange(struct kineto_file file[KINETO_RANKS], int thread, int sequence,
                                   const char *annotation, const char *outer) {
    int64_t come_ns = 0;
    for (int r = 0; r < KINETO_RANKS; r++)
        come_ns = file[r].now_ns > come_ns ? file[r].now_ns : come_ns;
    const int64_t last_ns = come_ns + KINETO_TRANSFER_NS;
    for (int r = 0; r < KINETO_RANKS; r++) {
        struct kineto_file *own = &file[r];
        const int64_t start_ns = own->now_ns, host_ns = own->host_ns;
        char arguments[64];
        snprintf(arguments, sizeof arguments, "\"External id\": %d", ++own->external);
        own->silent = own->job->late && r == KINETO_RANKS - 1 && own->exchanges == 0;
        kineto_work(own, outer, "ncclDevKernel_SendRecv(ncclDevKernelArgs)", thread, sequence,
                    "[[10, 100]]", 0, last_ns);
        if (!own->job->on_gpu) {
            kineto_event(own, "cpu_op", "c10d::alltoall_base_", thread, start_ns,
                         start_ns + KINETO_CALL_NS, arguments);
            const bool is_last = start_ns == come_ns; /* goes on, and waits for nobody */
            if (own->job->functional && is_last)
                kineto_event(own, "cpu_op", "aten::view", thread, start_ns + 6000, start_ns + 6100,
                             arguments);
            if (own->job->functional)
                kineto_event(own, "cpu_op", "_c10d_functional::wait_tensor", thread,
                             is_last ? last_ns + 1000 : start_ns + 7000,
                             is_last ? last_ns + KINETO_DONE_NS : last_ns, arguments);
            own->now_ns += own->job->functional && is_last ? KINETO_DONE_NS : 0;
            own->silent = false; /* it began before, and ends now */
            kineto_event(
                own, "user_annotation", "gloo:all_to_all", KINETO_LOOP, start_ns + 6000, last_ns,
                "\"External id\": 3, \"Input Dims\": [[10, 100]], \"Input type\": [\"float\"]");
        }
        own->silent = false;
        if (annotation && own->job->annotated)
            kineto_event(own, "user_annotation", annotation, thread,
                         own->job->on_gpu ? host_ns : start_ns,
                         own->job->on_gpu ? own->host_ns : last_ns, "\"External id\": 4");
        own->exchanges++;
    }
}

static inline void kineto_experts(struct kineto_file *own, int layer, int sequence) {
    char name[32];
    const int64_t start_ns = own->job->on_gpu ? own->host_ns : own->now_ns;
    const bool is_slow = own->rank == own->job->slow_rank && layer == own->job->slow_layer;
    kineto_event(own, "cpu_op", "aten::mm", KINETO_MAIN, start_ns + 100, start_ns + 200,
                 "\"Input Dims\": [[64, 8], [8, 4]], \"Input type\": [\"float\"]"); /* in linear */
    kineto_work(own, "aten::linear", "gemm", KINETO_MAIN, sequence, "[[64, 8], [8, 4]]",
                KINETO_EXPERT_NS - 1000 + (is_slow ? own->job->slow_ns : 0), 0);
    kineto_work(own, "aten::linear", "gemm", KINETO_MAIN, sequence + 1, "[[64, 4], [4, 8]]", 1000,
                0);
    snprintf(name, sizeof name, "layer %d expert", layer);
    if (own->job->annotated)
        kineto_event(own, "user_annotation", name, KINETO_MAIN, start_ns,
                     own->job->on_gpu ? own->host_ns : own->now_ns, "\"External id\": 5");
}

static inline void kineto_forward(struct kineto_file file[KINETO_RANKS], int layer, int sequence) {
    char name[32];
    int64_t began_ns[KINETO_RANKS];
    for (int r = 0; r < KINETO_RANKS; r++)
        began_ns[r] = file[r].now_ns;
    snprintf(name, sizeof name, "layer %d dispatch", layer);
    kineto_exchange(file, KINETO_MAIN, sequence, name, "AllToAll");
    for (int r = 0; r < KINETO_RANKS; r++)
        kineto_experts(&file[r], layer, sequence + 1);
    snprintf(name, sizeof name, "layer %d combine", layer);
    kineto_exchange(file, KINETO_MAIN, sequence + 3, name, "AllToAll");
    snprintf(name, sizeof name, "nn.Module: SparseExperts_%d", layer);
    for (int r = 0; r < KINETO_RANKS && file[r].job->functional; r++)
        kineto_event(&file[r], "python_function", name, KINETO_MAIN, began_ns[r], file[r].now_ns,
                     "\"External id\": 2");
}

static inline void kineto_backward(struct kineto_file file[KINETO_RANKS], int sequence) {
    static const char evaluation[] = "autograd::engine::evaluate_function: ";
    char exchange[80], linear[80];
    snprintf(exchange, sizeof exchange, "%sAllToAllBackward", evaluation);
    snprintf(linear, sizeof linear, "%sAddmmBackward0", evaluation);
    kineto_exchange(file, KINETO_AUTOGRAD, sequence + 3, NULL, exchange);
    for (int r = 0; r < KINETO_RANKS; r++)
        kineto_work(&file[r], linear, "gemm", KINETO_AUTOGRAD, sequence + 2, "[]",
                    2 * KINETO_EXPERT_NS, 0);
    kineto_exchange(file, KINETO_AUTOGRAD, sequence, NULL, exchange);
}

/* "FOLDER/rankN.json" and then `ending`, for each rank. */
static inline void kineto_write(const struct kineto_job *job, const char *ending) {
    struct kineto_file file[KINETO_RANKS];
    for (int r = 0; r < KINETO_RANKS; r++) {
        char path[64];
        snprintf(path, sizeof path, "rank%d.json%s", r, ending);
        kineto_open(&file[r], job, r, path);
    }
    for (int step = 0; step < job->steps; step++) {
        const int sequence = 10 * step * KINETO_LAYERS;
        for (int r = 0; r < KINETO_RANKS; r++)
            file[r].now_ns = file[r].host_ns = 5000000000 + (int64_t)step * KINETO_STEP_NS;
        for (int layer = 0; layer < KINETO_LAYERS; layer++)
            kineto_forward(file, layer, sequence + 10 * layer);
        for (int layer = KINETO_LAYERS; layer-- > 0;)
            kineto_backward(file, sequence + 10 * layer);
        for (int r = 0; r < KINETO_RANKS; r++) { /* after what it encloses, as torch has it */
            char name[32];
            snprintf(name, sizeof name, "ProfilerStep#%d", step + 3);
            const int64_t start_ns = 5000000000 + (int64_t)step * KINETO_STEP_NS;
            kineto_event(&file[r], "user_annotation", name, KINETO_MAIN, start_ns,
                         (job->on_gpu ? file[r].host_ns : file[r].now_ns) + 1000,
                         "\"External id\": 1");
        }
    }
    for (int r = 0; r < KINETO_RANKS; r++)
        kineto_close(&file[r]);
}
