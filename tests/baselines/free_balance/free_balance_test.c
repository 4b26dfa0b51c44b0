/* The system free-balance: what it says of itself, and how it cuts loads. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

TEST(it_says_what_it_is) {
    assert_true(mp_system_free_balance.capabilities & MP_SYSTEM_UNATTAINABLE);
    assert_contains(mp_system_free_balance.title, "unattainable");
    assert_contains(mp_system_free_balance.models, "no system attains");
}

/* Routes of four experts on three ranks that own 0 and 1, 2, 3, and what becomes of them. */
struct known_case {
    const char *name, *total, *pieces; /* see assert_division */
};
static const struct known_case KNOWN[] = {
    {"balanced already", "5 5 10 10", ""},
    {"the remainder goes to the fullest", "5 6 10 10", ""},
    {"one hot expert", "30", "0=10,10,10"},
    /* The second piece is of the other expert, which has most left. */
    {"two hot experts", "50 50", "0=17,33 1=17,0,33"},
    {"two ranks over their share", "20 0 16", "0=12,0,8 2=0,12,4"},
    {"several cuts of one rank", "8 8 2", "0=4,4 1=2,0,6"},
    {"an expert that is given up", "6 6 0 6", "0=0,6"},
    {"a route", "0 0 0 1", ""},
    {"no routes", "0", ""},
};

TEST_EACH(known_loads_are_cut_as_documented, KNOWN, row) {
    assert_division(&mp_system_free_balance, "experts=4 ranks=3", NULL, row->total, row->pieces);
}
