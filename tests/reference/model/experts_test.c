/* Shards of one rank: slots, copies, limits. */
#include "reference/model/experts.h"

#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

enum { LAYERS = 3, EXPERTS = 8, RANKS = 4, ALL = LAYERS * EXPERTS };
static const struct mp_model_shape shape = {.layers = LAYERS,
                                            .width = 8,
                                            .heads = 2,
                                            .experts = EXPERTS,
                                            .expert_width = 12,
                                            .sequence = 4,
                                            .top_k = 2};
static uint64_t random_state;
static uint64_t seed; /* TEST_SEED */
static struct mp_device *device;

TEST_STEP(open_device) {
    random_state = seed;
    const struct mp_device_limits limits = {
        .attention = {1, 4, 2, 4}, .experts = EXPERTS, .width = 12, .tokens = 16};
    return mp_device_cpu_create(1, &limits, &device, NULL);
}

TEST_STEP(close_device) {
    mp_device_destroy(device);
    return 0;
}

TEST_END(experts, struct mp_experts, mp_experts_destroy(it))

/* Where experts of all layers are. */
struct homes {
    struct mp_placement of[LAYERS];
};

static struct homes create_homes(void) {
    struct homes homes = {0};
    for (int l = 0; l < LAYERS; l++)
        homes.of[l] = placement_of(RANKS, EXPERTS);
    return homes;
}

static void random_owners(int32_t owner[ALL]) {
    for (int i = 0; i < ALL; i++)
        owner[i] = test_random_int(&random_state, 0, RANKS - 1);
}

static bool offloaded; /* what create_owned makes */

/* Experts of a rank whose homes are owners alone. */
static int create_owned(int rank, const int32_t owner[ALL], int slots, int regions, int copies,
                        struct mp_experts *experts, struct mp_error *error) {
    struct homes homes = create_homes();
    const struct mp_experts_layout layout = {.rank = rank,
                                             .ranks = RANKS,
                                             .host = offloaded ? device : NULL,
                                             .slots = slots,
                                             .regions = regions,
                                             .copies = copies};
    for (int l = 0; l < LAYERS; l++)
        mp_placement_set_owners(&homes.of[l], owner + (size_t)l * EXPERTS);
    return mp_experts_create(&shape, device, seed, homes.of, &layout, experts, error);
}

TEST(more_than_its_slots_are_refused) {
    int32_t owner[ALL] = {0};
    AUTO(experts) struct mp_experts experts;
    assert_sentence(create_owned(0, owner, ALL - 2, 1, 0, &experts, &error), MP_ELIMIT,
                    "rank 0 keeps more than 23 experts"); /* with the spare one */
}

/* Random takes and gives against a list of what is owned. */
TEST(slots_are_taken_and_given_back) {
    enum { SLOTS = 5 };
    int32_t owner[ALL];
    AUTO(experts) struct mp_experts experts;
    bool owned[ALL] = {false};
    int held = 0;
    for (int i = 0; i < ALL; i++)
        owner[i] = 1;
    assert_works(create_owned(0, owner, SLOTS, 1, 0, &experts, &error));
    for (int step = 0; step < 2000; step++) {
        int i = test_random_int(&random_state, 0, ALL - 1);
        if (owned[i]) {
            mp_experts_give(&experts, i / EXPERTS, i % EXPERTS);
            owned[i] = false;
            held--;
        } else {
            int slot = mp_experts_take(&experts, i / EXPERTS, i % EXPERTS);
            assert_int_equal(slot >= 0, held < SLOTS + 1); /* the spare one */
            owned[i] = slot >= 0;
            held += owned[i];
        }
        assert_int_equal(experts.held, held);
        bool used[SLOTS + 1] = {false};
        for (int j = 0; j < ALL; j++) {
            assert_int_equal(experts.slot[j] >= 0, owned[j]);
            if (!owned[j])
                continue;
            assert_in_range(experts.slot[j], 0, SLOTS);
            assert_false(used[experts.slot[j]]);
            used[experts.slot[j]] = true;
        }
        assert_memory_equal(used, experts.used, sizeof used);
    }
}

struct places {
    void *parameter[EXPERTS];
    float *gradient[EXPERTS];
};

/* Where a chunk is: a copy's place in the regions, or -1 for a slot. */
static int place_of(const struct mp_experts *experts, const float *parameter,
                    const float *gradient) {
    size_t total =
        (size_t)experts->layout.regions * (size_t)experts->layout.copies * experts->chunk;
    const float *copies = experts->copy_parameter;
    if (parameter < copies || parameter >= copies + total) {
        assert_ptr_equal(gradient - experts->gradient, parameter - experts->parameter);
        return -1;
    }
    ptrdiff_t offset = parameter - copies;
    assert_ptr_equal(gradient - experts->copy_gradient, offset);
    assert_int_equal((size_t)offset % experts->chunk, 0);
    return (int)((size_t)offset / experts->chunk);
}

