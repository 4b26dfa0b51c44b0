/* Plain expert parallelism (FastMoE, arXiv 2103.13262): every expert stays on its
 * rank, every token travels to its experts and back.  What all other systems are compared with.
 *
 * With more ranks than experts, or where `expert-parallel` says so, experts are replicated over
 * groups of ranks (reference/plan/groups.h), as Megatron-LM's expert-data parallelism has it. */
#pragma once

#include "reference/plan/groups.h"

/* Named in the option table of ep.c. */
struct mp_ep_options {
    int expert_parallel; /* ranks of a group; MP_AUTO: min(R, E); MP_ALL: R */
};

/* For systems that plan as this one does: MP_EXPERT_GROUPS_HOOKS and these.  Errors name `system`.
 */
extern const struct mp_option mp_ep_option_table[];
int mp_ep_create(const char *system, const struct mp_setting *setting, const void *options,
                 struct mp_expert_groups *groups, struct mp_error *error);
int mp_ep_after_gate(void *self, const struct mp_load *load, struct mp_plan *plan,
                     struct mp_error *error);
