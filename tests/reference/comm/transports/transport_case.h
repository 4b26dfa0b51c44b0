/* Set-up of tests of every transport: for memory of the host, and for that of a deferred device,
 * here one whose streams are threads.  They run once per rank under mpirun; the first argument says
 * which transport: "self" (one rank), "host" (mpi), "mpi" (staged), "mpi-direct", "trees" or
 * "broadcasts" (both nccl, on its double). */
#pragma once

#include "tests/double/nccl/queue_device.h"
#include "tests/reference/comm/sparse_case.h"

enum { PIECE = 64 << 10, PAUSE_US = 300 };

static struct mp_comm *world;    /* mpi, memory of the host: what tests say to each other */
static struct mp_comm *comm;     /* under test */
static struct mp_device *device; /* NULL: memory is the host's */
static mp_stream own_stream;
static const char *transport_name = "nccl";
static bool by_broadcasts;
static uint64_t shared; /* state of random numbers that are the same on all ranks */
static struct mp_error error;

static inline void assert_ok(int code) {
    if (code != MP_OK)
        fail_msg("%s", error.text);
}

/* ---- memory with a page-locked image; of the host, both are one ---- */

static inline void copy_bytes(mp_stream stream, void *to, const void *from, size_t bytes) {
    if (device)
        device->operations->copy(device, stream, to, from, bytes);
    else
        memmove(to, from, bytes);
}

struct mirror {
    char *host, *device;
    size_t bytes;
};

static inline struct mirror mirror_create(size_t bytes) {
    if (!device) {
        char *memory = malloc(bytes + 1);
        assert_non_null(memory);
        return (struct mirror){memory, memory, bytes};
    }
    struct mirror mirror = {device->operations->host_allocate(device, bytes + 1),
                            device->operations->allocate(device, bytes + 1), bytes};
    assert_non_null(mirror.host);
    assert_non_null(mirror.device);
    return mirror;
}

static inline void mirror_destroy(struct mirror *mirror) {
    if (!device) {
        free(mirror->host);
        return;
    }
    device->operations->host_release(device, mirror->host);
    device->operations->release(device, mirror->device);
}

TEST_END(mirror, struct mirror, mirror_destroy(it))

/* Queued, not waited for: who reads the device's memory too early reads something else. */
static inline void mirror_push(const struct mirror *mirror, mp_stream stream) {
    copy_bytes(stream, mirror->device, mirror->host, mirror->bytes);
}

static inline void mirror_pull(const struct mirror *mirror, mp_stream stream) {
    copy_bytes(stream, mirror->host, mirror->device, mirror->bytes);
}

/* Its memory on the device is the caller's again. */
static inline void mirror_zero(const struct mirror *mirror, mp_stream stream) {
    if (device)
        device->operations->zero(device, stream, mirror->device, mirror->bytes);
    else
        memset(mirror->device, 0, mirror->bytes);
}

static inline void settle(mp_stream stream) {
    if (!device)
        return;
    device->operations->stream_synchronize(device, stream);
    if (device->error.code)
        fail_msg("%s", device->error.text);
}

/* ---- ranks ---- */

static inline int create_comm(const char *transport) {
    if (!strcmp(transport, "self")) {
        transport_name = "self";
        return mp_comm_self_create(&comm, &error);
    }
    if (!device || !strncmp(transport, "mpi", 3)) {
        transport_name = "mpi";
        /* Here MPI does take what a device of threads calls its memory. */
        setenv("MOEPERF_MPI_CUDA", strcmp(transport, "mpi-direct") ? "0" : "1", 1);
        return mp_comm_mpi_create(device, &comm, &error);
    }
    by_broadcasts = !strcmp(transport, "broadcasts");
    struct mp_cuda_gpu gpu = {.name = "NVIDIA H200"};
    memcpy(gpu.uuid, &world->rank, sizeof world->rank);
    gpu.uuid[15] = 1;
    const struct mp_nccl_settings settings = {
        .bootstrap = world,
        .counts_over_nccl = by_broadcasts,
        .ordinal = world->rank,
        .gpu = &gpu,
        .gather = by_broadcasts ? MP_NCCL_BROADCASTS : MP_NCCL_TREES,
        .piece_bytes = PIECE,
        .patience_s = 300,
    };
    return mp_comm_nccl_create(&settings, device, &comm, &error);
}

