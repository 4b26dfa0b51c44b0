/* The order of an iteration: worked out by hand for some plans, and held against its laws for plans
 * of any kind. */
#include "reference/schedule/schedule.h"

#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"
#include "tests/reference/schedule/names.h"

enum { MOST_LAYERS = 4, MOST_RANKS = 130, TEXT = 1 << 16, MOST_EVENTS = 1 << 15 };

enum verb { WORK, START, WAIT };
struct event {
    enum verb verb;
    struct mp_operation operation;
};

/* An executor that writes down what it is told. */
struct scribe {
    struct mp_plan *plan[MOST_LAYERS], own[MOST_LAYERS];
    struct mp_schedule schedule;
    struct event event[MOST_EVENTS];
    int events, open_spans, ended_spans;
    struct mp_scheduled_phase activity; /* of the open span */
    struct mp_policy policy;
    struct mp_rehome change;
    int fail_at; /* number of the event that fails; -1: none */
};

static void begin(void *self, struct mp_scheduled_phase activity) {
    struct scribe *scribe = self;
    assert_int_equal(scribe->open_spans++, 0);
    scribe->activity = activity;
}

static void end(void *self, struct mp_scheduled_phase activity) {
    struct scribe *scribe = self;
    assert_int_equal(--scribe->open_spans, 0);
    assert_memory_equal(&scribe->activity, &activity, sizeof activity);
    scribe->ended_spans++;
}

static int plan(void *self, int layer, UNUSED bool before_gate, const struct mp_plan **of_layer,
                UNUSED struct mp_error *error) {
    struct scribe *scribe = self;
    assert_int_equal(scribe->open_spans, 1);
    *of_layer = scribe->plan[layer];
    return MP_OK;
}

/* Rows travel in the half of the exchange that is theirs. */
static void check_half(const struct scribe *scribe, const struct mp_operation *operation) {
    bool is_back = operation->kind == MP_TRAVEL_RETURNS || operation->kind == MP_WORK_COMBINE;
    if (is_back || operation->kind == MP_TRAVEL_ROWS || operation->kind == MP_WORK_PERMUTE)
        assert_int_equal(scribe->activity.phase, is_back == (operation->direction == MP_FORWARD)
                                                     ? MP_PHASE_COMBINE
                                                     : MP_PHASE_DISPATCH);
}

static int note(struct scribe *scribe, enum verb verb, const struct mp_operation *operation,
                struct mp_error *error) {
    assert_int_equal(scribe->open_spans, 1);
    assert_true(scribe->events < MOST_EVENTS);
    check_half(scribe, operation);
    assert_int_equal(scribe->activity.products, operation->products);
    if (scribe->events == scribe->fail_at)
        return mp_fail(error, MP_ECOMM, "event %d", scribe->events);
    scribe->event[scribe->events++] = (struct event){verb, *operation};
    return MP_OK;
}

static int work(void *self, const struct mp_operation *operation, struct mp_error *error) {
    assert_true(operation->kind < MP_TRAVEL_COUNTS);
    return note(self, WORK, operation, error);
}

static int start(void *self, const struct mp_operation *operation, struct mp_error *error) {
    assert_true(operation->kind >= MP_TRAVEL_COUNTS);
    return note(self, START, operation, error);
}

static int wait(void *self, const struct mp_operation *operation, struct mp_error *error) {
    return note(self, WAIT, operation, error);
}

static int learn(void *self, const struct mp_rehome **change, UNUSED struct mp_error *error) {
    *change = &((struct scribe *)self)->change;
    return MP_OK;
}

static const struct mp_executor EXECUTOR = {begin, end, plan, work, start, wait, learn};

static struct scribe *create_scribe(int layers, int ranks) {
    struct scribe *scribe = calloc(1, sizeof *scribe);
    scribe->fail_at = -1;
    scribe->policy = mp_policy_plain;
    assert_works(mp_schedule_create(&EXECUTOR, scribe, &scribe->policy, layers, ranks,
                                    &scribe->schedule, &error));
    return scribe;
}

