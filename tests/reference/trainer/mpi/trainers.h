/* Trainers of all ranks, for tests that run under mpirun. */
#pragma once

#include "reference/base/random.h"
#include "reference/trainer/internal.h"
#include "tests/code_name.h"
#include "tests/reference/trainer/settings.h"
#include "tests/reference/trainer/updates.h"

TEST_END(trainer, struct mp_trainer *, mp_trainer_destroy(*it))

static struct mp_comm *world, *alone;          /* of all ranks; of each for itself */
static uint64_t seed;                          /* the same on every rank */
static const struct mp_system *further_system; /* registered beside the others; may be NULL */

/* Where trainers of all ranks run if not on processors: a comm and a device for such a job. */
static int (*elsewhere)(const struct mp_job *job, struct mp_comm **comm, struct mp_device **device,
                        struct mp_error *error);

/* A failure on one rank ends all of them; the others may be waiting for it.  The call's `error` is
 * declared here. */
#define must(call)                                                                                 \
    do {                                                                                           \
        struct mp_error error = {0};                                                               \
        end_all_unless(call, &error);                                                              \
    } while (0)

static inline void end_all_unless(int code, const struct mp_error *error) {
    if (!code)
        return;
    print_error("rank %d of %d: %s: %s\n", world->rank, world->ranks, mp_code_name(code),
                error->text);
    mp_comm_abort(world, 1);
}

/* ---- Choices of one rank, made again on many ----
 *
 * Where two experts are nearly equally likely, rounding decides which of them a token takes, and
 * two curves part there for good.  So one rank notes every choice of its gates, and those that are
 * compared with it take the same ones, after their own have shown to be the same or a close call.
 */

struct choices {
    int32_t *expert; /* [iterations][layers][all tokens][top_k], owned */
    size_t count;
};
static const double CLOSE_CALL = 1e-4; /* between probabilities */

/* Whether those that follow make what updates they can in backward. */
static bool updates_early;

/* What the next trainers do: note into one, follow the other, or neither. */
static struct choices *noted;
static const struct choices *followed;

static struct {
    struct mp_device_operations operations; /* the device's, with the gate below */
    void (*forward)(struct mp_device *, mp_stream, int tokens, int experts, int top_k,
                    const struct mp_gate_rule *rule, const float *logits, const float *bias,
                    const int32_t *forced, float *probability, float *kept, int32_t *choice,
                    float *weight);
    const struct mp_trainer *trainer;
    size_t gates; /* of a trainer that serves, so far */
} replaced;

static inline void note_choices(const int32_t *choice, size_t begin, size_t count) {
    if (noted->count < begin + count) {
        noted->count = begin + count;
        noted->expert = realloc(noted->expert, noted->count * sizeof *choice);
        assert_non_null(noted->expert);
    }
    memcpy(noted->expert + begin, choice, count * sizeof *choice);
}

/* What experts of a token are chosen by: probabilities, or sigmoids with bias. */
struct keys {
    const struct mp_gate_rule *rule;
    const float *probability, *kept, *bias;
    int experts;
};

static inline double key_of(const struct keys *keys, int token, int choice) {
    int expert = mp_choice_expert(choice);
    double key = (double)keys->probability[(size_t)token * (size_t)keys->experts + (size_t)expert];
    if (keys->rule->scores == MP_SCORES_SIGMOID)
        key *= (double)keys->kept[token];
    return keys->bias ? key + (double)keys->bias[expert] : key;
}

static inline double key_of_group(const struct keys *keys, int token, int group) {
    int size = keys->experts / keys->rule->groups;
    double sum = 0, last = INFINITY;
    for (int i = 0; i < keys->rule->group_best && i < size; i++) {
        double best = -INFINITY;
        for (int e = group * size; e < (group + 1) * size; e++)
            if (key_of(keys, token, e) < last)
                best = fmax(best, key_of(keys, token, e));
        sum += last = best;
    }
    return sum;
}

/* Whether rounding decides if a token takes a choice at all: its probability, or what its second
 * one's chance exceeds the number by that was drawn for it. */
