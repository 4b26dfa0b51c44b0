/* All systems that this build knows, in the order in which they are listed: the descriptor of
 * system `name` is mp_system_name, in its folder. */
#pragma once

#include "reference/plan/system.h"

/* A line each: the commands of baselines/README.md add to them. */
/* clang-format off */
#define MP_SYSTEMS(one) \
    one(ep) \
    one(deepep) \
    one(deepspeed) \
    one(eplb) \
    one(fastermoe) \
    one(flexmoe) \
    one(frugal) \
    one(fssdp) \
    one(free_balance) \
    one(harmoeny) \
    one(hetumoe) \
    one(hiermoe) \
    one(laer) \
    one(llep) \
    one(lp) \
    one(moetuner) \
    one(moonep) \
    one(nodewise) \
    one(skeleton) \
    one(smartmoe) \
    one(swiftmoe) \
    one(tamoe) \
    one(tutel) \
    one(ultraep)
/* clang-format on */
#define MP_DECLARE_SYSTEM(name) extern const struct mp_system mp_system_##name;
MP_SYSTEMS(MP_DECLARE_SYSTEM)

/* Registers every system; `systems` starts zeroed.  Errors: those of mp_systems_register, which
 * mean that a system was written wrongly. */
int mp_systems_register_all(struct mp_systems *systems, struct mp_error *error);
