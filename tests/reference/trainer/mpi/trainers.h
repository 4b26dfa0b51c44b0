/* Trainers of all ranks, for tests that run under mpirun. */
#ifndef MOEPERF_TESTS_REFERENCE_TRAINER_MPI_TRAINERS_H
#define MOEPERF_TESTS_REFERENCE_TRAINER_MPI_TRAINERS_H

#include <string.h>

#include "baselines/systems.h"
#include "reference/trainer/internal.h"
#include "tests/support.h"

static struct mp_comm *world;
static uint64_t seed;                          /* the same on every rank */
static const struct mp_system *further_system; /* registered beside the others; may be NULL */

/* Where two experts' probabilities are closer than this at the edge of a token's choice, or as its
 * first and second one, which the auxiliary loss tells apart, rounding may decide either way and
 * two curves part for good; a test that compares curves draws its seed again then. */
#define LEAST_MARGIN 4e-7

/* AdamW makes full steps of gradients that are nearly 0, so that in some draws what rounding
 * changes grows to several times that within a few iterations.  How much shows in a second run of
 * the same draw whose first parameters are nudged: margins that may have moved this part of the way
 * to a close call are not safe. */
enum { MARGIN_OVER_NOISE = 8 };
static bool nudged; /* whether trainers begin so */

/* The smallest difference between neighbours among the chosen experts, and between the last chosen
 * one and the first that is not, over all layers and tokens of the last forward. */
static inline double smallest_margin(const struct mp_model *model) {
    double smallest = 1;
    int experts = model->shape.experts, chosen = model->shape.top_k;
    for (int l = 0; l < model->shape.layers; l++)
        for (int t = 0; t < model->tokens; t++) {
            const struct mp_block_state *state = &model->state[l];
            const float *probability = state->probability + (size_t)t * (size_t)experts;
            const int32_t *choice = state->choice + (size_t)t * (size_t)chosen;
            for (int k = 1; k < chosen; k++) {
                double margin = (double)probability[choice[k - 1]] - (double)probability[choice[k]];
                smallest = fmin(smallest, margin);
            }
            for (int e = 0; e < experts; e++) {
                bool is_chosen = false;
                for (int k = 0; k < chosen; k++)
                    is_chosen |= choice[k] == e;
                double margin = (double)probability[choice[chosen - 1]] - (double)probability[e];
                if (!is_chosen && margin < smallest)
                    smallest = margin;
            }
        }
    return smallest;
}

/* Whether no choice of a run's iterations is a matter of rounding: margins of the run, and of the
 * one that was nudged. */
static inline bool choices_are_safe(const double margin[], const double nudged_margin[],
                                    int iterations) {
    double noise = 0;
    for (int i = 0; i < iterations; i++) {
        noise = fmax(noise, fabs(margin[i] - nudged_margin[i]));
        if (margin[i] < fmax(LEAST_MARGIN, MARGIN_OVER_NOISE * noise))
            return false;
    }
    return true;
}

/* Every second parameter to its next neighbour up or down: a rounding's worth. */
static inline void nudge(struct mp_dense *dense) {
    for (size_t i = 0; i < dense->count; i += 2)
        dense->parameter[i] = nextafterf(dense->parameter[i], i % 4 ? 1e9F : -1e9F);
}

/* A failure on one rank ends all of them; the others may be waiting for it. */
static inline void must(int code, const struct mp_error *error) {
    if (!code)
        return;
    print_error("rank %d of %d: %s: %s\n", world->rank, world->ranks, mp_code_name(code),
                error->text);
    mp_comm_abort(world, 1);
}

/* `settings` end with NULL and win over the common ones.  comm: world, or one of a single rank. */
static inline struct mp_trainer *create_trainer(struct mp_comm *comm, const struct mp_text *text,
                                                const char *const settings[]) {
    static const char *const common[] = {"layers=2",
                                         "width=32",
                                         "heads=2",
                                         "experts=8",
                                         "sequence=16",
                                         "batch=8",
                                         "check-plans=yes",
                                         "text=-",
                                         "expert-width=48",
                                         "bandwidth=1e9",
                                         "expert-rate=2e9",
                                         "learning-rate=3e-3",
                                         "non-moe-seconds=1e-4"};
    struct mp_systems systems = {0};
    struct mp_job_file file;
    struct mp_error error = {0};
    struct mp_trainer *trainer = NULL;
    char ranks[32], nodes[32], seeds[48];
    snprintf(ranks, sizeof ranks, "ranks=%d", comm->ranks);
    snprintf(nodes, sizeof nodes, "ranks-per-node=%d", comm->ranks > 2 ? comm->ranks / 2 : 1);
    snprintf(seeds, sizeof seeds, "seed=%llu", (unsigned long long)(seed >> 2));
    const char *own[] = {ranks, nodes, seeds};
    mp_systems_register_all(&systems, &error);
    if (further_system)
        mp_systems_register(&systems, further_system, &error);
    mp_job_file_create(&file, &error);
    for (size_t i = 0; i < sizeof common / sizeof *common && !error.code; i++)
        mp_job_set(&file, common[i], &systems, &error);
    for (size_t i = 0; i < sizeof own / sizeof *own && !error.code; i++)
        mp_job_set(&file, own[i], &systems, &error);
    for (int i = 0; settings[i] && !error.code; i++)
        mp_job_set(&file, settings[i], &systems, &error);
    if (!error.code)
        mp_trainer_create(&file, comm, text, &trainer, &error);
    must(error.code, &error);
    mp_job_file_destroy(&file);
    if (nudged)
        nudge(&trainer->model.dense);
    return trainer;
}

/* Joins the world, shares a seed, runs the tests on every rank. */
#define run_on_all_ranks(name, tests, setup, teardown)                                             \
    do {                                                                                           \
        struct mp_error error_ = {0};                                                              \
        if (mp_comm_mpi_create(NULL, &world, &error_)) {                                           \
            print_error("%s\n", error_.text);                                                      \
            return 1;                                                                              \
        }                                                                                          \
        if (world->rank == 0)                                                                      \
            seed = test_seed();                                                                    \
        must(mp_comm_broadcast(world, &seed, sizeof seed, 0, &error_), &error_);                   \
        int failed_ = cmocka_run_group_tests_name(name, tests, setup, teardown);                   \
        if (failed_)                                                                               \
            mp_comm_abort(world, 1);                                                               \
        mp_comm_destroy(world);                                                                    \
        return 0;                                                                                  \
    } while (0)

#endif
