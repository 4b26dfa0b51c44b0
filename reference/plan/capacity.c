#include "reference/plan/capacity.h"

#include <math.h>

static double share_of(const struct mp_capacity_sizes *sizes) {
    return (double)sizes->tokens / (double)sizes->experts;
}

/* Python multiplies the factor by k, the scripted function T/E by that tensor of single precision.
 */
static int64_t deepspeed(const struct mp_capacity_sizes *sizes) {
    float share = (float)share_of(sizes);
    float scale = (float)(sizes->factor * (double)sizes->top_k);
    float product = share * scale;
    int64_t capacity = (int64_t)ceilf(product);
    return capacity < sizes->least ? sizes->least : capacity;
}

static int64_t hetumoe(const struct mp_capacity_sizes *sizes) {
    return sizes->top_k * (int64_t)ceil(share_of(sizes) * sizes->factor);
}

static int64_t tutel(const struct mp_capacity_sizes *sizes) {
    int64_t share = (sizes->tokens + sizes->experts - 1) / sizes->experts;
    return sizes->top_k * (int64_t)(sizes->factor * (double)share);
}

static int64_t megatron(const struct mp_capacity_sizes *sizes) {
    double routes = (double)(sizes->tokens * sizes->top_k);
    return (int64_t)ceil(routes / (double)sizes->experts * sizes->factor);
}

static int64_t fastmoe(const struct mp_capacity_sizes *sizes) {
    return (int64_t)ceil(sizes->factor * (double)sizes->tokens) * sizes->top_k / sizes->experts;
}

static int64_t fastmoe_switch(const struct mp_capacity_sizes *sizes) {
    return (int64_t)ceil(sizes->factor * (double)sizes->tokens / (double)sizes->experts_per_rank);
}

struct mp_capacity_sizes mp_capacity_sizes_of(const struct mp_setting *setting, double factor) {
    int ranks = setting->topology.ranks, experts = mp_setting_whole_experts(setting);
    return (struct mp_capacity_sizes){
        .tokens = setting->tokens_per_rank,
        .experts = experts,
        .top_k = mp_setting_choices(setting),
        .factor = factor,
        .experts_per_rank = experts > ranks ? experts / ranks : 1,
    };
}

int mp_capacity_check(const char *system, const struct mp_setting *setting, double factor,
                      int64_t capacity, struct mp_error *error) {
    if (capacity >= 1 && capacity <= INT32_MAX)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s needs a capacity of 1 to %d routes of a rank for an expert, not %lld: %lld "
                   "tokens, top-%d, %d experts, capacity factor %g",
                   system, INT32_MAX, (long long)capacity, (long long)setting->tokens_per_rank,
                   mp_setting_choices(setting), mp_setting_whole_experts(setting), factor);
}

const struct mp_capacity_rule mp_capacity_rules[MP_CAPACITY_FORMULAS] = {
    [MP_CAPACITY_DEEPSPEED] = {"deepspeed", "DeepSpeed, deepspeed/moe/sharded_moe.py", false,
                               deepspeed},
    [MP_CAPACITY_HETUMOE] = {"hetumoe", "PKU-DAIR/Hetu, v1: gates TopK, KTop1 and SAM", false,
                             hetumoe},
    [MP_CAPACITY_TUTEL] = {"tutel", "microsoft/tutel, tutel/impls/fast_dispatch.py", false, tutel},
    [MP_CAPACITY_MEGATRON] = {"megatron", "NVIDIA/Megatron-LM, core", false, megatron},
    [MP_CAPACITY_FASTMOE] = {"fastmoe", "laekov/fastmoe: GShard gate", false, fastmoe},
    [MP_CAPACITY_FASTMOE_SWITCH] = {"fastmoe-switch", "laekov/fastmoe: Switch gate", true,
                                    fastmoe_switch},
};
