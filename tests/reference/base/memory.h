/* Tables of a test program, until it ends. */
#pragma once

#include "reference/base/arena.h"
#include "tests/support.h"

static struct mp_arena memory;

__attribute__((destructor)) static void release_memory(void) {
    mp_arena_release(&memory);
}