TEST(copies_find_their_places) {
    for (int round = 0; round < 200; round++) {
        int rank = test_random_int(&random_state, 0, RANKS - 1);
        int regions = test_random_int(&random_state, 1, LAYERS);
        int layer = test_random_int(&random_state, 0, LAYERS - 1);
        const struct mp_topology topology = {RANKS, 2};
        int32_t owner[ALL];
        AUTO(experts) struct mp_experts experts;
        AUTO(plan) struct mp_plan plan;
        struct places places, early;
        random_owners(owner);
        assert_works(create_owned(rank, owner, ALL, regions, EXPERTS, &experts, &error));
        assert_works(mp_plan_create(&topology, EXPERTS, 64, &plan, &error));
        begin_owned(&plan, 0, layer, owner + layer * EXPERTS);
        int wanted = 0, before_gate = test_random_int(&random_state, 0, 6);
        for (int i = 0; i < 12; i++) {
            int expert = test_random_int(&random_state, 0, EXPERTS - 1);
            int to = test_random_int(&random_state, 0, RANKS - 1);
            if (i == before_gate)
                assert_works(
                    mp_experts_locate(&experts, &plan, early.parameter, early.gradient, &error));
            enum mp_stage stage = i < before_gate ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_GATE;
            if (!mp_placement_holds(&plan.during, expert, to)) {
                assert_works(mp_plan_add_copy(&plan, expert, to, stage, &error));
                wanted += to == rank;
            }
        }
        assert_works(mp_experts_locate(&experts, &plan, places.parameter, places.gradient, &error));
        bool used[LAYERS * EXPERTS] = {false};
        int copies = 0;
        for (int e = 0; e < EXPERTS; e++) {
            assert_int_equal(places.parameter[e] != NULL,
                             mp_placement_holds(&plan.during, e, rank));
            if (!places.parameter[e])
                continue;
            int place = place_of(&experts, places.parameter[e], places.gradient[e]);
            assert_int_equal(place < 0, owner[layer * EXPERTS + e] == rank);
            if (early.parameter[e]) /* copies fetched earlier stay where they are */
                assert_ptr_equal(early.parameter[e], places.parameter[e]);
            if (place < 0)
                continue;
            assert_int_equal(place / EXPERTS, layer % regions);
            assert_false(used[place]);
            used[place] = true;
            copies++;
        }
        assert_int_equal(copies, wanted);
    }
}

/* Random experts to `rank`, each with a chance of a half. */
static void send_some(struct mp_plan *plan, int rank) {
    for (int e = EXPERTS - 1; e >= 0; e--)
        if (plan->during.owner[e] != rank && test_random_int(&random_state, 0, 1))
            assert_works(mp_plan_send_ahead(plan, e, rank, &error));
}