static void destroy_scribe(struct scribe *scribe) {
    for (int l = 0; l < MOST_LAYERS; l++)
        mp_plan_destroy(&scribe->own[l]);
    mp_schedule_destroy(&scribe->schedule);
    free(scribe);
}

TEST_END(destroy_scribe, struct scribe *, destroy_scribe(*it))

/* ---- by hand ---- */

/* Events of the layers of `direction` as words: ">fetch0" starts, "<fetch0" waits, and work has its
 * name alone, with "+" where weights are left for later and "w" where they come; a step behind a
 * dot where there are several.  Good until the next call. */
static const char *told(const struct scribe *scribe, enum mp_direction direction) {
    static char text[TEXT];
    static const char *const marks[] = {[WORK] = "", [START] = ">", [WAIT] = "<"};
    static const char *const parts[] = {
        [MP_ALL_PRODUCTS] = "", [MP_INPUT_PRODUCTS] = "+", [MP_WEIGHT_PRODUCTS] = "w"};
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < scribe->events; i++) {
        const struct mp_operation *operation = &scribe->event[i].operation;
        if (operation->direction != direction)
            continue;
        at += (size_t)snprintf(text + at, TEXT - at, "%s%s%s%s", at ? " " : "",
                               marks[scribe->event[i].verb], name_of(operation->kind),
                               parts[operation->products]);
        if (operation->layer >= 0)
            at += (size_t)snprintf(text + at, TEXT - at, "%d", operation->layer);
        if (operation->step > 0)
            at += (size_t)snprintf(text + at, TEXT - at, ".%d", operation->step);
    }
    return text;
}

/* With plans of its own: four ranks on two nodes own two of eight experts each. */
static struct scribe *golden_scribe(int layers) {
    struct scribe *scribe = create_scribe(layers, 4);
    for (int l = 0; l < layers; l++) {
        struct mp_plan *made = scribe->plan[l] = &scribe->own[l];
        assert_works(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 100, made, &error));
        made->policy = &scribe->policy;
        begin_owned(made, 0, l, GOLDEN_OWNER);
    }
    return scribe;
}

static void dispatch(struct mp_plan *made) {
    AUTO(load) struct mp_load load;
    golden_load(&load);
    assert_works(mp_plan_dispatch_nearest(made, &load, &error));
}

/* The texts come one after the other, up to a NULL. */
static void assert_in_order(const char *at, const char *const texts[]) {
    for (int i = 0; texts[i]; i++)
        if (!(at = strstr(at, texts[i])))
            fail_msg("\"%s\" does not come, or too early", texts[i]);
}

static void run(struct scribe *scribe) {
    scribe->events = 0;
    assert_works(mp_schedule_iteration(&scribe->schedule, &error));
    assert_int_equal(scribe->open_spans, 0);
}

/* Hecate, section 4: spAG under attention, spRS behind the second exchange, each layer's stage
 * waited for when the one below has computed its experts' gradients. */
TEST(copies_travel_under_attention) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(2);
    for (int l = 0; l < 2; l++) {
        assert_works(mp_plan_add_copy(scribe->plan[l], 0, 3, MP_STAGE_BEFORE_GATE, &error));
        scribe->policy.rematerialise = true;
        dispatch(scribe->plan[l]);
    }
    run(scribe);
    assert_string_equal(told(scribe, MP_FORWARD),
                        "embed "
                        ">fetch0 attention0 gate0 >counts0 <counts0 permute0 >rows0 <rows0 "
                        "<fetch0 experts0 >returns0 <returns0 combine0 "
                        ">fetch1 attention1 gate1 >counts1 <counts1 permute1 >rows1 <rows1 "
                        "<fetch1 experts1 >returns1 <returns1 combine1");
    assert_string_equal(told(scribe, MP_BACKWARD),
                        ">refetch1 head "
                        "permute1 >rows1 <rows1 <refetch1 experts1 >returns1 <returns1 combine1 "
                        ">sum-copies1 gate1 >refetch0 attention1 >sum-dense1 "
                        "permute0 >rows0 <rows0 <refetch0 experts0 >returns0 <returns0 combine0 "
                        "<sum-copies1 >sum-copies0 gate0 attention0 >sum-dense0 "
                        "embed >sum-dense2 <sum-copies0 <sum-dense1 <sum-dense0 <sum-dense2");
    assert_string_equal(told(scribe, MP_NO_DIRECTION), "update >loss <loss");
}

