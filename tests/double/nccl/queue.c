/* Calls: checked, gathered in groups, and queued on the stream. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/double/nccl/internal.h"

static struct nccl_double_settings settings;
static char last_failure[512];
struct process process = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int from_environment(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static void read_environment(void) {
    settings.version = from_environment("MOEPERF_DOUBLE_NCCL_VERSION", 22809);
    settings.fail_call = from_environment("MOEPERF_DOUBLE_NCCL_FAIL", 0);
    settings.fail_group = from_environment("MOEPERF_DOUBLE_NCCL_ASYNC", 0);
    settings.fail_join = from_environment("MOEPERF_DOUBLE_NCCL_JOIN", 0);
    settings.delay_us = from_environment("MOEPERF_DOUBLE_NCCL_DELAY", 0);
    settings.processors = from_environment("MOEPERF_DOUBLE_NCCL_PROCESSORS", 132);
    settings.in_turn = from_environment("MOEPERF_DOUBLE_NCCL_IN_TURN", 0);
}

struct nccl_double_settings *nccl_double_settings(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return &settings;
}

int fail(struct ncclComm *comm, int result, const char *sentence, ...) {
    char *text = comm ? comm->text : last_failure;
    va_list arguments;
    va_start(arguments, sentence);
    vsnprintf(text, sizeof last_failure, sentence, arguments);
    va_end(arguments);
    return result;
}

int ncclGetVersion(int *version) {
    *version = nccl_double_settings()->version;
    return SUCCESS;
}

const char *ncclGetErrorString(int result) {
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "operation in progress"};
    return result >= 0 && result < 8 ? text[result] : "unknown result code";
}

const char *ncclGetLastError(struct ncclComm *comm) {
    return comm ? comm->text : last_failure;
}

int ncclCommGetAsyncError(struct ncclComm *comm, int *result) {
    *result = atomic_load(&comm->async);
    return SUCCESS;
}

/* ---- the device's side ---- */

static bool (*enqueue)(void *stream, void (*work)(void *), void (*release)(void *), void *);
static bool (*is_device)(const void *memory, size_t bytes);

/* In the program, or in the CUDA double that a back end has brought. */
static void *find(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    void *cuda = function ? NULL : dlopen("libcuda_double.so", RTLD_NOW | RTLD_NOLOAD);
    return cuda ? dlsym(cuda, name) : function;
}

static void find_device(void) {
    void *function = find("cuda_double_enqueue");
    memcpy(&enqueue, &function, sizeof function);
    function = find("cuda_double_is_device");
    memcpy(&is_device, &function, sizeof function);
}

static bool have_device(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_device);
    return enqueue && is_device;
}

/* ---- groups ---- */

/* Of the calling thread. */
static _Thread_local struct {
    int depth, failed, operations;
    struct ncclComm *comm;
    void *stream;
    struct operation *operation;
} open_group;

static uint64_t draw(struct ncclComm *comm) {
    comm->random = comm->random * 6364136223846793005u + 1442695040888963407u;
    return comm->random >> 33;
}

static void take_a_number(struct group *group) {
    pthread_mutex_lock(&process.lock);
    struct group **link = &process.group;
    while (*link)
        link = &(*link)->next;
    *link = group;
    pthread_mutex_unlock(&process.lock);
}

static int queue_group(void) {
    size_t bytes = (size_t)open_group.operations * sizeof(struct operation);
    struct ncclComm *comm = open_group.comm;
    struct group *group = malloc(sizeof *group + bytes);
    if (!group)
        return fail(comm, SYSTEM_ERROR, "no memory for a group");
    *group = (struct group){.comm = comm,
                            .stream = open_group.stream,
                            .fails = settings.fail_group && --settings.fail_group == 0,
                            .operations = open_group.operations};
    if (settings.delay_us)
        group->pause_us = (int)(draw(comm) % (uint64_t)(settings.delay_us + 1));
    memcpy(group->operation, open_group.operation, bytes);
    settings.groups++;
    atomic_fetch_add(&comm->uses, 1);
    take_a_number(group);
    if (enqueue(open_group.stream, run_group, release_group, group))
        return SUCCESS;
    release_group(group);
    return fail(comm, INVALID_ARGUMENT, "the stream is none");
}

int ncclGroupStart(void) {
    nccl_double_settings();
    open_group.depth++;
    return SUCCESS;
}

