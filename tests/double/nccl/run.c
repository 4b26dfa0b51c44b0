/* A group on its stream: all its sends and receives at once, then what follows from them. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/double/nccl/internal.h"

/* What a message says of itself; the receiver expects the same. */
struct label {
    int32_t kind, type, reduction, root;
    int64_t number;
    uint64_t bytes;
};

/* One message to or from a peer, in the order of the group. */
struct part {
    struct part *next;
    struct label label;
    char *memory;
    size_t done; /* of label and memory together */
};

struct line {
    struct part *out, *in; /* what is left, oldest first */
    struct part **out_end, **in_end;
    int unanswered; /* sends whose receiver has not got them */
    struct label arriving;
};

struct run {
    struct ncclComm *comm;
    struct group *group;
    struct line *line; /* [ranks] */
    char **scratch;    /* [operations] of reductions: what every rank gave */
};

static int64_t left_of(const struct line *line) {
    return (line->out != NULL) + (line->in != NULL) + line->unanswered;
}

static struct label label_of(const struct operation *o) {
    bool alone = o->kind <= RECEIVE;
    return (struct label){.kind = alone ? SEND : (int32_t)o->kind,
                          .type = alone ? 0 : o->type,
                          .reduction = o->reduction,
                          .root = alone ? 0 : o->rank,
                          .number = o->number,
                          .bytes = bytes_of(o)};
}

static void add_part(struct run *run, const struct operation *o, int peer, const void *memory,
                     bool out) {
    struct line *line = &run->line[peer];
    struct part *part = calloc(1, sizeof *part);
    part->label = label_of(o);
    part->memory = (char *)(uintptr_t)memory;
    struct part ***end = out ? &line->out_end : &line->in_end;
    **end = part;
    *end = &part->next;
}

/* Between this rank and every other one. */
static void add_all(struct run *run, const struct operation *o, const char *from, char *to,
                    size_t step) {
    for (int r = 0; r < run->comm->ranks; r++) {
        if (r == run->comm->rank)
            continue;
        if (from)
            add_part(run, o, r, from, true);
        if (to)
            add_part(run, o, r, to + (size_t)r * step, false);
    }
}

static void prepare(struct run *run, int i) {
    const struct operation *o = &run->group->operation[i];
    const int rank = run->comm->rank;
    const size_t bytes = bytes_of(o);
    if (o->kind == SEND)
        add_part(run, o, o->rank, o->from, true);
    if (o->kind == RECEIVE)
        add_part(run, o, o->rank, o->to, false);
    if (o->kind == BROADCAST && o->rank == rank)
        add_all(run, o, o->from, NULL, 0);
    if (o->kind == BROADCAST && o->rank != rank)
        add_part(run, o, o->rank, o->to, false);
    if (o->kind == ALL_GATHER)
        add_all(run, o, o->from, o->to, bytes);
    if (o->kind != REDUCE && o->kind != ALL_REDUCE)
        return;
    run->scratch[i] = malloc((size_t)run->comm->ranks * bytes + 1);
    memcpy(run->scratch[i] + (size_t)rank * bytes, o->from, bytes);
    const char *own = run->scratch[i] + (size_t)rank * bytes;
    if (o->kind == ALL_REDUCE)
        add_all(run, o, own, run->scratch[i], bytes);
    else if (o->rank == rank)
        add_all(run, o, NULL, run->scratch[i], bytes);
    else
        add_part(run, o, o->rank, own, true);
}

/* ---- moving ---- */

static int broken(struct run *run, int peer) {
    if (errno == EAGAIN || errno == EINTR)
        return SUCCESS;
    return fail(run->comm, REMOTE_ERROR, "rank %d has gone", peer);
}