/* A copy of a copy sets out when that is here, behind rows; at once where the lane keeps its order.
 */
TEST(copies_are_made_of_copies) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(1);
    struct mp_plan *made = scribe->plan[0];
    assert_works(mp_plan_add_copy(made, 0, 2, MP_STAGE_BEFORE_GATE, &error));
    assert_works(mp_plan_add_copy_from(made, 0, 2, 3, MP_STAGE_AFTER_GATE, &error));
    dispatch(made);
    run(scribe);
    assert_contains(told(scribe, MP_FORWARD),
                    "permute0 >rows0 <rows0 <fetch0 >late-fetch0 <late-fetch0 experts0");
    scribe->schedule.keeps_order = true;
    run(scribe);
    assert_contains(told(scribe, MP_FORWARD),
                    ">late-fetch0 permute0 >rows0 <rows0 <fetch0 <late-fetch0 experts0");
    scribe->schedule.keeps_order = false;
    made->fetch.item[1].from = made->before.owner[0];
    run(scribe);
    assert_contains(told(scribe, MP_FORWARD),
                    ">late-fetch0 permute0 >rows0 <rows0 <fetch0 <late-fetch0 experts0");
}

/* The next layer's copies set out once rows and late copies have, whether rows travel in one step
 * or in several. */
TEST(copies_are_fetched_early) {
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(3);
        for (int l = 0; l < 3; l++) {
            if (pipelined) {
                scribe->plan[l]->exchange = MP_EXCHANGE_PIPELINED;
                scribe->plan[l]->group_size = 2;
            }
            if (l != 1)
                assert_works(mp_plan_add_copy(scribe->plan[l], 0, 3, MP_STAGE_BEFORE_GATE, &error));
            if (l == 0)
                assert_works(mp_plan_add_copy(scribe->plan[l], 6, 1, MP_STAGE_AFTER_GATE, &error));
            dispatch(scribe->plan[l]);
        }
        scribe->policy.fetch_early = true;
        run(scribe);
        const char *order[] = {">fetch0 attention0",
                               pipelined ? ">rows0 >rows0.1 >late-fetch0 <rows0 <fetch0"
                                         : ">late-fetch0 permute0 >rows0 <rows0 <fetch0",
                               "experts0",
                               "combine0 attention1 gate1 >counts1 <counts1",
                               pipelined ? "permute1 >rows1 >rows1.1 >fetch2 <rows1 experts1"
                                         : "permute1 >rows1 <rows1 >fetch2 experts1",
                               "combine1 attention2",
                               "<fetch2 experts2",
                               NULL};
        assert_in_order(told(scribe, MP_FORWARD), order);
        assert_int_equal(mp_policy_fetches(&scribe->policy), 2);
    }
}

/* What slices are put together of may set out under the layers above; then all that is behind it in
 * the background is, too. */
TEST(slices_set_out_ahead) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(4);
    struct mp_plan *made = scribe->plan[0];
    scribe->policy.optimizer = MP_OPTIMIZER_SLICES;
    scribe->policy.gather_before_gate = scribe->policy.rematerialise = true;
    scribe->policy.gather_ahead = 2;
    dispatch(made);
    for (int l = 0; l < 4; l++)
        scribe->plan[l] = made;
    run(scribe);
    const char *order[] = {">fetch0 >fetch1 >fetch2 attention0",
                           "<fetch0 experts0",
                           "combine0 >fetch3 attention1",
                           "<fetch1 experts1",
                           "combine1 attention2",
                           "<fetch2 experts2",
                           "combine2 attention3",
                           "<fetch3 experts3",
                           NULL};
    assert_in_order(told(scribe, MP_FORWARD), order);
    const char *back[] = {">refetch3 >refetch2 >refetch1 head",
                          "<refetch3 experts3",
                          "gate3 >refetch0 attention3",
                          "<refetch2 experts2",
                          "gate2 attention2",
                          "<refetch1",
                          "<refetch0",
                          NULL};
    assert_in_order(told(scribe, MP_BACKWARD), back);
}

