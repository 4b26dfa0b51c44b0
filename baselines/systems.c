#include "baselines/systems.h"

#define SYSTEM(name) &mp_system_##name,

int mp_systems_register_all(struct mp_systems *systems, struct mp_error *error) {
    static const struct mp_system *const all[] = {MP_SYSTEMS(SYSTEM)};

    for (size_t index = 0; index < sizeof all / sizeof all[0]; index++) {
        MP_TRY(mp_systems_register(systems, all[index], error));
    }
    return MP_OK;
}