static int push(struct run *run, int peer) {
    struct line *line = &run->line[peer];
    while (line->out) {
        struct part *part = line->out;
        size_t head = sizeof part->label, whole = head + part->label.bytes;
        const char *from = part->done < head ? (char *)&part->label + part->done
                                             : part->memory + (part->done - head);
        size_t most = part->done < head ? head - part->done : whole - part->done;
        ssize_t done = most ? send(run->comm->peer[peer].out, from, most, MSG_NOSIGNAL) : 0;
        if (done < 0)
            return broken(run, peer);
        part->done += (size_t)done;
        if (part->done < whole)
            continue;
        line->out = part->next;
        line->unanswered++;
        free(part);
    }
    return SUCCESS;
}

static int hear_answers(struct run *run, int peer) {
    char answer[64];
    struct line *line = &run->line[peer];
    while (line->unanswered) {
        size_t most =
            (size_t)line->unanswered < sizeof answer ? (size_t)line->unanswered : sizeof answer;
        ssize_t done = read(run->comm->peer[peer].out, answer, most);
        if (done == 0)
            errno = EPIPE;
        if (done <= 0)
            return broken(run, peer);
        line->unanswered -= (int)done;
    }
    return SUCCESS;
}

static int check_label(struct run *run, int peer, const struct part *part,
                       const struct label *said) {
    const struct label *want = &part->label;
    if (memcmp(said, want, sizeof *want) == 0)
        return SUCCESS;
    return fail(run->comm, INVALID_USAGE,
                "rank %d expects kind %d, %llu bytes, root %d, number %lld from rank %d, which "
                "sends kind %d, %llu bytes, root %d, number %lld",
                run->comm->rank, want->kind, (unsigned long long)want->bytes, want->root,
                (long long)want->number, peer, said->kind, (unsigned long long)said->bytes,
                said->root, (long long)said->number);
}

static int pull(struct run *run, int peer) {
    struct line *line = &run->line[peer];
    while (line->in) {
        struct part *part = line->in;
        size_t head = sizeof part->label, whole = head + part->label.bytes;
        char *to = part->done < head ? (char *)&line->arriving + part->done
                                     : part->memory + (part->done - head);
        size_t most = part->done < head ? head - part->done : whole - part->done;
        ssize_t done = most ? read(run->comm->peer[peer].in, to, most) : 0;
        if (most && done == 0)
            errno = EPIPE;
        if (most && done <= 0)
            return broken(run, peer);
        part->done += (size_t)done;
        int result = part->done == head ? check_label(run, peer, part, &line->arriving) : SUCCESS;
        if (result)
            return result;
        if (part->done < whole)
            continue;
        if (send(run->comm->peer[peer].in, "", 1, MSG_NOSIGNAL) != 1)
            return broken(run, peer);
        line->in = part->next;
        free(part);
    }
    return SUCCESS;
}

static int move(struct run *run) {
    const int ranks = run->comm->ranks;
    struct pollfd *poller = calloc(2 * (size_t)ranks, sizeof *poller);
    int result = SUCCESS;
    while (!result && !atomic_load(&run->comm->aborted)) {
        int64_t left = 0;
        for (int r = 0; r < ranks; r++) {
            const struct line *line = &run->line[r];
            left += left_of(line);
            poller[2 * r] = (struct pollfd){
                .fd = line->out || line->unanswered ? run->comm->peer[r].out : -1,
                .events = (short)((line->out ? POLLOUT : 0) | (line->unanswered ? POLLIN : 0))};
            poller[2 * r + 1] =
                (struct pollfd){.fd = line->in ? run->comm->peer[r].in : -1, .events = POLLIN};
        }
        if (!left)
            break;
        if (poll(poller, 2 * (nfds_t)ranks, 10) <= 0)
            continue;
        for (int r = 0; !result && r < ranks; r++) {
            if (r == run->comm->rank)
                continue;
            result = push(run, r);
            if (!result)
                result = hear_answers(run, r);
            if (!result)
                result = pull(run, r);
        }
    }
    free(poller);
    return result;
}

/* ---- afterwards ---- */

static double combine(int reduction, double a, double b) {
    return reduction == 0   ? a + b
           : reduction == 1 ? a * b
           : reduction == 2 ? (a > b ? a : b)
                            : (a < b ? a : b);
}

