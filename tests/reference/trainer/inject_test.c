/* Injected delays: what may be asked for. */
#include "reference/trainer/inject.h"

#include "profiler/record/record.h"
#include "reference/base/option.h"
#include "reference/trainer/job.h"
#include "tests/errors.h"

TEST(what_is_asked_for_is_read) {
    struct mp_inject inject;
    assert_works(mp_inject_parse("", &inject, &error));
    assert_close(inject.seconds, 0, 0);
    assert_works(mp_inject_parse("  rank=3 seconds=0.25  phase=expert ", &inject, &error));
    assert_numbers(inject.rank, 3, inject.phase, MP_PHASE_EXPERT, inject.seconds, 0.25);
    assert_numbers(inject.every, 1, inject.layer, MP_ALL);
    assert_works(mp_inject_parse("rank=0 seconds=1 phase=wait every=7 layer=2", &inject, &error));
    assert_numbers(inject.every, 7, inject.layer, 2);
    for (int phase = MP_PHASE_DATA; phase <= MP_PHASE_WAIT; phase++) {
        assert_works(mp_inject_parse(
            formatted("rank=0 seconds=1 phase=%s", mp_phase_name((enum mp_phase)phase)), &inject,
            &error));
        assert_int_equal(inject.phase, phase);
    }
}

TEST(some_phases_are_of_communication) {
    static const enum mp_phase transfers[] = {MP_PHASE_FETCH,  MP_PHASE_DISPATCH,  MP_PHASE_COMBINE,
                                              MP_PHASE_REDUCE, MP_PHASE_ALLREDUCE, MP_PHASE_MOVE,
                                              MP_PHASE_WAIT};
    for (int phase = 0; phase < MP_PHASES; phase++) {
        bool is_one = false;
        for (size_t i = 0; i < sizeof transfers / sizeof *transfers; i++)
            is_one |= (int)transfers[i] == phase;
        assert_int_equal(mp_inject_delays_transfers(phase), is_one);
    }
}

static const struct {
    const char *text, *says;
} refusals[] = {
    {"rank=1 phase=expert", "does not say seconds"},
    {"seconds=1 phase=expert", "does not say rank"},
    {"seconds=1 rank=0", "does not say phase"},
    {"rank", "inject: \"rank\" should be option=value"},
    {"rank=1 phase=lunch seconds=1", "lunch"},
    {"rank=1 phase=iteration seconds=1", "iteration"},
    {"rank=1 phase=expert seconds=-1", "-1"},
    {"rank=1 phase=expert seconds=1 every=0", "every: 0"},
    {"rank=1 phase=expert seconds=1 rate=0", "unknown option \"rate\""},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    struct mp_inject inject;
    struct mp_error error = {0};
    assert_int_equal(mp_inject_parse(c->text, &inject, &error), MP_EINVAL);
    if (!strstr(error.text, c->says))
        fail_msg("%s: says \"%s\", not \"%s\"", c->text, error.text, c->says);
    assert_int_equal(strncmp(error.text, "inject", 6), 0);
    assert_close(inject.seconds, 0, 0);
}