/* FasterMoE: S_0, S_1, broadcasts, C_0, R_0, C_1, R_1, the shadowed expert; backward computes it
 * first and sums it before C_0.  With a copy that others send their routes to, fetched late or sent
 * ahead, sums wait. */
TEST(shadows_come_last_and_first) {
    enum { NONE, LATE, AHEAD };
    for (int shared = NONE; shared <= AHEAD; shared++) {
        AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(1);
        struct mp_plan *made = scribe->plan[0];
        made->exchange = MP_EXCHANGE_PIPELINED;
        made->group_size = 2;
        for (int r = 1; r < 4; r++)
            assert_works(mp_plan_add_copy(made, 0, r, MP_STAGE_AFTER_GATE, &error));
        if (shared) /* ranks 1 and 3, on nodes 0 and 1, get the routes of their node */
            assert_works(mp_plan_add_copy(made, 6, 1, MP_STAGE_AFTER_GATE, &error));
        if (shared == AHEAD)
            made->fetch.item[3].stage = MP_STAGE_BACKWARD_PREFETCH;
        dispatch(made);
        run(scribe);
        assert_string_equal(told(scribe, MP_FORWARD),
                            shared == LATE
                                ? "embed attention0 gate0 >counts0 <counts0 permute0 >rows0 "
                                  ">rows0.1 >late-fetch0 <rows0 <late-fetch0 experts0 >returns0 "
                                  "<rows0.1 experts0.1 >returns0.1 experts0.2 "
                                  "<returns0 <returns0.1 combine0"
                                : "embed attention0 gate0 >counts0 <counts0 permute0 >rows0 "
                                  ">rows0.1 >late-fetch0 <rows0 experts0 >returns0 "
                                  "<rows0.1 experts0.1 >returns0.1 <late-fetch0 experts0.2 "
                                  "<returns0 <returns0.1 combine0");
        assert_string_equal(told(scribe, MP_BACKWARD),
                            shared ? "head permute0 >rows0 >rows0.1 experts0.2 "
                                     "<rows0 experts0 >returns0 <rows0.1 experts0.1 >returns0.1 "
                                     "<returns0 <returns0.1 combine0 >sum-copies0 gate0 "
                                     "attention0 >sum-dense0 embed >sum-dense1 <sum-copies0 "
                                     "<sum-dense0 <sum-dense1"
                                   : "head permute0 >rows0 >rows0.1 experts0.2 >sum-copies0 "
                                     "<rows0 experts0 >returns0 <rows0.1 experts0.1 >returns0.1 "
                                     "<returns0 <returns0.1 combine0 gate0 "
                                     "attention0 >sum-dense0 embed >sum-dense1 <sum-copies0 "
                                     "<sum-dense0 <sum-dense1");
    }
}

/* Flat; or pipelined, with an expert's copies everywhere. */
static void golden_exchange(struct mp_plan *made, bool pipelined) {
    if (pipelined) {
        made->exchange = MP_EXCHANGE_PIPELINED;
        made->group_size = 2;
    }
    for (int r = 1; pipelined && r < 4; r++)
        assert_works(mp_plan_add_copy(made, 0, r, MP_STAGE_AFTER_GATE, &error));
    dispatch(made);
}

/* What all tokens go through is computed while rows travel, and late copies with a pipelined
 * exchange. */
