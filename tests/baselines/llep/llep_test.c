/* LLEP: golden decisions and how many copies there are at most. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

/* Four ranks with two experts each; routes of each expert on each rank. */
struct golden_case {
    const char *name, *options;
    int64_t total[8];
    int64_t routes[8][4];
};
static const struct golden_case GOLDEN[] = {
    {"V-LLEP-1, m 1",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     {{320, 180, 40, 160},
      {0, 0, 100},
      {0, 80},
      {0, 60},
      {0, 0, 120},
      {0, 0, 60},
      {0, 0, 0, 90},
      {0, 0, 0, 70}}},
    {"V-LLEP-1, m 64",
     "trigger=per-expert threshold=1.3 smallest-gemm=64",
     {700, 100, 80, 60, 120, 60, 90, 70},
     {{360, 180, 0, 160},
      {0, 0, 100},
      {0, 80},
      {0, 60},
      {0, 0, 120},
      {0, 0, 60},
      {0, 0, 0, 90},
      {0, 0, 0, 70}}},
    /* 4.375 times the mean, to the last bit. */
    {"at the threshold",
     "trigger=per-expert threshold=4.375 smallest-gemm=1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     {{320, 180, 40, 160},
      {0, 0, 100},
      {0, 80},
      {0, 60},
      {0, 0, 120},
      {0, 0, 60},
      {0, 0, 0, 90},
      {0, 0, 0, 70}}},
    {"below the threshold",
     "trigger=per-expert threshold=4.376 smallest-gemm=1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     {{700}, {100}, {0, 80}, {0, 60}, {0, 0, 120}, {0, 0, 60}, {0, 0, 0, 90}, {0, 0, 0, 70}}},
    /* Experts are uneven, ranks hardly are. */
    {"per rank",
     "trigger=per-rank threshold=1.3 smallest-gemm=1",
     {190, 20, 10, 190, 100, 100, 150, 40},
     {{190}, {20}, {0, 10}, {0, 190}, {0, 0, 100}, {0, 0, 100}, {0, 0, 0, 150}, {0, 0, 0, 40}}},
    {"per expert",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {190, 20, 10, 190, 100, 100, 150, 40},
     {{190},
      {10, 0, 0, 10},
      {0, 10},
      {0, 190},
      {0, 0, 100},
      {0, 0, 100},
      {0, 0, 0, 150},
      {0, 0, 0, 40}}},
    {"a single route moves",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {296, 1, 49, 1, 49, 1, 2, 1},
     {{100, 50, 49, 97},
      {0, 0, 1},
      {0, 49},
      {0, 1},
      {0, 0, 49},
      {0, 0, 1},
      {0, 0, 0, 2},
      {0, 0, 0, 1}}},
    /* 2.5 routes each, rounded up. */
    {"a cap that is no whole number",
     "trigger=per-rank threshold=1.3 smallest-gemm=1",
     {10},
     {{3, 3, 3, 1}}},
    {"no routes", "trigger=per-expert threshold=0 smallest-gemm=1", {0}, {{0}}},
};

TEST_EACH(golden_decisions, GOLDEN, row) {
    assert_division(&mp_system_llep, "tokens=1000", row->options, row->total, row->routes[0]);
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