static inline bool is_nearly_left(const struct keys *keys, int token, int first, int choice) {
    const struct mp_gate_rule *rule = keys->rule;
    double own = key_of(keys, token, choice), excess = own - (double)rule->least_weight;
    uint64_t number = (uint64_t)(rule->first_token + token);
    if (rule->random_second)
        excess = 2 * own / (own + key_of(keys, token, first)) -
                 (double)(mp_random_bits(rule->seed, 0, number) >> 41) / (1 << 23);
    return fabs(excess) <= CLOSE_CALL;
}

/* The same, or so nearly equal that rounding decides: experts, or their groups. */
static inline bool is_close_call(const struct keys *keys, int token, int own, int taken) {
    if (fabs(key_of(keys, token, own) - key_of(keys, token, taken)) <= CLOSE_CALL)
        return true;
    if (!keys->rule->groups)
        return false;
    int size = keys->experts / keys->rule->groups;
    double apart = key_of_group(keys, token, own / size) - key_of_group(keys, token, taken / size);
    return own / size != taken / size && fabs(apart) <= CLOSE_CALL;
}

static inline bool has(const int32_t *choice, int top_k, int expert) {
    for (int j = 0; j < top_k; j++)
        if (choice[j] == expert)
            return true;
    return false;
}

/* Whether rounding may have decided who has an expert: another token of the sequence is nearly as
 * likely to have it, or this one another expert. */
static inline bool is_close_match(const struct keys *keys, int token, int expert) {
    int together = keys->rule->together, first = token - token % together;
    double own = key_of(keys, token, expert);
    for (int t = first; t < first + together; t++)
        if (t != token && fabs(key_of(keys, t, expert) - own) <= CLOSE_CALL)
            return true;
    for (int e = 0; e < keys->experts; e++)
        if (e != expert && fabs(key_of(keys, token, e) - own) <= CLOSE_CALL)
            return true;
    return false;
}

/* Whether it may have decided that a token has room for another expert: for one of those that it
 * has on one rank alone. */
static inline bool is_nearly_free(const struct keys *keys, int token, const int32_t *own,
                                  const int32_t *taken, int top_k) {
    for (int j = 0; j < top_k; j++)
        if (taken[j] >= 0 && !has(own, top_k, taken[j]) && is_close_match(keys, token, taken[j]))
            return true;
    return false;
}

/* The same of choices that tokens make together, whatever their order.  A bid that is a close call
 * may move any tokens of an auction, to a sum that is nearly as good. */
static inline void check_matches(const int32_t *own, const int32_t *taken, int tokens, int top_k,
                                 const struct keys *keys) {
    int together = keys->rule->together;
    bool auction = keys->rule->matching == MP_MATCH_AUCTION;
    double slack = together * (double)keys->rule->accuracy;
    for (int first = 0; first < tokens; first += together) {
        double apart = 0;
        bool same = true;
        for (int i = first * top_k; i < (first + together) * top_k; i++) {
            int token = i / top_k;
            apart += own[i] < 0 ? 0 : key_of(keys, token, own[i]);
            apart -= taken[i] < 0 ? 0 : key_of(keys, token, taken[i]);
            const int32_t *mine = own + token * top_k, *theirs = taken + token * top_k;
            same = same && (own[i] < 0 || has(theirs, top_k, own[i]) ||
                            (!auction && (is_close_match(keys, token, own[i]) ||
                                          is_nearly_free(keys, token, mine, theirs, top_k))));
        }
        if (same || (auction && fabs(apart) <= slack))
            continue;
        print_error("rank %d: tokens %d to %d don't have the experts that they have on one rank, "
                    "and probabilities are %.3g apart\n",
                    world->rank, first, first + together - 1, apart);
        mp_comm_abort(world, 1);
    }
}

static inline void check_choices(const int32_t *own, const int32_t *taken, int routes, int top_k,
                                 const struct keys *keys) {
    for (int i = 0; i < routes; i++) {
        int token = i / top_k;
        bool same_side = (own[i] < 0) == (taken[i] < 0);
        if (is_close_call(keys, token, own[i], taken[i]) &&
            (same_side || is_nearly_left(keys, token, taken[token * top_k], taken[i])))
            continue;
        print_error("rank %d: a gate chose expert %d with %.9g, on one rank %d, which has %.9g\n",
                    world->rank, own[i], key_of(keys, token, own[i]), taken[i],
                    key_of(keys, token, taken[i]));
        mp_comm_abort(world, 1);
    }
}