TEST(a_shared_expert_hides_rows) {
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(1);
        golden_exchange(scribe->plan[0], pipelined);
        run(scribe);
        int spans = scribe->ended_spans;
        scribe->schedule.shares = true;
        scribe->ended_spans = 0;
        run(scribe);
        /* Two more, and rows of a flat exchange arrive in spans of their own. */
        assert_int_equal(scribe->ended_spans, spans + (pipelined ? 2 : 4));
        assert_contains(told(scribe, MP_FORWARD),
                        pipelined ? "permute0 >rows0 >rows0.1 >late-fetch0 shared0 <rows0 "
                                    "experts0 >returns0 <rows0.1"
                                  : "permute0 >rows0 shared0 <rows0 experts0 >returns0 "
                                    "<returns0 combine0");
        assert_contains(told(scribe, MP_BACKWARD),
                        pipelined ? "permute0 >rows0 >rows0.1 shared0 experts0.2 "
                                    ">sum-copies0 <rows0 experts0"
                                  : "permute0 >rows0 shared0 <rows0 experts0 >returns0 "
                                    "<returns0 combine0 gate0");
    }
}

/* Rows leave before weights have gradients, of experts under their own way back and of attention
 * under the exchange of the layer below; own rows hide nothing of their own. */
TEST(weights_come_behind_rows) {
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(2);
        golden_exchange(scribe->plan[0], pipelined);
        scribe->plan[1] = scribe->plan[0];
        scribe->policy.weights_behind = true;
        run(scribe);
        assert_null(strpbrk(told(scribe, MP_FORWARD), "+"));
        const char *expected =
            pipelined ? "head permute1 >rows1 >rows1.1 experts1.2 >sum-copies1 <rows1 experts+1 "
                        ">returns1 expertsw1 <rows1.1 experts+1.1 >returns1.1 expertsw1.1 "
                        "<returns1 <returns1.1 combine1 gate1 attention+1 "
                        "permute0 >rows0 >rows0.1 attentionw1 >sum-dense1 experts0.2 <sum-copies1 "
                        ">sum-copies0 <rows0 experts+0 >returns0 expertsw0 <rows0.1 experts+0.1 "
                        ">returns0.1 expertsw0.1 <returns0 <returns0.1 combine0 gate0 attention+0 "
                        "attentionw0 >sum-dense0 embed >sum-dense2 <sum-copies0 <sum-dense1 "
                        "<sum-dense0 <sum-dense2"
                      : "head permute1 >rows1 <rows1 experts+1 >returns1 expertsw1 <returns1 "
                        "combine1 gate1 attention+1 permute0 >rows0 attentionw1 >sum-dense1 <rows0 "
                        "experts+0 >returns0 expertsw0 <returns0 combine0 gate0 attention+0 "
                        "attentionw0 >sum-dense0 embed >sum-dense2 <sum-dense1 <sum-dense0 "
                        "<sum-dense2";
        assert_string_equal(told(scribe, MP_BACKWARD), expected);
    }
}

/* A layer's experts are updated two layers below, where its sums have been waited for: before the
 * experts there if something of them goes ahead, else behind; with the last micro-batch. */
TEST(experts_are_updated_in_backward) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(4);
    scribe->policy.updates_early = true;
    for (int l = 0; l < 4; l++) {
        assert_works(mp_plan_add_copy(scribe->plan[l], 0, 3, MP_STAGE_BEFORE_GATE, &error));
        dispatch(scribe->plan[l]);
    }
    assert_works(mp_plan_send_ahead(scribe->plan[3], 0, 3, &error));
    assert_works(mp_plan_send_ahead(scribe->plan[0], 0, 3, &error));
    run(scribe);
    assert_null(strstr(told(scribe, MP_FORWARD), "update"));
    assert_string_equal(
        strstr(told(scribe, MP_BACKWARD), "permute1"),
        "permute1 >rows1 <rows1 update-experts3 >ahead3 experts1 >returns1 <returns1 "
        "combine1 <sum-copies2 >sum-copies1 gate1 attention1 >sum-dense1 "
        "permute0 >rows0 <rows0 experts0 update-experts2 >returns0 <returns0 combine0 "
        "<sum-copies1 >sum-copies0 gate0 attention0 >sum-dense0 embed >sum-dense4 "
        "update-experts1 <sum-copies0 update-experts0 >ahead0 "
        "<sum-dense3 <sum-dense2 <sum-dense1 <sum-dense0 <sum-dense4 <ahead3 <ahead0");
    scribe->schedule.micro_batches = 2;
    run(scribe);
    const char *all = told(scribe, MP_BACKWARD), *first = strstr(all, "update-experts3");
    assert_true(first > strstr(strstr(all, "permute3") + 1, "permute3"));
}

