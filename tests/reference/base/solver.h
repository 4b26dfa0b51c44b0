/* What tests of integer programs need: a solver, which is not installed everywhere. */
#pragma once

#include "reference/base/program.h"
#include "tests/support.h"

/* `error` says why not. */
static inline bool has_solver(struct mp_error *error) {
    char text[64];
    if (mp_program_solver(text, sizeof text, error))
        return false;
    assert_memory_equal(text, "CBC ", 4);
    return true;
}

static inline void need_solver(void) {
    struct mp_error error = {0};
    if (!has_solver(&error))
        skip("%s", error.text);
}
