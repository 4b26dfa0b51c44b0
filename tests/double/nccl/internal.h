/* Inside of the NCCL double: communicators, operations, groups. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/comm/nccl/library.h"
#include "tests/double/nccl/double.h"

enum result {
    SUCCESS = 0,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6
};

enum kind { SEND, RECEIVE, BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER };

struct peer {
    int out, in; /* data there, acknowledgements back; and the other way round */
};

struct ncclComm {
    int rank, ranks;
    struct peer *peer; /* [ranks] */
    atomic_int async, aborted, uses;
    int blocks; /* of its kernels; 0: it has not joined */
    uint64_t random;
    char text[512]; /* of the last failure */
};

struct operation {
    enum kind kind;
    const void *from;
    void *to;
    size_t count;
    int type, reduction;
    int rank;       /* peer or root */
    int64_t number; /* of a collective, or of a message between two ranks */
};

enum { GROUP_OPERATIONS = 1 << 16, MOST_RANKS = 64, MOST_BLOCKS = 32 };

struct group {
    struct group *next; /* called after this one */
    struct ncclComm *comm;
    void *stream;
    bool fails;
    int pause_us;
    int operations;
    struct operation operation[]; /* [operations] */
};

/* What the communicators of a process share. */
struct process {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int communicators, blocks;
    int64_t collectives, out[MOST_RANKS], in[MOST_RANKS]; /* called so far */
    struct group *group;                                  /* in the order of calls */
};
extern struct process process;

int fail(struct ncclComm *comm, int result, const char *sentence, ...)
    __attribute__((format(printf, 3, 4)));
size_t bytes_of(const struct operation *operation);
void let_go(struct ncclComm *comm); /* the last use frees it */
void run_group(void *group);        /* on the stream's thread */
void release_group(void *group);