/* Slices are put together at their homes two layers at a time, and experts move before. */
TEST(homes_follow_the_step) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(3);
    struct mp_plan *made = scribe->plan[0];
    dispatch(made);
    scribe->plan[1] = scribe->plan[2] = made;
    scribe->policy.optimizer = MP_OPTIMIZER_SLICES;
    scribe->schedule.learns = scribe->change.changed = true;
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION),
                        "update >moves <moves >homes0 >homes1 <homes0 >homes2 <homes1 <homes2 "
                        ">loss <loss");
    scribe->change.changed = false;
    run(scribe);
    assert_null(strstr(told(scribe, MP_NO_DIRECTION), "moves"));
}

/* Serving ends with the head, and slices are put together only for homes that have changed. */
TEST(serving_goes_forward_only) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(1);
    struct mp_plan *made = scribe->plan[0];
    assert_works(mp_plan_add_copy(made, 0, 3, MP_STAGE_BEFORE_GATE, &error));
    scribe->policy.rematerialise = true;
    dispatch(made);
    scribe->policy.forward_only = scribe->schedule.learns = true;
    scribe->policy.optimizer = MP_OPTIMIZER_SLICES;
    scribe->schedule.micro_batches = 2;
    run(scribe);
    const char *part = "embed >fetch0 attention0 gate0 >counts0 <counts0 permute0 >rows0 <rows0 "
                       "<fetch0 experts0 >returns0 <returns0 combine0 head";
    const char *both = told(scribe, MP_FORWARD);
    assert_int_equal(strlen(both), 2 * strlen(part) + 1);
    assert_memory_equal(both, part, strlen(part));
    assert_string_equal(both + strlen(part) + 1, part);
    assert_string_equal(told(scribe, MP_BACKWARD), "");
    assert_string_equal(told(scribe, MP_NO_DIRECTION), ">loss <loss");
    assert_false(scribe->schedule.gathered);
    scribe->change.changed = true;
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), ">moves <moves >homes0 <homes0 >loss <loss");
    assert_true(scribe->schedule.gathered);
    scribe->change.asynchronous = true;
    scribe->policy.optimizer = MP_OPTIMIZER_OWNER;
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), ">loss <loss");
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), ">moves <moves >loss <loss");
}

/* They travel under the whole next iteration; or at once, if somebody can't wait for it. */
TEST(asynchronous_moves_set_out_first_and_end_before_the_update) {
    AUTO(destroy_scribe) struct scribe *scribe = golden_scribe(1);
    struct mp_plan *made = scribe->plan[0];
    dispatch(made);
    scribe->schedule.learns = scribe->change.changed = scribe->change.asynchronous = true;
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), "update >loss <loss");
    scribe->change.changed = false;
    run(scribe);
    assert_true(scribe->event[0].verb == START &&
                scribe->event[0].operation.kind == MP_TRAVEL_MOVES);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), ">moves <moves update >loss <loss");
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), "update >loss <loss");
    scribe->change.changed = true;
    run(scribe);
    for (int again = 0; again < 2; again++) {
        scribe->events = 0;
        assert_works(mp_schedule_settle_moves(&scribe->schedule, &error));
        assert_string_equal(told(scribe, MP_NO_DIRECTION), again ? "" : ">moves <moves");
    }
    run(scribe);
    assert_string_equal(told(scribe, MP_NO_DIRECTION), "update >loss <loss");
}

/* ---- laws ---- */

static bool same(const struct mp_operation *a, const struct mp_operation *b) {
    return a->kind == b->kind && a->direction == b->direction && a->layer == b->layer &&
           a->step == b->step && a->products == b->products;
}

