/* Ranks as plain processes: each gets its environment, does something and says how it went. */
#pragma once

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

#include "reference/comm/comm.h"
#include "tests/double/nccl/double.h"
#include "tests/double/nccl/queue_device.h"
#include "tests/errors.h"

enum { MOST_RANKS = 4, MEETING_S = 60 };

struct answer {
    int code;
    char text[768]; /* of the error, or what the body wrote */
};

/* One rank: what it is told, and what it does. */
struct rank {
    int rank, ranks;
    struct mp_nccl_settings settings;
    struct mp_cuda_gpu gpu;
    struct mp_device *device;
    struct mp_comm *comm;
    struct mp_error error;
    struct answer answer;
};

struct process {
    pid_t pid;
    int pipe;
};

static inline void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Every GPU has a number of its own and the same name until a body says otherwise. */
static inline struct rank rank_of(int rank, int ranks) {
    struct rank made = {.rank = rank, .ranks = ranks};
    set_number("RANK", rank);
    set_number("WORLD_SIZE", ranks);
    set_number("LOCAL_WORLD_SIZE", ranks);
    snprintf(made.gpu.name, sizeof made.gpu.name, "NVIDIA H200");
    made.gpu.uuid[0] = (unsigned char)(rank + 1);
    made.settings = (struct mp_nccl_settings){
        .ordinal = rank, .piece_bytes = 4096, .meeting_s = MEETING_S, .patience_s = 120};
    return made;
}

static inline struct nccl_double_settings *double_settings(void) {
    void *library = dlopen(getenv("MOEPERF_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    struct nccl_double_settings *(*function)(void);
    void *symbol = library ? dlsym(library, "nccl_double_settings") : NULL;
    memcpy(&function, &symbol, sizeof symbol);
    return function ? function() : NULL;
}

static inline int join(struct rank *me) {
    if (!me->device)
        me->device = queue_device_create((uint64_t)me->rank + 1, 100);
    me->settings.gpu = &me->gpu;
    return mp_comm_nccl_create(&me->settings, me->device, &me->comm, &me->error);
}

static inline void leave(struct rank *me) {
    mp_comm_destroy(me->comm);
    me->comm = NULL;
}

/* Starts a process that runs `body` as that rank. */
static inline struct process start_rank(int rank, int ranks, void (*body)(struct rank *me)) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipes[0]);
        alarm(200); /* a rank that hangs ends, and has not answered */
        struct rank me = rank_of(rank, ranks);
        body(&me);
        me.answer.code = me.answer.code ? me.answer.code : me.error.code;
        if (me.error.code)
            memcpy(me.answer.text, me.error.text, sizeof me.answer.text);
        _exit(write(pipes[1], &me.answer, sizeof me.answer) == (ssize_t)sizeof me.answer ? 0 : 1);
    }
    close(pipes[1]);
    return (struct process){pid, pipes[0]};
}

/* What the rank said; MP_EIO if it ended without a word. */
static inline struct answer hear(struct process process) {
    struct answer answer;
    int status;
    if (read(process.pipe, &answer, sizeof answer) != (ssize_t)sizeof answer)
        answer = (struct answer){MP_EIO, "it ended without an answer"};
    close(process.pipe);
    waitpid(process.pid, &status, 0);
    return answer;
}

static inline void run_ranks(int ranks, void (*body)(struct rank *me), struct answer answers[]) {
    struct process process[MOST_RANKS];
    for (int r = 0; r < ranks; r++)
        process[r] = start_rank(r, ranks, body);
    for (int r = 0; r < ranks; r++)
        answers[r] = hear(process[r]);
}

static inline void assert_says(const struct answer *answer, int code, const char *text) {
    if (answer->code != code || !strstr(answer->text, text))
        fail_msg("%s \"%s\", expected %s with \"%s\"", mp_code_name(answer->code), answer->text,
                 mp_code_name(code), text);
}

static inline void assert_fine(const struct answer *answer) {
    if (answer->code)
        fail_msg("%s", answer->text);
}

/* Ranks that all say the same. */
static inline void assert_all_say(int ranks, void (*body)(struct rank *me), int code,
                                  const char *text) {
    struct answer answer[MOST_RANKS];
    run_ranks(ranks, body, answer);
    for (int r = 0; r < ranks; r++)
        assert_says(&answer[r], code, text);
}

/* A comm that has met is used: all are there and numbers are right. */
static inline void use(struct rank *me) {
    double sum[2] = {me->rank + 1, 0.5};
    if (mp_comm_sum(me->comm, sum, 2, &me->error))
        return;
    if (me->comm->rank != me->rank || me->comm->ranks != me->ranks ||
        sum[0] != me->ranks * (me->ranks + 1) / 2.0 || sum[1] != 0.5 * me->ranks)
        mp_fail(&me->error, MP_EINVAL, "rank %d: a sum of %g", me->rank, sum[0]);
}
