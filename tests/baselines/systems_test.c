/* All systems of this build register, can be found by name, have the defaults that their pages
 * say, and refuse to be without experts. */
#include "baselines/systems.h"
#include "tests/reference/plan/system_support.h"

/* A line each: the commands of baselines/README.md add to them. */
/* clang-format off */
static const struct {
    const char *name, *defaults;
} expected[] = {
    {"ep", "expert-parallel=auto"},
    {"deepep", "expert-parallel=auto"},
    {"deepspeed",
     "expert-parallel=auto capacity-factor=1 min-capacity=4 drop-tokens=yes policy=auto "
     "formula=deepspeed padded=yes dispatch=sparse zero=0 multi-rank-bucket-allreduce=yes "
     "offload-optimizer=no"},
    {"eplb",
     "policy=auto replicas=auto groups=1 interval=10 window=10 dispatch=even moves=exposed "
     "utilisation=1"},
    {"fastermoe",
     "policy=paper bandwidth=0 expert-flops=0 alpha=0 element-bytes=4 shadows=all "
     "smart-schedule=yes group-size=0 topology-gate=no outgoing=released "
     "outgoing-fraction=0.14 local-bandwidth=0"},
    {"flexmoe",
     "policy=cost-model slots=auto interval=50 threshold=1.2 rounds=10 capacity-factor=0 "
     "moves=asynchronous offload-optimizer=no"},
    {"frugal",
     "window=5 overlap=auto memory=auto calibrate=yes reshard-interval=100 rematerialise=no"},
    {"fssdp",
     "window=5 overlap=auto memory=auto calibrate=yes reshard-interval=100 rematerialise=no"},
    {"free-balance", ""},
    {"harmoeny", "least=150"},
    {"hetumoe", "expert-parallel=auto capacity-factor=1 exchange=leader slots=intended"},
    {"hiermoe",
     "depth=auto hierarchy=node interval=1 gamma=10 sample=1024 latency=0.0005 "
     "latency-in-node=0.00057 inter= intra="},
    {"laer",
     "slots=auto window=5 layout=planned even=yes priority-queue=yes perturbations=0 "
     "bandwidth-in-node=0 bandwidth-between-nodes=0 seconds-per-route=0 rematerialise=yes "
     "prefetch=1"},
    {"llep", "trigger=per-expert threshold=1.3 alpha=1 smallest-gemm=1024 copies=all"},
    {"lp", "placement=cyclic replicas=2 redundant=auto interval=0 window=10"},
    {"moetuner",
     "solver=ilp window=10 interval=0 gap=0.025 even=0.001 nodes=2000 program-layers=auto"},
    {"moonep", "tolerance=0"},
    {"nodewise", "window=1 cover=auto memory=auto rematerialise=auto pool=yes ahead=auto ranks-per-gate=auto early=yes even=yes correct=yes chunks=auto"},
    {"skeleton", "owners=contiguous"},
    {"smartmoe",
     "solver=greedy groups=8 interval=10 history=2 threshold=1 state=moves "
     "smart-schedule=yes group-size=0 shadows=all"},
    {"swiftmoe", "slots=auto capacity-factor=1 offload-optimizer=no"},
    {"tamoe", "outside-cost=4 pull=0.5 capacity-factor=0"},
    {"tutel", "r=1 capacity-factor=1 exchange=auto degree=auto trials=1 message-cost=4e-06"},
    {"ultraep",
     "redundant=2 threshold=1 tolerance=0.01 least-quota=1024 empty-owners=no locality=yes"},
};
/* clang-format on */

/* Whether the name is in the list. */
static bool is_one(const char *const list[], const char *name) {
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* What is learnt depends on these alone. */
static const char *const dropping[] = {"deepspeed", "flexmoe", "hetumoe", "swiftmoe",
                                       "tamoe",     "tutel",   NULL};
static const char *const gating[] = {"fastermoe", NULL};

TEST(all_systems_register_once) {
    const struct mp_setting empty = setting_of("experts=0");
    struct mp_systems systems = {0};
    assert_works(mp_systems_register_all(&systems, &error));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct mp_system *system = mp_systems_find(&systems, expected[i].name, NULL);
        char line[512];
        assert_non_null(system);
        assert_string_equal(system->name, expected[i].name);
        assert_int_equal(!(system->capabilities & MP_SYSTEM_DROPS),
                         !is_one(dropping, system->name));
        assert_int_equal(!(system->capabilities & MP_SYSTEM_CHANGES_GATE),
                         !is_one(gating, system->name));
        AUTO(allocated) void *options = calloc(1, system->options_size + 1);
        assert_non_null(options);
        assert_works(mp_options_set_defaults(system->options, options, &error));
        mp_options_line(system->options, options, line, sizeof line);
        assert_string_equal(line, expected[i].defaults);
        assert_refused(system, &empty, options,
                       formatted("%s needs layers, experts and ranks of at least 1, not 1, 0 and 4",
                                 system->name));
    }
    struct mp_error unknown = {0};
    assert_null(mp_systems_find(&systems, "fsdp", &unknown));
    assert_string_equal(unknown.text, "unknown system \"fsdp\"; did you mean \"fssdp\"?");
    assert_int_equal(mp_systems_register_all(&systems, NULL), MP_EINVAL);
}