/* Copies stay where they were sent, wanted or not, and others take what is left. */
TEST(copies_are_found_where_they_were_sent) {
    for (int round = 0; round < 200; round++) {
        int rank = test_random_int(&random_state, 0, RANKS - 1);
        int layer = test_random_int(&random_state, 0, LAYERS - 1), used = 0, behind = 0;
        const struct mp_topology topology = {RANKS, 2};
        int32_t owner[ALL];
        AUTO(experts) struct mp_experts experts;
        AUTO(plan) struct mp_plan last;
        AUTO(plan) struct mp_plan plan;
        struct places places;
        void *sent[EXPERTS];
        random_owners(owner);
        assert_works(create_owned(rank, owner, ALL, LAYERS, EXPERTS, &experts, &error));
        assert_works(mp_plan_create(&topology, EXPERTS, 64, &last, &error));
        assert_works(mp_plan_create(&topology, EXPERTS, 64, &plan, &error));
        begin_owned(&last, 0, layer, owner + layer * EXPERTS);
        send_some(&last, rank);
        assert_works(mp_experts_locate_ahead(&experts, &last, sent, &error));
        for (int i = 0; i < last.ahead.count; i++)
            mp_placement_add(&last.before, last.ahead.item[i].expert, rank);
        plan.kept = &last.before;
        begin_owned(&plan, 1, layer, owner + layer * EXPERTS);
        for (int e = EXPERTS - 1; e >= 0; e--)
            if (!mp_placement_holds(&plan.during, e, rank) && test_random_int(&random_state, 0, 1))
                assert_works(mp_plan_add_copy(&plan, e, rank,
                                              test_random_int(&random_state, 0, 1)
                                                  ? MP_STAGE_BEFORE_GATE
                                                  : MP_STAGE_AFTER_GATE,
                                              &error));
        assert_works(mp_experts_locate(&experts, &plan, places.parameter, places.gradient, &error));
        for (int i = 0; i < plan.fetch.count; i++) {
            int e = plan.fetch.item[i].expert;
            bool kept = plan.fetch.item[i].stage == MP_STAGE_BACKWARD_PREFETCH;
            int place = place_of(&experts, places.parameter[e], places.gradient[e]);
            assert_int_equal(place / EXPERTS, layer);
            assert_int_equal(used >> place % EXPERTS & 1, 0);
            used |= 1 << place % EXPERTS;
            behind += place % EXPERTS >= last.ahead.count;
            if (kept)
                assert_ptr_equal(places.parameter[e], sent[e]);
        }
        /* None behind those that were sent while one of their places is free. */
        if (behind > 0)
            assert_int_equal(plan.fetch.count - behind, last.ahead.count);
        for (int e = 0; e < EXPERTS; e++)
            if (owner[layer * EXPERTS + e] == rank)
                assert_ptr_equal(sent[e], mp_experts_own_elements(&experts, layer, e));
            else
                assert_int_equal(sent[e] != NULL, mp_plan_keeps(&plan, e, rank));
    }
}

TEST(a_copy_too_many_is_refused) {
    const struct mp_topology topology = {RANKS, 4};
    int32_t owner[ALL];
    AUTO(experts) struct mp_experts experts;
    AUTO(plan) struct mp_plan plan;
    struct places places;
    for (int i = 0; i < ALL; i++)
        owner[i] = 1;
    assert_works(create_owned(0, owner, 6, 1, 2, &experts, &error));
    assert_works(mp_plan_create(&topology, EXPERTS, 64, &plan, &error));
    begin_owned(&plan, 0, 2, owner);
    for (int e = 0; e < 3; e++)
        assert_works(mp_plan_add_copy(&plan, e, 0, MP_STAGE_AFTER_GATE, &error));
    assert_fails(mp_experts_locate(&experts, &plan, places.parameter, places.gradient, &error),
                 MP_ELIMIT, "layer 2: the plan brings more than 2 copies to rank 0");
    for (int e = 0; e < 3; e++)
        assert_works(mp_plan_send_ahead(&plan, e, 0, &error));
    assert_fails(mp_experts_locate_ahead(&experts, &plan, places.parameter, &error), MP_ELIMIT,
                 "layer 2: the plan brings more than 2 copies to rank 0");
}

/* Moments are elsewhere than parameters, as after moves that leave them. */
static void exchange_moments(struct mp_experts *experts) {
    int one = -1;
    for (int i = 0; i < ALL; i++) {
        if (experts->slot[i] < 0)
            continue;
        if (one >= 0) {
            int32_t kept = experts->moments[one];
            experts->moments[one] = experts->moments[i];
            experts->moments[i] = kept;
        }
        one = i;
    }
}

static void assert_updated(const struct mp_experts *experts) {
    const float *elements = experts->working;
    size_t kept = 0;
    for (int i = 0; i < ALL; i++) {
        float *state[3];
        if (!mp_experts_state(experts, i / EXPERTS, i % EXPERTS, state))
            continue;
        kept++;
        for (size_t f = 0; f < experts->chunk; f++) {
            size_t at = (size_t)experts->slot[i] * experts->chunk + f;
            assert_true(elements[at] == state[0][f]);
            /* By number of the expert, as they were given. */
            assert_close((double)state[1][f], 0.1 * (i + 1), 1e-6);
        }
    }
    assert_int_equal(experts->host_bytes,
                     offloaded ? 2 * kept * experts->chunk * sizeof(float) : 0);
}

static const struct memory {
    const char *name;
    bool host;
} memories[] = {{"of the device", false}, {"of the host", true}};