/* In the order of ranks, in the arithmetic of the type. */
static void combine_all(const struct operation *o, int ranks, const char *given) {
    const size_t bytes = bytes_of(o);
    for (size_t i = 0; i < o->count; i++) {
        double result = 0;
        for (int r = 0; r < ranks; r++) {
            const char *value = given + (size_t)r * bytes;
            double next = o->type == MP_NCCL_FLOAT32   ? ((const float *)value)[i]
                          : o->type == MP_NCCL_FLOAT64 ? ((const double *)value)[i]
                                                       : ((const uint32_t *)value)[i];
            result = r ? combine(o->reduction, result, next) : next;
            if (o->type == MP_NCCL_FLOAT32)
                result = (float)result;
        }
        if (o->type == MP_NCCL_FLOAT32)
            ((float *)o->to)[i] = (float)result;
        else if (o->type == MP_NCCL_FLOAT64)
            ((double *)o->to)[i] = result;
        else
            ((uint32_t *)o->to)[i] = (uint32_t)result;
    }
}

static void conclude(struct run *run, int i) {
    const struct operation *o = &run->group->operation[i];
    const int rank = run->comm->rank;
    const size_t bytes = bytes_of(o);
    if (o->kind == BROADCAST && o->rank == rank && o->to != o->from)
        memmove(o->to, o->from, bytes);
    if (o->kind == ALL_GATHER)
        memmove((char *)o->to + (size_t)rank * bytes, o->from, bytes);
    if (run->scratch[i] && (o->kind == ALL_REDUCE || o->rank == rank))
        combine_all(o, run->comm->ranks, run->scratch[i]);
}

static void clear(struct run *run) {
    for (int r = 0; r < run->comm->ranks; r++)
        for (int out = 0; out < 2; out++)
            for (struct part *part = out ? run->line[r].out : run->line[r].in, *next; part;
                 part = next) {
                next = part->next;
                free(part);
            }
    for (int i = 0; i < run->group->operations; i++)
        free(run->scratch[i]);
    free(run->scratch);
    free(run->line);
}

static void stand_still(struct ncclComm *comm) {
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!atomic_load(&comm->aborted))
        nanosleep(&pause, NULL);
}

static void wait_for_turn(struct group *group) {
    pthread_mutex_lock(&process.lock);
    while (process.group != group && !atomic_load(&group->comm->aborted))
        pthread_cond_wait(&process.changed, &process.lock);
    pthread_mutex_unlock(&process.lock);
}

void run_group(void *context) {
    struct group *group = context;
    struct ncclComm *comm = group->comm;
    struct run run = {.comm = comm, .group = group};
    const struct timespec pause = {.tv_nsec = (long)group->pause_us * 1000};
    if (nccl_double_settings()->in_turn)
        wait_for_turn(group);
    if (atomic_load(&comm->aborted))
        return;
    nanosleep(&pause, NULL);
    run.line = calloc((size_t)comm->ranks, sizeof *run.line);
    run.scratch = calloc((size_t)group->operations, sizeof *run.scratch);
    for (int r = 0; r < comm->ranks; r++) {
        run.line[r].out_end = &run.line[r].out;
        run.line[r].in_end = &run.line[r].in;
    }
    for (int i = 0; i < group->operations; i++)
        prepare(&run, i);
    int result =
        group->fails ? fail(comm, REMOTE_ERROR, "a failure that was asked for") : move(&run);
    for (int i = 0; !result && !atomic_load(&comm->aborted) && i < group->operations; i++)
        conclude(&run, i);
    clear(&run);
    if (result && !atomic_load(&comm->aborted)) {
        atomic_store(&comm->async, result);
        stand_still(comm);
    }
}

void release_group(void *context) {
    struct group *group = context;
    pthread_mutex_lock(&process.lock);
    struct group **link = &process.group;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_cond_broadcast(&process.changed);
    pthread_mutex_unlock(&process.lock);
    let_go(group->comm);
    free(group);
}