static inline void gate_of_one_rank(struct mp_device *device, mp_stream stream, int tokens,
                                    int experts, int top_k, const struct mp_gate_rule *rule,
                                    const float *logits, const float *bias, const int32_t *forced,
                                    float *probability, float *kept, int32_t *choice,
                                    float *weight) {
    const struct mp_trainer *trainer = replaced.trainer;
    const struct mp_model *model = &trainer->model;
    size_t routes = (size_t)tokens * (size_t)top_k, layer = 0;
    replaced.forward(device, stream, tokens, experts, top_k, rule, logits, bias, forced,
                     probability, kept, choice, weight);
    trainer->device->operations->stream_synchronize(device, stream);
    if (trainer->spans.validating)
        return;
    while (model->state[layer].probability != probability)
        layer++;
    size_t turn = (size_t)trainer->iteration * (size_t)model->shape.layers + layer;
    if (model->shape.serves) /* where layers share memory, and a cache is filled first */
        turn = replaced.gates++;
    size_t begin = (turn * (size_t)trainer->comm->ranks + (size_t)trainer->comm->rank) * routes;
    if (noted) {
        note_choices(choice, begin, routes);
        return;
    }
    const int32_t *taken = followed->expert + begin;
    const struct keys keys = {rule, probability, kept, bias, experts};
    assert_true(begin + routes <= followed->count);
    if (rule->matching)
        check_matches(choice, taken, tokens, top_k, &keys);
    else
        check_choices(choice, taken, (int)routes, top_k, &keys);
    replaced.forward(device, stream, tokens, experts, top_k, rule, logits, bias, taken, probability,
                     kept, choice, weight);
}

static inline void replace_gate(struct mp_trainer *trainer) {
    replaced.operations = *trainer->device->operations;
    replaced.forward = replaced.operations.gate_forward;
    if (updates_early)
        update_in_backward(&replaced.operations);
    replaced.operations.gate_forward = gate_of_one_rank;
    replaced.trainer = trainer;
    replaced.gates = 0;
    trainer->device->operations = &replaced.operations;
}

/* A new file that all ranks of this run know, and no other run, whatever its seed. */
static inline void name_file(char path[64], const char *name) {
    static int files;
    int process = (int)getpid();
    must(mp_comm_broadcast(world, &process, sizeof process, 0, &error));
    snprintf(path, 64, "/tmp/moeperf-%s-%d-%d", name, process, files++);
}

/* `settings` win over the common ones.  comm: world or alone.  NULL, with the error, for a job that
 * is refused. */
static inline struct mp_trainer *try_trainer(struct mp_comm *comm, const struct mp_text *text,
                                             const char *settings, struct mp_error *error) {
    char all[2 * MOST_SETTINGS];
    struct mp_job_file file;
    struct mp_trainer *trainer = NULL;
    struct mp_device *device = NULL;
    snprintf(all, sizeof all,
             "layers=2 width=32 heads=2 experts=8 expert-width=48 sequence=16 batch=8 text=- "
             "check-plans=yes bandwidth=1e9 expert-rate=2e9 non-moe-seconds=1e-4 "
             "learning-rate=3e-3 ranks=%d ranks-per-node=%d seed=%llu %s",
             comm->ranks, comm->ranks > 2 ? comm->ranks / 2 : 1, (unsigned long long)(seed >> 2),
             settings);
    *error = (struct mp_error){0};
    if (!create_job(&file, all, further_system, error) &&
        (!elsewhere || comm == alone || !elsewhere(&file.job, &comm, &device, error)))
        mp_trainer_create(&file, comm, device, text, &trainer, error);
    mp_job_file_destroy(&file);
    if (trainer && (noted || followed))
        replace_gate(trainer);
    return trainer;
}

