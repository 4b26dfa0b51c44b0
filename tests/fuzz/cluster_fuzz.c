/* Clusters of arbitrary bytes: the reader ends with a sentence or a cluster that answers sanely. */
#include <math.h>
#include <stdint.h>

#include "harness/cluster/cluster.h"
#include "profiler/record/record.h"
#include "tests/fuzz/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void check_origin(void *context, const char *place, const char *unit,
                         const struct mp_quantity *quantity) {
    (void)context;
    (void)unit;
    expect(quantity->origin && *quantity->origin, place);
    expect(quantity->word || isfinite(quantity->value), place);
}

static void check_ranks(const struct mp_cluster *cluster) {
    int ranks = mp_cluster_ranks(cluster);
    const int some[] = {0, 1 % ranks, ranks / 2, ranks - 1};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            int level = mp_cluster_level_of(cluster, some[i], some[j]);
            expect(level >= 0 && level < cluster->levels, "all ranks are joined");
            expect((level == 0) == (some[i] == some[j]), "only a rank itself is at self");
            expect(ranks % mp_cluster_gates(cluster, level) == 0, "gates have as many ranks each");
            expect(mp_cluster_bandwidth(cluster, level) > 0, "links carry something");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    struct mp_cluster *cluster = NULL;
    struct mp_error error = {0};
    int code = mp_cluster_load(input_file(input, size), &cluster, &error);
    expect_sentence(code, &error);
    if (code)
        return 0;
    mp_cluster_each(cluster, check_origin, NULL);
    check_ranks(cluster);
    for (double tokens = 0.5; tokens < 1e6; tokens *= 3) {
        double share = mp_cluster_share(cluster, MP_BACKWARD, tokens, 2 * tokens);
        expect(share > 0 && share <= 1 + 1e-9, "a share of the peak");
    }
    mp_cluster_destroy(cluster);
    return 0;
}
