/* What tests of the network share: clusters, and matrices of several kinds. */
#pragma once

#include "harness/predict/network.h"
#include "tests/harness/predict/ends.h"
#include "tests/harness/predict/machine.h"

enum { MOST_RANKS = 64 };

/* Nodes of `ranks`, with so many cards that they share (pooled: all together), of which a rank gets
 * `limit` bytes/s at most (0: as many as its card carries). */
struct shape {
    int nodes, ranks, ports;
    bool pooled;
    double near, far, near_latency, far_latency, limit;
};

static inline struct mp_cluster *shape_cluster(const struct shape *shape) {
    struct test_machine machine = test_machine_of(shape->nodes, shape->ranks);
    machine.launch = 0;
    machine.bandwidth = shape->near;
    machine.latency = shape->near_latency;
    machine.far_bandwidth = shape->far;
    machine.far_latency = shape->far_latency;
    machine.cards = shape->ports;
    machine.pooled = shape->pooled;
    machine.limit = shape->limit;
    return test_cluster(&machine);
}

/* ---- matrices ---- */

enum kind {
    UNIFORM,
    HOT_RECEIVER,
    HOT_RECEIVERS,
    HOT_SOURCE,
    HOT_NODE,
    ZIPF,
    ZIPF_EACH,
    LOGNORMAL,
    LOGNORMAL_WIDE,
    SPARSE,
    TWO_EACH,
    KINDS
};

static inline double random_normal(uint64_t *seed) {
    double radius = sqrt(-2 * log(1 - test_random_double(seed)));
    return radius * cos(6.283185307179586 * test_random_double(seed));
}

/* Bytes of kind, about `bytes` per rank, whole numbers; nothing on the diagonal. */
static inline void fill_matrix(uint64_t *seed, enum kind kind, const struct shape *shape,
                               double bytes, double matrix[]) {
    int n = shape->nodes * shape->ranks;
    double to[MOST_RANKS], from[MOST_RANKS], sum = 0;
    int hot_node = test_random_int(seed, 0, shape->nodes - 1);
    for (int i = 0; i < n; i++) {
        from[i] = 1;
        to[i] = kind == HOT_NODE && i / shape->ranks == hot_node ? 6 : 1;
        if (kind == ZIPF)
            to[i] = pow(1 + (i * 5 + hot_node) % n, -1.2);
    }
    for (int i = 0; i < 3; i++) {
        int hot = test_random_int(seed, 0, n - 1);
        if (kind == HOT_RECEIVERS || (kind == HOT_RECEIVER && i == 0))
            to[hot] = 1 + n * test_random_double(seed);
        if (kind == HOT_SOURCE && i == 0)
            from[hot] = 1 + n * test_random_double(seed);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double x = from[i] * to[j];
            if (kind == ZIPF_EACH)
                x = pow(test_random_int(seed, 1, n), -1.2);
            else if (kind == LOGNORMAL || kind == LOGNORMAL_WIDE)
                x = exp((kind == LOGNORMAL ? 1 : 2) * random_normal(seed));
            else if (kind == SPARSE)
                x = test_random_double(seed) < 0.2 ? 0.1 + test_random_double(seed) : 0;
            else if (kind == TWO_EACH)
                x = (j - i + n) % n <= 2 || test_random_double(seed) < 1.0 / n
                        ? 0.2 + test_random_double(seed)
                        : 0;
            matrix[i * n + j] = i == j ? 0 : x;
            sum += matrix[i * n + j];
        }
    if (sum == 0) /* nothing drawn, of few */
        matrix[1] = sum = 1;
    for (int i = 0; i < n * n; i++)
        matrix[i] = ceil(matrix[i] * bytes * n / sum);
}

static inline void fill_traffic(struct mp_traffic *traffic, const double matrix[], int n) {
    mp_traffic_clear(traffic);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            mp_traffic_add(traffic, i, j, matrix[i * n + j]);
}

static inline double largest(const double values[], int n) {
    double most = values[0];
    for (int i = 1; i < n; i++)
        most = fmax(most, values[i]);
    return most;
}
