/* Clusters by their figures, for tests. */
#pragma once

#include <sys/mman.h>

#include "harness/cluster/cluster.h"
#include "tests/errors.h"

/* What differs between the tests' clusters. */
struct test_machine {
    int nodes, ranks_per_node;
    double peak; /* of 16 bits; of 32 half of it */
    double memory, memory_bandwidth, launch, bandwidth, far_bandwidth, latency, overlap;
    /* What is 0 or NULL here is as said. */
    double host_bandwidth, host_update; /* not given */
    double self;                        /* half of the memory's bandwidth */
    double far_latency;                 /* twice that in a node */
    int cards;                          /* of a node: 1, pooled; else fixed unless */
    bool pooled;
    double limit;           /* bytes/s of a rank between nodes: not given */
    const char *efficiency; /* lines of the table: one that rises with tokens and width */
    const char *device;     /* more lines, of two blanks and a key: none */
};

static const struct test_machine GOOD_MACHINE = {.nodes = 2,
                                                 .ranks_per_node = 4,
                                                 .peak = 1e14,
                                                 .memory = 80e9,
                                                 .memory_bandwidth = 1e12,
                                                 .launch = 4e-6,
                                                 .bandwidth = 1e11,
                                                 .far_bandwidth = 1e10,
                                                 .latency = 5e-6,
                                                 .overlap = 1,
                                                 .host_bandwidth = 16e9,
                                                 .host_update = 5e10};

static inline void test_number(FILE *out, int indent, const char *key, double value) {
    fprintf(out, "%*s%s: {value: %.17g, assumed: test}\n", indent, "", key, value);
}

static inline void test_number_if(FILE *out, int indent, const char *key, double value) {
    if (value > 0)
        test_number(out, indent, key, value);
}

static inline void test_level(FILE *out, const char *name, double bandwidth, double latency,
                              int ports, bool pooled, double limit) {
    fprintf(out, "  %s:\n    sharing: {value: %s, assumed: test}\n", name,
            pooled ? "pooled" : "fixed");
    test_number(out, 4, "bandwidth", bandwidth);
    test_number(out, 4, "latency", latency);
    test_number(out, 4, "ports", ports);
    test_number_if(out, 4, "rank-bandwidth", limit);
}

static inline void test_write_device(FILE *out, const struct test_machine *machine) {
    fputs("device:\n  name: D\n  peak:\n", out);
    test_number(out, 4, "fp32", machine->peak / 2);
    test_number(out, 4, "fp16", machine->peak);
    test_number(out, 2, "memory", machine->memory);
    test_number(out, 2, "memory-bandwidth", machine->memory_bandwidth);
    test_number(out, 2, "launch", machine->launch);
    test_number(out, 2, "overlap", machine->overlap);
    test_number_if(out, 2, "host-bandwidth", machine->host_bandwidth);
    test_number_if(out, 2, "host-update", machine->host_update);
    fprintf(out, "%s  efficiency:\n%s    assumed: test\n", machine->device ? machine->device : "",
            machine->efficiency ? machine->efficiency
                                : "    tokens: [4, 1024]\n    width: [64, 1024]\n"
                                  "    share: [[0.05, 0.1], [0.5, 0.8]]\n");
}

/* Levels that join nothing are left out. */
static inline struct mp_cluster *test_cluster(const struct test_machine *machine) {
    struct mp_cluster *cluster = NULL;
    const int file = memfd_create("test.yaml", MFD_CLOEXEC);
    FILE *out = fdopen(file, "w");
    assert_non_null(out);
    fputs("description: a test's\n", out);
    test_number(out, 0, "nodes", machine->nodes);
    test_number(out, 0, "ranks-per-node", machine->ranks_per_node);
    test_write_device(out, machine);
    fputs("levels:\n  self:\n", out);
    test_number(out, 4, "bandwidth",
                machine->self > 0 ? machine->self : machine->memory_bandwidth / 2);
    test_number(out, 4, "latency", machine->launch);
    if (machine->ranks_per_node > 1)
        test_level(out, "node", machine->bandwidth, machine->latency, 1, false, 0);
    if (machine->nodes > 1)
        test_level(out, "cluster", machine->far_bandwidth,
                   machine->far_latency > 0 ? machine->far_latency : 2 * machine->latency,
                   machine->cards > 0 ? machine->cards : 1, machine->pooled || !machine->cards,
                   machine->limit);
    fflush(out);
    assert_works(mp_cluster_load(formatted("/proc/self/fd/%d", file), &cluster, &error));
    fclose(out);
    return cluster;
}

/* The gate that a rank's bytes to and from a level go through. */
static inline int test_gate(const struct mp_cluster *cluster, int level, int rank) {
    return rank / (mp_cluster_ranks(cluster) / mp_cluster_gates(cluster, level));
}

/* A good one of this shape, */
static inline struct test_machine test_machine_of(int nodes, int ranks_per_node) {
    struct test_machine machine = GOOD_MACHINE;
    machine.nodes = nodes;
    machine.ranks_per_node = ranks_per_node;
    return machine;
}

/* and of any. */
static inline struct test_machine test_random_machine(uint64_t *random) {
    static const int shape[][2] = {{1, 2}, {2, 2}, {1, 4}, {2, 4}, {4, 2},
                                   {1, 8}, {4, 4}, {1, 3}, {3, 1}, {4, 1}};
    int i = test_random_int(random, 0, sizeof shape / sizeof *shape - 1);
    return test_machine_of(shape[i][0], shape[i][1]);
}
