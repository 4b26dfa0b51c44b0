#include "reference/schedule/exchange/descriptors.h"

static int steps(int ranks, int group_size) {
    return group_size >= 1 && ranks % group_size == 0 ? ranks / group_size : 0;
}

const struct mp_exchange mp_exchange_pipelined = {
    .name = "pipelined",
    .title = "in steps between groups of ranks, under the experts' work",
    .source = "FasterMoE, PPoPP 2022, section 4 (smart schedule), and its code",
    .models = "In ranks / group-size steps between groups of neighbouring ranks: in step s the "
              "ranks of group i send to group i + s and receive from group i - s, compute what has "
              "arrived, and return it, while later steps are on their way. Routes of copies that "
              "are fetched after the gate are computed last.",
    .use = "system: fastermoe or smartmoe, options: {smart-schedule: yes, group-size: 2}",
    .steps = steps,
    .keeps_late_rows = true,
    .rounds = 1,
};
