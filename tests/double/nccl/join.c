/* Communicators: every pair of ranks has two sockets, one for the data of each direction. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/double/nccl/internal.h"

enum { PATIENCE_S = 60 }; /* of joining for the others */

struct greeting {
    int rank, ranks;
    bool data; /* the one who connects sends data on it */
};

/* The name of a directory that the ranks make when they join. */
int ncclGetUniqueId(mp_nccl_id *id) {
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number)
        return fail(NULL, SYSTEM_ERROR, "no random numbers");
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/tmp/nccl-double-%016llx%016llx",
             (unsigned long long)number[0], (unsigned long long)number[1]);
    return SUCCESS;
}

/* NCCL would start one kernel, which waits for ever while another rank runs the other one. */
static bool take_room(int blocks) {
    pthread_mutex_lock(&process.lock);
    bool fits = process.blocks + blocks <= nccl_double_settings()->processors;
    if (fits) {
        process.communicators++;
        process.blocks += blocks;
    }
    pthread_mutex_unlock(&process.lock);
    return fits;
}

static void give_room(int blocks) {
    pthread_mutex_lock(&process.lock);
    process.blocks -= blocks;
    if (--process.communicators == 0) { /* what comes now is another world */
        process.collectives = 0;
        memset(process.out, 0, sizeof process.out);
        memset(process.in, 0, sizeof process.in);
    }
    pthread_mutex_unlock(&process.lock);
}

void let_go(struct ncclComm *comm) {
    if (atomic_fetch_sub(&comm->uses, 1) != 1)
        return;
    if (comm->blocks)
        give_room(comm->blocks);
    for (int r = 0; comm->peer && r < comm->ranks; r++) {
        if (comm->peer[r].out >= 0)
            close(comm->peer[r].out);
        if (comm->peer[r].in >= 0)
            close(comm->peer[r].in);
    }
    free(comm->peer);
    free(comm);
}

static struct sockaddr_un address_of(const mp_nccl_id *id, int rank) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/%d", id->internal, rank);
    return address;
}

static time_t seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* A lower rank's socket may not be there yet. */
static int reach(const mp_nccl_id *id, int rank, time_t until) {
    struct sockaddr_un address = address_of(id, rank);
    const struct timespec pause = {.tv_nsec = 2000000};
    for (;;) {
        int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (to < 0 || !connect(to, (struct sockaddr *)&address, sizeof address))
            return to;
        close(to);
        if (seconds() > until)
            return -1;
        nanosleep(&pause, NULL);
    }
}

static bool greet_lower(struct ncclComm *comm, const mp_nccl_id *id, time_t until) {
    for (int r = 0; r < comm->rank; r++)
        for (int data = 0; data < 2; data++) {
            struct greeting greeting = {comm->rank, comm->ranks, data};
            int to = reach(id, r, until);
            if (to < 0 || write(to, &greeting, sizeof greeting) != (ssize_t)sizeof greeting)
                return false;
            *(data ? &comm->peer[r].out : &comm->peer[r].in) = to;
        }
    return true;
}

static bool welcome_higher(struct ncclComm *comm, int listener, time_t until) {
    for (int left = 2 * (comm->ranks - 1 - comm->rank); left > 0; left--) {
        struct pollfd poller = {.fd = listener, .events = POLLIN};
        struct greeting greeting;
        if (poll(&poller, 1, (int)(until - seconds() + 1) * 1000) <= 0)
            return false;
        int from = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (from < 0 || read(from, &greeting, sizeof greeting) != (ssize_t)sizeof greeting ||
            greeting.ranks != comm->ranks)
            return false;
        *(greeting.data ? &comm->peer[greeting.rank].in : &comm->peer[greeting.rank].out) = from;
    }
    return true;
}

static bool connect_all(struct ncclComm *comm, const mp_nccl_id *id, int listener) {
    time_t until = seconds() + PATIENCE_S;
    struct sockaddr_un address = address_of(id, comm->rank);
    if (mkdir(id->internal, 0700) && errno != EEXIST)
        return false;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) ||
        listen(listener, 2 * comm->ranks))
        return false;
    bool met = greet_lower(comm, id, until) && welcome_higher(comm, listener, until);
    unlink(address.sun_path);
    rmdir(id->internal); /* the last one to go succeeds */
    for (int r = 0; met && r < comm->ranks; r++)
        if (r != comm->rank) {
            fcntl(comm->peer[r].in, F_SETFL, O_NONBLOCK);
            fcntl(comm->peer[r].out, F_SETFL, O_NONBLOCK);
        }
    return met;
}

/* Blocks of a kernel; 0 if the settings are none. */
static int blocks_of(const struct mp_nccl_config *config) {
    if (config->size != sizeof *config || config->magic != MP_NCCL_CONFIG_MAGIC ||
        config->version != MP_NCCL_OLDEST)
        return 0;
    if (config->most_blocks == MP_NCCL_UNDEFINED)
        return MOST_BLOCKS;
    return config->most_blocks >= 1 && config->most_blocks <= MOST_BLOCKS ? config->most_blocks : 0;
}

int ncclCommInitRankConfig(struct ncclComm **out, int ranks, mp_nccl_id id, int rank,
                           struct mp_nccl_config *config) {
    const int blocks = blocks_of(config);
    if (nccl_double_settings()->fail_join)
        return fail(NULL, SYSTEM_ERROR, "a failure that was asked for");
    if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks || !blocks)
        return fail(NULL, INVALID_ARGUMENT, "rank %d of %d, or settings", rank, ranks);
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return fail(NULL, SYSTEM_ERROR, "no memory for a communicator");
    if (!take_room(blocks)) {
        free(comm);
        return fail(NULL, INVALID_USAGE, "kernels of all communicators do not fit the GPU");
    }
    comm->blocks = blocks;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->random = (uint64_t)time(NULL) * 1000003u + (uint64_t)rank;
    atomic_store(&comm->uses, 1);
    comm->peer = malloc((size_t)ranks * sizeof *comm->peer);
    for (int r = 0; r < ranks; r++)
        comm->peer[r] = (struct peer){-1, -1};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool met = connect_all(comm, &id, listener);
    close(listener);
    if (!met) {
        let_go(comm);
        return fail(NULL, SYSTEM_ERROR, "rank %d of %d did not meet all others", rank, ranks);
    }
    *out = comm;
    return SUCCESS;
}

int ncclCommDestroy(struct ncclComm *comm) {
    const struct timespec pause = {.tv_nsec = 100000};
    while (atomic_load(&comm->uses) > 1 && !atomic_load(&comm->async))
        nanosleep(&pause, NULL);
    nccl_double_settings()->destroys++;
    atomic_store(&comm->aborted, 1);
    let_go(comm);
    return SUCCESS;
}

int ncclCommAbort(struct ncclComm *comm) {
    nccl_double_settings()->aborts++;
    atomic_store(&comm->aborted, 1);
    pthread_mutex_lock(&process.lock);
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
    for (int r = 0; r < comm->ranks; r++) { /* others notice */
        if (comm->peer[r].out >= 0)
            shutdown(comm->peer[r].out, SHUT_RDWR);
        if (comm->peer[r].in >= 0)
            shutdown(comm->peer[r].in, SHUT_RDWR);
    }
    let_go(comm);
    return SUCCESS;
}