static inline void refuses_trainer(struct mp_comm *comm, const char *settings, int code,
                                   const char *words) {
    struct mp_error error;
    assert_null(try_trainer(comm, NULL, settings, &error));
    assert_int_equal(error.code, code);
    assert_contains(error.text, words);
}

static inline struct mp_trainer *create_trainer(struct mp_comm *comm, const struct mp_text *text,
                                                const char *settings) {
    struct mp_error error;
    struct mp_trainer *trainer = try_trainer(comm, text, settings, &error);
    end_all_unless(error.code, &error);
    return trainer;
}

/* A step on random tokens, of `kinds` that change with the iterations, and their successors: the
 * same sequences, whatever the number of ranks. */
static inline struct mp_trainer_result random_step(struct mp_trainer *trainer, uint64_t kinds) {
    enum { MOST_TOKENS = 1024 };
    int32_t token[MOST_TOKENS], target[MOST_TOKENS];
    int tokens = trainer->model.tokens, before = trainer->comm->rank * tokens;
    int64_t iteration = trainer->iteration;
    struct mp_trainer_result result;
    assert_true(tokens <= MOST_TOKENS);
    for (int i = 0; i < tokens; i++) {
        uint64_t at = (uint64_t)(iteration * trainer->comm->ranks * tokens + before + i);
        token[i] = (int32_t)(mp_random_below(seed, 1, at, kinds) * (uint64_t)(iteration / 4 + 1) %
                             MP_VOCABULARY);
        target[i] = (token[i] * 7 + 3) % MP_VOCABULARY;
    }
    must(mp_trainer_step_on(trainer, token, target, &result, &error));
    return result;
}

/* A text of letters that follow from the last one, with surprises. */
static inline void random_text(unsigned char byte[], int size) {
    uint64_t state = seed;
    for (int i = 0; i < size; i++)
        byte[i] = (unsigned char)(i && test_random_int(&state, 0, 3)
                                      ? (byte[i - 1] * 5 + i / 512 + 7) % 32
                                      : test_random_int(&state, 0, 31));
}

/* Losses of steps on random tokens, with what balances loads. */
static inline void losses_of(struct mp_comm *comm, const char *settings, uint64_t kinds, int steps,
                             double loss[]) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(comm, NULL, settings);
    for (int i = 0; i < steps; i++) {
        struct mp_trainer_result result = random_step(trainer, kinds);
        loss[i] = result.loss + result.auxiliary_loss;
    }
}

/* Gives every rank what rank 0 has noted. */
static inline void share_choices(struct choices *choices) {
    must(mp_comm_broadcast(world, &choices->count, sizeof choices->count, 0, &error));
    if (world->rank > 0)
        choices->expert = realloc(choices->expert, choices->count * sizeof *choices->expert);
    assert_non_null(choices->expert);
    must(mp_comm_broadcast(world, choices->expert, choices->count * sizeof *choices->expert, 0,
                           &error));
}

static inline void forget_choices(struct choices *choices) {
    free(choices->expert);
    *choices = (struct choices){0};
    followed = NULL;
}

TEST_END(choices, struct choices, forget_choices(it))

/* Every rank has its world and the same seed; false, after a message: there is none. */
static inline bool join_world(void) {
    struct mp_error error = {0};
    if (mp_comm_mpi_create(NULL, &world, &error) || mp_comm_self_create(&alone, &error)) {
        print_error("%s\n", error.text);
        return false;
    }
    if (world->rank == 0)
        seed = test_seed();
    return mp_comm_broadcast(world, &seed, sizeof seed, 0, NULL) == MP_OK;
}

/* A main's value: a rank that has seen a failure ends all. */
static inline int leave_world(int failures) {
    if (failures)
        mp_comm_abort(world, 1);
    mp_comm_destroy(alone);
    mp_comm_destroy(world);
    return 0;
}

#ifndef OWN_MAIN /* of a program that makes its cases of the world's size */
int main(int words, char **word) {
    if (!join_world())
        return 1;
    if (words > 1)
        cmocka_set_test_filter(word[1]);
    return leave_world(test_run());
}
#endif