/* The program. */
int main(int arguments, char **argument) {
    const char *transport = arguments > 1 ? argument[1] : "trees";
    if (mp_comm_mpi_create(NULL, &world, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 2;
    }
    shared = world->rank == 0 ? test_seed() : 0;
    int failed = mp_comm_broadcast(world, &shared, sizeof shared, 0, &error);
    /* A rank that went on after a failure would keep the others waiting. */
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    if (strcmp(transport, "host") != 0 && strcmp(transport, "self") != 0)
        device = queue_device_create(shared + (uint64_t)world->rank * 7919, PAUSE_US);
    if (!failed && device)
        failed = device->operations->stream_create(device, 0, &own_stream, &error);
    if (!failed)
        failed = create_comm(transport);
    if (!failed)
        failed = test_run();
    if (failed) {
        fprintf(stderr, "rank %d failed. %s\n", world->rank, error.text);
        mp_comm_abort(world, 1);
    }
    mp_comm_destroy(comm);
    if (device) {
        device->operations->stream_destroy(device, own_stream);
        device->operations->destroy(device);
    }
    int leaked = queue_device_live();
    if (leaked) {
        fprintf(stderr, "rank %d: %d things of the device were not given back\n", world->rank,
                leaked);
        mp_comm_abort(world, 1);
    }
    mp_comm_destroy(world);
    return 0;
}

/* ---- sparse cases on the device ---- */

/* Values of a case in both memories, and where chunks are on the device; the comm has its nodes. */
struct sparse_memory {
    struct mirror mirror;
    float *host[CASE_EXPERTS], *chunk[CASE_EXPERTS];
};

static inline struct sparse_memory sparse_memory_create(const struct sparse_case *c) {
    mp_comm_set_nodes(comm, c->ranks_per_node);
    struct sparse_memory made = {.mirror = {0}};
    size_t floats = (size_t)c->experts * (c->bytes / sizeof(float) + 1) + 1;
    float *values = case_memory(c, comm->rank, made.host);
    made.mirror = mirror_create(floats * sizeof *values);
    memcpy(made.mirror.host, values, floats * sizeof *values);
    for (int e = 0; e < c->experts; e++) {
        if (!made.host[e])
            continue;
        ptrdiff_t at = made.host[e] - values;
        made.host[e] = (float *)made.mirror.host + at;
        made.chunk[e] = (float *)made.mirror.device + at;
    }
    free(values);
    return made;
}

TEST_END(sparse_memory, struct sparse_memory, mirror_destroy(&it->mirror))

/* Experts that all ranks hold are summed by NCCL itself in an order of its own. */
static inline void check_reduced(const struct sparse_case *c, float *const chunk[]) {
    float *kept[CASE_EXPERTS];
    for (int e = 0; e < c->experts; e++) {
        int child[CASE_RANKS][2], members = 0;
        for (int r = 0; r < c->ranks; r++)
            members += c->holds[e][r];
        case_children(c, e, child);
        kept[e] = chunk[e];
        if (!by_broadcasts || members < c->ranks || members < 3 || c->owner[e] != comm->rank)
            continue;
        kept[e] = NULL;
        for (size_t i = 0; i < c->bytes / sizeof(float); i++)
            assert_within(chunk[e][i], case_subtree(c, e, child, comm->rank, i),
                          1e-6 * (double)members);
    }
    struct sparse_case rest = *c;
    for (int e = 0; e < c->experts; e++)
        if (!kept[e] && c->owner[e] == comm->rank)
            rest.owner[e] = -1; /* checked already */
    case_check_reduced(&rest, comm->rank, kept);
}
