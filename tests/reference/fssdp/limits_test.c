/* FSSDP where ranks are not alike, and how much it will hold: by hand. */
#include "tests/reference/plan/system_support.h"

#include "reference/fssdp/fssdp.h"

/* Only rank 0 has tokens, 10 routes to each of 8 experts, two experts a rank: it sends 60, others
 * receive and all compute 20.  A copy of expert 7 on rank 0 keeps 10 of them there. */
TEST(one_source_sends_most) {
    const struct mp_setting setting = setting_of("ranks-per-node=4 expert-bytes=1 route-bytes=2 "
                                                 "bandwidth=4 seconds-per-route=3");
    struct mp_arena memory = {0};
    struct mp_calibrator calibrator;
    AUTO(load) struct mp_load load;
    assert_works(mp_load_create(4, 8, &load, &error));
    for (int expert = 0; expert < 8; expert++)
        load.count[expert] = 10;
    struct mp_placement placement = placement_of(4, 8);
    mp_calibrator_create(&memory, &setting, &calibrator);
    assert_close(mp_calibrator_latency(&calibrator, &placement, &load), 3 * 20 * 3 + 4 * 60 / 2.0,
                 0);
    mp_placement_add(&placement, 7, 0);
    assert_close(mp_calibrator_latency(&calibrator, &placement, &load), 3 * 30 * 3 + 4 * 50 / 2.0,
                 0);
    mp_arena_release(&memory);
}

static int limit_of(int ranks, int experts, const struct mp_fssdp_options *options) {
    const struct mp_setting setting =
        setting_of(formatted("experts=%d top-k=1 ranks=%d ranks-per-node=%d tokens=4 "
                             "expert-bytes=100 route-bytes=1 bandwidth=1000 seconds-per-route=1 "
                             "non-moe-seconds=0.35",
                             experts, ranks, ranks));
    void *self;
    assert_works(mp_system_create(&mp_system_fssdp, &setting, options, &self, &error));
    int limit = mp_system_fssdp.copies_limit(self);
    mp_system_destroy(&mp_system_fssdp, self);
    return limit;
}

/* In 0.35 s at 1000 bytes/s three experts of 100 bytes travel; calibration copies as many again. */
TEST(copies_are_limited) {
    struct mp_fssdp_options options = {.window = 5, .overlap = 2, .memory = MP_ALL};
    assert_int_equal(limit_of(4, 16, &options), 2);
    options.calibrate = true;
    assert_int_equal(limit_of(4, 16, &options), 4);
    assert_int_equal(limit_of(1, 16, &options), 0);
    assert_int_equal(limit_of(4, 3, &options), 3);
    options.memory = 3;
    assert_int_equal(limit_of(4, 16, &options), 3);
    options.memory = MP_ALL;
    options.overlap = MP_AUTO;
    assert_int_equal(limit_of(4, 16, &options), 6);
    options.calibrate = false;
    assert_int_equal(limit_of(4, 16, &options), 3);
    options.overlap = 9;
    assert_int_equal(limit_of(4, 4, &options), 4);
}
