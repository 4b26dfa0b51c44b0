#include "baselines/systems.h"

#include "baselines/deepep/deepep.h"
#include "baselines/deepspeed/deepspeed.h"
#include "baselines/ep/ep.h"
#include "baselines/eplb/eplb.h"
#include "baselines/fastermoe/fastermoe.h"
#include "baselines/flexmoe/flexmoe.h"
#include "baselines/free_balance/free_balance.h"
#include "baselines/harmoeny/harmoeny.h"
#include "baselines/hetumoe/hetumoe.h"
#include "baselines/hiermoe/hiermoe.h"
#include "baselines/laer/laer.h"
#include "baselines/llep/llep.h"
#include "baselines/lp/lp.h"
#include "baselines/moetuner/moetuner.h"
#include "baselines/moonep/moonep.h"
#include "baselines/nodewise/nodewise.h"
#include "baselines/skeleton/skeleton.h"
#include "baselines/smartmoe/smartmoe.h"
#include "baselines/swiftmoe/swiftmoe.h"
#include "baselines/tamoe/tamoe.h"
#include "baselines/tutel/tutel.h"
#include "baselines/ultraep/ultraep.h"
#include "reference/fssdp/fssdp.h"

int mp_systems_register_all(struct mp_systems *systems, struct mp_error *error) {
    /* A line each: the commands of baselines/README.md add to them. */
    /* clang-format off */
    static const struct mp_system *const all[] = {
        &mp_system_ep,
        &mp_system_deepep,
        &mp_system_deepspeed,
        &mp_system_eplb,
        &mp_system_fastermoe,
        &mp_system_flexmoe,
        &mp_system_frugal,
        &mp_system_fssdp,
        &mp_system_free_balance,
        &mp_system_harmoeny,
        &mp_system_hetumoe,
        &mp_system_hiermoe,
        &mp_system_laer,
        &mp_system_llep,
        &mp_system_lp,
        &mp_system_moetuner,
        &mp_system_moonep,
        &mp_system_nodewise,
        &mp_system_skeleton,
        &mp_system_smartmoe,
        &mp_system_swiftmoe,
        &mp_system_tamoe,
        &mp_system_tutel,
        &mp_system_ultraep,
    };
    /* clang-format on */

    for (size_t index = 0; index < sizeof all / sizeof all[0]; index++) {
        MP_TRY(mp_systems_register(systems, all[index], error));
    }
    return MP_OK;
}