int ncclGroupEnd(void) {
    if (open_group.depth == 0)
        return fail(NULL, INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
    if (--open_group.depth)
        return SUCCESS;
    int result = open_group.failed;
    if (!result && open_group.operations)
        result = queue_group();
    open_group.failed = open_group.operations = 0;
    open_group.comm = NULL;
    return result;
}

size_t bytes_of(const struct operation *operation) {
    static const size_t size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return operation->count * size[operation->type];
}

static int check_memory(struct ncclComm *comm, const struct operation *o) {
    size_t bytes = bytes_of(o), all = o->kind == ALL_GATHER ? bytes * (size_t)comm->ranks : bytes;
    bool reads = o->kind != RECEIVE && !(o->kind == BROADCAST && o->rank != comm->rank);
    bool writes = o->kind != SEND && !(o->kind == REDUCE && o->rank != comm->rank);
    if (reads && !is_device(o->from, bytes))
        return fail(comm, INVALID_ARGUMENT, "%zu bytes that are sent are not the device's", bytes);
    if (writes && !is_device(o->to, all))
        return fail(comm, INVALID_ARGUMENT, "%zu bytes that are received are not the device's",
                    all);
    return SUCCESS;
}

static int check(struct ncclComm *comm, const struct operation *o, void *stream) {
    if (!have_device())
        return fail(comm, INVALID_USAGE, "the program has no device with cuda_double_enqueue");
    if (atomic_load(&comm->aborted))
        return fail(comm, INVALID_USAGE, "the communicator was aborted");
    if (settings.fail_call && --settings.fail_call == 0)
        return fail(comm, SYSTEM_ERROR, "a failure\nthat was asked for");
    if (o->type < 0 || o->type > 9 || o->reduction < 0 || o->reduction > 3)
        return fail(comm, INVALID_ARGUMENT, "type %d, operation %d", o->type, o->reduction);
    if (o->rank < 0 || o->rank >= comm->ranks || (o->kind <= RECEIVE && o->rank == comm->rank))
        return fail(comm, INVALID_ARGUMENT, "rank %d of %d with rank %d", comm->rank, comm->ranks,
                    o->rank);
    if (open_group.operations && (open_group.comm != comm || open_group.stream != stream))
        return fail(comm, INVALID_USAGE, "a group with two communicators or streams");
    if (open_group.operations == GROUP_OPERATIONS)
        return fail(comm, INVALID_USAGE, "a group of more than %d operations", GROUP_OPERATIONS);
    return check_memory(comm, o);
}

/* The place of what is called: in the order of collectives, or of messages with the peer. */
static int64_t next_number(const struct operation *o) {
    pthread_mutex_lock(&process.lock);
    int64_t *counter = o->kind == SEND      ? &process.out[o->rank]
                       : o->kind == RECEIVE ? &process.in[o->rank]
                                            : &process.collectives;
    int64_t number = (*counter)++;
    pthread_mutex_unlock(&process.lock);
    return number;
}

static int add(struct ncclComm *comm, struct operation operation, void *stream) {
    ncclGroupStart();
    int result = check(comm, &operation, stream);
    if (!open_group.operation)
        open_group.operation = malloc(GROUP_OPERATIONS * sizeof *open_group.operation);
    if (!result) {
        operation.number = next_number(&operation);
        settings.sends += operation.kind == SEND;
        settings.receives += operation.kind == RECEIVE;
        settings.collectives += operation.kind > RECEIVE;
        open_group.comm = comm;
        open_group.stream = stream;
        open_group.operation[open_group.operations++] = operation;
    } else if (!open_group.failed)
        open_group.failed = result;
    int ended = ncclGroupEnd();
    return result ? result : ended;
}

int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *comm,
             void *stream) {
    return add(comm, (struct operation){SEND, from, NULL, count, type, 0, peer, 0}, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *comm, void *stream) {
    return add(comm, (struct operation){RECEIVE, NULL, to, count, type, 0, peer, 0}, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  struct ncclComm *comm, void *stream) {
    return add(comm, (struct operation){BROADCAST, from, to, count, type, 0, root, 0}, stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int reduction, int root,
               struct ncclComm *comm, void *stream) {
    return add(comm, (struct operation){REDUCE, from, to, count, type, reduction, root, 0}, stream);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int reduction,
                  struct ncclComm *comm, void *stream) {
    return add(comm, (struct operation){ALL_REDUCE, from, to, count, type, reduction, 0, 0},
               stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *comm,
                  void *stream) {
    return add(comm, (struct operation){ALL_GATHER, from, to, count, type, 0, 0, 0}, stream);
}