TEST_EACH(update_reaches_owned_experts_only, memories, c) {
    offloaded = c->host;
    int32_t owner[ALL];
    AUTO(experts) struct mp_experts experts;
    random_owners(owner);
    for (int i = 4; i < 8; i++)
        owner[i] = 2;
    assert_works(create_owned(2, owner, ALL, 1, 1, &experts, &error));
    /* A gap between slots whose moments will follow each other. */
    mp_experts_give(&experts, 5 / EXPERTS, 5 % EXPERTS);
    size_t all = (size_t)experts.slots * experts.chunk;
    AUTO(allocated) float *before = malloc(all * sizeof *before);
    exchange_moments(&experts);
    for (size_t i = 0; i < all; i++)
        experts.parameter[i] = (float)test_random_double(&random_state) + 1;
    for (int i = 0; i < ALL; i++)
        for (size_t f = 0; experts.slot[i] >= 0 && f < experts.chunk; f++)
            experts.gradient[(size_t)experts.slot[i] * experts.chunk + f] = (float)(i + 1);
    memcpy(before, experts.parameter, all * sizeof *before);
    const struct mp_adamw settings = {0.25f, 0.9f, 0.95f, 1e-8f, 0, 1};
    for (int early = 0; !offloaded && early < 2; early++) {
        mp_experts_update_layer(&experts, NULL, &settings, early); /* again changes nothing */
        mp_experts_update_layer(&experts, NULL, &settings, 0);
        for (int i = 0; i < ALL; i++)
            for (size_t f = 0; experts.slot[i] >= 0 && f < experts.chunk; f++) {
                size_t at = (size_t)experts.slot[i] * experts.chunk + f;
                assert_int_equal(before[at] != experts.parameter[at], i / EXPERTS <= early);
            }
    }
    mp_experts_update(&experts, NULL, &settings);
    for (size_t i = 0; i < all; i++) {
        /* AdamW's first step with a positive gradient is the learning rate. */
        double step = experts.used[i / experts.chunk] ? 0.25 : 0;
        assert_close((double)before[i] - (double)experts.parameter[i], step, 1e-5);
    }
    assert_updated(&experts);
    offloaded = false;
}

/* Whoever is at home with an expert starts with the same parameters, and with no moments. */
TEST(experts_start_from_the_seed) {
    struct homes homes = create_homes();
    AUTO(allocated) float *expected = malloc(mp_model_expert_floats(&shape) * sizeof *expected);
    for (int i = 0; i < 2 * ALL; i++)
        mp_placement_add(&homes.of[i % LAYERS], test_random_int(&random_state, 0, EXPERTS - 1),
                         test_random_int(&random_state, 0, RANKS - 1));
    for (int rank = 0; rank < RANKS; rank++) {
        const struct mp_experts_layout layout = {.rank = rank,
                                                 .ranks = RANKS,
                                                 .optimizer = MP_OPTIMIZER_REPLICATED,
                                                 .slots = ALL,
                                                 .regions = 1};
        AUTO(experts) struct mp_experts experts;
        assert_works(mp_experts_create(&shape, device, seed, homes.of, &layout, &experts, &error));
        int held = 0;
        for (int i = 0; i < ALL; i++) {
            bool kept = mp_placement_holds(&homes.of[i / EXPERTS], i % EXPERTS, rank);
            held += kept;
            assert_numbers(experts.slot[i] >= 0, kept, experts.moments[i] >= 0, kept);
            if (!kept)
                continue;
            mp_expert_initialise(&shape, seed, i / EXPERTS, i % EXPERTS, expected);
            float *state[3];
            mp_experts_state(&experts, i / EXPERTS, i % EXPERTS, state);
            assert_memory_equal(state[0], expected, experts.chunk * sizeof *expected);
            for (size_t f = 0; f < experts.chunk; f++)
                assert_true(state[1][f] == 0 && state[2][f] == 0);
        }
        assert_int_equal(experts.held, held);
    }
}

/* Every expert is kept by its owner and another rank. */
static struct homes create_pairs(void) {
    struct homes homes = create_homes();
    for (int i = 0; i < ALL; i++)
        while (mp_placement_copies(&homes.of[i / EXPERTS], i % EXPERTS) < 2)
            mp_placement_add(&homes.of[i / EXPERTS], i % EXPERTS,
                             test_random_int(&random_state, 0, RANKS - 1));
    return homes;
}

/* What one update makes of an expert's `chunk` floats, all of them at once, with gradients
 * gradient_of(parameter). */
static float gradient_of(float parameter) {
    return parameter * 3 - 0.01f;
}

static void update_whole(float expected[], size_t chunk, const struct mp_adamw *settings) {
    float *gradient = malloc(chunk * sizeof *gradient), *moments = calloc(2 * chunk, sizeof(float));
    for (size_t f = 0; f < chunk; f++)
        gradient[f] = gradient_of(expected[f]);
    device->operations->adamw(device, NULL, chunk, settings, expected, gradient, moments,
                              moments + chunk, NULL);
    free(gradient);
    free(moments);
}