/* Where an operation's verb is, from `from` on; -1: nowhere. */
static int find(const struct scribe *scribe, int from, enum verb verb,
                struct mp_operation operation) {
    for (int i = from; i < scribe->events; i++)
        if (scribe->event[i].verb == verb && same(&scribe->event[i].operation, &operation))
            return i;
    return -1;
}

/* What starts is waited for once, and not before. */
static void assert_pairs(const struct scribe *scribe) {
    int starts = 0, waits = 0;
    for (int i = 0; i < scribe->events; i++) {
        const struct event *event = &scribe->event[i];
        starts += event->verb == START;
        waits += event->verb == WAIT;
        if (event->verb != START)
            continue;
        int wait_at = find(scribe, i + 1, WAIT, event->operation);
        int again = find(scribe, i + 1, START, event->operation);
        assert_true(wait_at > i);
        assert_true(again < 0 || again > wait_at);
    }
    assert_int_equal(starts, waits);
}

/* The kinds that are on their way at event `at`, of a layer. */
static bool on_its_way(const struct scribe *scribe, int at, enum mp_operation_kind kind,
                       int layer) {
    bool going = false;
    for (int i = 0; i < at; i++) {
        const struct mp_operation *operation = &scribe->event[i].operation;
        if (operation->kind == kind && operation->layer == layer)
            going = scribe->event[i].verb == START ? true : false;
    }
    return going;
}

/* Experts never compute with copies that are not there, nor write gradients that still travel. */
static void assert_experts(const struct scribe *scribe) {
    for (int i = 0; i < scribe->events; i++) {
        const struct mp_operation *operation = &scribe->event[i].operation;
        if (operation->kind != MP_WORK_EXPERTS)
            continue;
        const struct mp_scheduled_layer *layer = &scribe->schedule.layer[operation->layer];
        bool own = operation->step == layer->steps;
        if (operation->direction == MP_FORWARD) {
            assert_false(on_its_way(scribe, i, MP_TRAVEL_FETCH, operation->layer));
            if (own || layer->needs_late[operation->step])
                assert_false(on_its_way(scribe, i, MP_TRAVEL_LATE_FETCH, operation->layer));
            continue;
        }
        assert_false(on_its_way(scribe, i, MP_TRAVEL_REFETCH, operation->layer));
        for (int kind = MP_TRAVEL_SUM_COPIES; kind <= MP_TRAVEL_SEND_SLICES; kind++) {
            for (int above = operation->layer + 2; above < scribe->schedule.layers; above++)
                assert_false(on_its_way(scribe, i, (enum mp_operation_kind)kind, above));
            if (!layer->own_first)
                assert_false(on_its_way(scribe, i, (enum mp_operation_kind)kind, operation->layer));
        }
    }
}

/* Every piece of backward is computed once, its weights behind its inputs; sums of its gradients
 * never travel before. */
static void assert_weights(const struct scribe *scribe) {
    for (int i = 0; i < scribe->events; i++) {
        const struct event *event = &scribe->event[i];
        struct mp_operation weights = event->operation;
        weights.products = MP_WEIGHT_PRODUCTS;
        if (event->operation.products != MP_INPUT_PRODUCTS)
            continue;
        int behind = find(scribe, i + 1, WORK, weights),
            again = find(scribe, i + 1, WORK, event->operation);
        assert_true(behind > i && (again < 0 || again > behind));
        for (int kind = MP_TRAVEL_SUM_COPIES; kind <= MP_TRAVEL_SUM_DENSE; kind++)
            if (kind == MP_TRAVEL_SUM_DENSE ? weights.kind == MP_WORK_ATTENTION
                                            : weights.kind == MP_WORK_EXPERTS &&
                                                  !scribe->schedule.layer[weights.layer].own_first)
                assert_false(
                    on_its_way(scribe, behind, (enum mp_operation_kind)kind, weights.layer));
    }
}

