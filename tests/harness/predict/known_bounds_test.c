/* Known bounds: jobs with the same conditions share one, others do not, and nobody gets another
 * number for it. */
#include "harness/predict/known_bounds.h"

#include "harness/predict/bound.h"
#include "tests/harness/predict/job_support.h"
#include "tests/reference/plan/plan_support.h"

TEST_END(known, struct mp_known_bounds *, mp_known_bounds_destroy(*it))

static struct mp_known_bounds *known_bounds(void) {
    struct mp_known_bounds *known;
    assert_works(mp_known_bounds_create(&known, &error));
    return known;
}

/* The bound of a job with another system and one setting more. */
static struct mp_bound *take(struct mp_known_bounds *known, const char *system, const char *more) {
    struct mp_bound *bound;
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, formatted("system=%s", system), more);
    assert_works(mp_known_bounds_take(known, &job, cluster, &bound, &error));
    return bound;
}

/* Its seconds of some loads: also when the job's cluster is gone. */
static double seconds_of(struct mp_bound *bound, uint32_t hot) {
    struct mp_load load[3];
    double seconds;
    for (int l = 0; l < 3; l++) {
        assert_works(mp_load_create(16, 32, &load[l], &error));
        for (int i = 0; i < 16 * 32; i++)
            load[l].count[i] = i % 32 ? 4 : hot;
    }
    assert_works(mp_bound_seconds(bound, load, &seconds, &error));
    for (int l = 0; l < 3; l++)
        mp_load_destroy(&load[l]);
    return seconds;
}

TEST(systems_share_a_bound) {
    AUTO(known) struct mp_known_bounds *known = known_bounds();
    const struct mp_bound *first = take(known, "ep", NULL);
    assert_ptr_equal(take(known, "fssdp", "options.memory=2"), first);
    assert_ptr_equal(take(known, "llep", "name=another"), first);
}

/* Whatever is said of a job but its name and system makes it another one: with its own number, and
 * the first one's comes back. */
TEST(other_conditions_have_their_own) {
    static const char *const more[] = {"expert-width=64", "gate=switch", "mode=prefill",
                                       "predict.planning=0.5"};
    AUTO(known) struct mp_known_bounds *known = known_bounds();
    double usual = seconds_of(take(known, "ep", NULL), 40);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        AUTO(known) struct mp_known_bounds *fresh = known_bounds();
        double own = seconds_of(take(known, "ep", more[i]), 40);
        assert_true(own == seconds_of(take(fresh, "ep", more[i]), 40) && own != usual);
        assert_true(seconds_of(take(known, "ep", NULL), 40) == usual);
    }
}

/* One bit more is another number, wherever it is. */
TEST(numbers_are_known_bit_for_bit) {
    AUTO(known) struct mp_known_bounds *known = known_bounds();
    double a[] = {1, 2, 3}, b[] = {4}, *seconds;
    const struct mp_known_part part[] = {{a, 3}, {b, 1}};
    for (int i = 0; i < 4; i++) {
        double *number = i < 3 ? &a[i] : b, before = *number;
        *number += 1e-15 * *number;
        assert_true(*number != before);
        assert_false(mp_known_bounds_find(known, part, 2, &seconds));
        *seconds = i;
        *number = before;
    }
    for (int i = 0; i < 4; i++) {
        double *number = i < 3 ? &a[i] : b, before = *number;
        *number += 1e-15 * *number;
        assert_true(mp_known_bounds_find(known, part, 2, &seconds) && *seconds == i);
        *number = before;
    }
    assert_false(mp_known_bounds_find(known, part, 2, &seconds));
    const struct mp_known_part turned[] = {{b, 1}, {a, 3}};
    assert_false(mp_known_bounds_find(known, turned, 2, &seconds));
    assert_false(mp_known_bounds_find(NULL, part, 2, &seconds));
    assert_null(seconds);
}

/* Of loads that were there once nothing is worked out again: what is known is what is said. */
TEST(what_is_known_is_said) {
    AUTO(known) struct mp_known_bounds *known = known_bounds();
    struct mp_bound *bound = take(known, "ep", NULL);
    double cold = seconds_of(bound, 4), hot = seconds_of(bound, 400);
    assert_true(hot > cold);
    assert_true(seconds_of(bound, 4) == cold && seconds_of(bound, 400) == hot);
    mp_bound_remember(bound, NULL);
    assert_true(seconds_of(bound, 4) == cold && seconds_of(bound, 400) == hot);
}

TEST_GROUP(enter, leave_folder);