/* A rank's slices hold `expected` of each expert, and zeros behind its end. */
static void assert_slices(const struct mp_experts *experts, const struct mp_adamw *settings) {
    size_t chunk = experts->chunk;
    AUTO(allocated) float *expected = malloc(chunk * sizeof *expected);
    for (int i = 0; i < ALL; i++) {
        float *state[3];
        if (!mp_experts_state(experts, i / EXPERTS, i % EXPERTS, state))
            continue;
        const float *elements = mp_experts_own_elements(experts, i / EXPERTS, i % EXPERTS);
        size_t begin = (size_t)experts->piece[i] * experts->slice;
        mp_expert_initialise(&shape, seed, i / EXPERTS, i % EXPERTS, expected);
        if (settings)
            update_whole(expected, chunk, settings);
        for (size_t f = 0; f < experts->slice; f++) {
            float right = begin + f < chunk ? expected[begin + f] : 0;
            assert_close((double)state[0][f], (double)right, settings ? 1e-6 : 0);
            assert_true(elements[f] == state[0][f]); /* what products read is what was updated */
        }
    }
}

/* Creates a rank's slices, updates them, and holds them against whole experts.  Returns a bit for
 * each of the first expert's slices that it keeps. */
static unsigned try_slices(const struct mp_experts_layout *layout,
                           const struct mp_placement home[LAYERS], int keepers) {
    const struct mp_adamw settings = {0.25f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
    size_t chunk = mp_model_expert_floats(&shape);
    AUTO(experts) struct mp_experts experts;
    assert_works(mp_experts_create(&shape, device, seed, home, layout, &experts, &error));
    assert_int_equal(experts.keepers, keepers);
    assert_int_equal(experts.slice, (chunk + (size_t)keepers - 1) / (size_t)keepers);
    assert_int_equal(experts.copy_stride, (size_t)keepers * experts.slice);
    assert_int_equal(experts.held, experts.slots); /* no room that nothing needs */
    assert_slices(&experts, NULL);
    for (size_t i = 0; i < (size_t)experts.slots * experts.slice; i++)
        experts.gradient[i] = experts.parameter[i] == 0 ? 0 : gradient_of(experts.parameter[i]);
    mp_experts_update(&experts, NULL, &settings);
    assert_slices(&experts, &settings);
    assert_int_equal(experts.host_bytes,
                     layout->host ? 2 * sizeof(float) * (size_t)experts.slots * experts.slice : 0);
    return experts.slot[0] >= 0 ? 1u << experts.piece[0] : 0;
}

/* The slices of all ranks are the whole, and an update of slices is that of the whole, wherever
 * they lie. */
TEST(slices_make_the_whole) {
    enum { UNEVEN = 5 }; /* ranks, which do not divide an expert's floats */
    struct mp_placement nobody[LAYERS] = {{0}};
    struct homes pairs = create_pairs();
    assert_true(mp_model_expert_floats(&shape) % UNEVEN != 0);
    for (int offload = 0; offload < 2; offload++) {
        struct mp_experts_layout layout = {.ranks = UNEVEN,
                                           .optimizer = MP_OPTIMIZER_SLICES,
                                           .host = offload ? device : NULL,
                                           .regions = 2,
                                           .copies = 3};
        unsigned all = 0, replicas = 0;
        for (layout.rank = 0; layout.rank < UNEVEN; layout.rank++)
            all |= try_slices(&layout, nobody, UNEVEN);
        assert_int_equal(all, (1u << UNEVEN) - 1);
        layout.ranks = RANKS;
        layout.optimizer = MP_OPTIMIZER_REPLICA_SLICES;
        for (layout.rank = 0; layout.rank < RANKS; layout.rank++)
            replicas += try_slices(&layout, pairs.of, 2); /* each slice once */
        assert_int_equal(replicas, 3);
    }
}

TEST(unequally_many_replicas_are_refused) {
    struct homes pairs = create_pairs();
    struct mp_experts experts;
    const struct mp_experts_layout layout = {
        .ranks = RANKS, .optimizer = MP_OPTIMIZER_REPLICA_SLICES_OF_SUM, .regions = 1};
    mp_placement_add(&pairs.of[2], 3, 0);
    mp_placement_add(&pairs.of[2], 3, 1);
    mp_placement_add(&pairs.of[2], 3, 2);
    assert_fails(mp_experts_create(&shape, device, seed, pairs.of, &layout, &experts, &error),
                 MP_EPLAN, "layer 2: expert 3 has");
}

TEST_SEED(seed);
TEST_GROUP(open_device, close_device);