/* Background operations of a layer are those that its plan has. */
static void assert_travels(const struct scribe *scribe, int micro_batches) {
    for (int kind = MP_TRAVEL_FETCH; kind <= MP_TRAVEL_SEND_SLICES; kind++)
        for (int l = 0; l < scribe->schedule.layers; l++) {
            int expected = 0, met = 0;
            for (int m = 0; m < micro_batches; m++)
                expected += (int)(mp_plan_travels(scribe->plan[l], m, micro_batches) >> kind & 1);
            for (int i = 0; i < scribe->events; i++)
                met += scribe->event[i].verb == START &&
                       (int)scribe->event[i].operation.kind == kind &&
                       scribe->event[i].operation.layer == l;
            assert_int_equal(met, expected);
        }
}

/* Experts are updated once, behind the sums of their gradients and before they are sent ahead. */
static void assert_updates(const struct scribe *scribe) {
    for (int l = 0; scribe->policy.updates_early && l < scribe->schedule.layers; l++) {
        int at = -1, updates = 0;
        for (int i = 0; i < scribe->events; i++)
            if (scribe->event[i].operation.kind == MP_WORK_UPDATE_EXPERTS &&
                scribe->event[i].operation.layer == l) {
                updates++;
                at = i;
            }
        assert_int_equal(updates, 1);
        for (int i = 0; i < scribe->events; i++) {
            const struct mp_operation *operation = &scribe->event[i].operation;
            if (operation->layer != l || operation->direction != MP_BACKWARD)
                continue;
            if (operation->kind == MP_TRAVEL_AHEAD)
                assert_true(i > at);
            else if (operation->kind == MP_WORK_EXPERTS ||
                     (operation->kind >= MP_TRAVEL_SUM_COPIES &&
                      operation->kind <= MP_TRAVEL_SEND_SLICES))
                assert_true(i < at);
        }
    }
}

TEST_RANDOM(any_plans_keep_the_laws) {
    for (int i = 0; i < 60; i++) {
        struct example examples[MOST_LAYERS];
        int layers = test_random_int(random, 1, MOST_LAYERS);
        AUTO(destroy_scribe) struct scribe *scribe = create_scribe(layers, MOST_RANKS);
        for (int l = 0; l < layers; l++) {
            random_kind_of_example(random, false, &examples[l]);
            scribe->plan[l] = &examples[l].plan;
        }
        scribe->schedule.learns = test_random_int(random, 0, 1);
        scribe->change.changed = test_random_int(random, 0, 1);
        scribe->change.asynchronous = test_random_int(random, 0, 1);
        bool moving = scribe->schedule.moving = test_random_int(random, 0, 1);
        scribe->policy.optimizer =
            test_random_int(random, 0, 1) ? MP_OPTIMIZER_SLICES : MP_OPTIMIZER_OWNER;
        scribe->schedule.micro_batches = test_random_int(random, 1, 3);
        scribe->schedule.shares = test_random_int(random, 0, 1);
        scribe->schedule.keeps_order = test_random_int(random, 0, 1);
        scribe->policy.weights_behind = test_random_int(random, 0, 1);
        scribe->policy.updates_early = test_random_int(random, 0, 1);
        for (int l = 0; scribe->policy.updates_early && l < layers; l++)
            if (test_random_int(random, 0, 1) && examples[l].plan.experts > 0)
                assert_works(mp_plan_send_ahead(&examples[l].plan, 0, 0, &error));
        run(scribe);
        assert_pairs(scribe);
        assert_weights(scribe);
        assert_updates(scribe);
        assert_experts(scribe);
        assert_travels(scribe, scribe->schedule.micro_batches);
        scribe->fail_at = test_random_int(random, 0, scribe->events - 1);
        scribe->events = 0;
        scribe->schedule.moving = moving;
        assert_fails(mp_schedule_iteration(&scribe->schedule, &error), MP_ECOMM, "");
        assert_int_equal(scribe->events, scribe->fail_at);
        for (int l = 0; l < layers; l++)
            destroy_example(&examples[l]);
    }
}
