/* LLEP: golden decisions and how many copies there are at most. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

/* Four ranks with two experts each; see assert_division. */
struct golden_case {
    const char *name, *trigger;
    double threshold;
    int smallest;
    const char *total, *routes;
};
static const struct golden_case GOLDEN[] = {
    {"V-LLEP-1, m 1", "expert", 1.3, 1, "700 100 80 60 120 60 90 70", "0=320,180,40,160 1=0,0,100"},
    {"V-LLEP-1, m 64", "expert", 1.3, 64, "700 100 80 60 120 60 90 70",
     "0=360,180,0,160 1=0,0,100"},
    /* 4.375 times the mean, to the last bit. */
    {"at the threshold", "expert", 4.375, 1, "700 100 80 60 120 60 90 70",
     "0=320,180,40,160 1=0,0,100"},
    {"below the threshold", "expert", 4.376, 1, "700 100 80 60 120 60 90 70", ""},
    /* Experts are uneven, ranks hardly are. */
    {"per rank", "rank", 1.3, 1, "190 20 10 190 100 100 150 40", ""},
    {"per expert", "expert", 1.3, 1, "190 20 10 190 100 100 150 40", "1=10,0,0,10"},
    {"a single route moves", "expert", 1.3, 1, "296 1 49 1 49 1 2 1", "0=100,50,49,97 1=0,0,1"},
    /* 2.5 routes each, rounded up. */
    {"a cap that is no whole number", "rank", 1.3, 1, "10", "0=3,3,3,1"},
    {"no routes", "expert", 0, 1, "0", ""},
};

TEST_EACH(golden_decisions, GOLDEN, row) {
    char options[64];
    snprintf(options, sizeof options, "trigger=per-%s threshold=%g smallest-gemm=%d", row->trigger,
             row->threshold, row->smallest);
    assert_division(&mp_system_llep, "tokens=1000", options, row->total, row->routes);
}

struct limit_case {
    const char *name, *options;
    int limit;
};
/* 16 experts on 4 ranks, 1000 tokens per rank, top-2. */
static const struct limit_case LIMITS[] = {
    {"what others own", "smallest-gemm=1 alpha=1 copies=all", 12},
    {"pieces in the cap", "smallest-gemm=300 alpha=1 copies=all", 6},
    {"a larger cap", "smallest-gemm=300 alpha=1.1 copies=all", 7},
    {"the released minimum", "smallest-gemm=1024 alpha=1 copies=all", 1},
    {"no piece is that big", "smallest-gemm=2001 alpha=1 copies=all", 0},
    {"as asked for", "smallest-gemm=1 alpha=1 copies=3", 3},
};

TEST_EACH(copies_are_limited_by_cap_and_smallest_piece, LIMITS, row) {
    const struct mp_setting setting = setting_of("experts=16 ranks-per-node=2 tokens=1000");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_llep, &setting, row->options);
    assert_int_equal(rehearsal.planner.law.extra_copies_limit, row->limit);
}
