/* The catalog: see catalog.h. */
#include "harness/cli/catalog.h"

#include <stddef.h>
#include <string.h>

#include "reference/plan/system.h"

const struct cli_entry cli_workloads[] = {
    {"text", "the gate routes real text",
     "The gate chooses, so loads are those of the model as it learns: they move from iteration to "
     "iteration and differ between layers and ranks.",
     "routing: gate"},
    {"balanced", "every expert gets the same number of routes",
     "Replays equal loads in every layer and iteration. The gate still gives the weights, so "
     "gradients stay real. What is left of a system's time when nobody has to wait for a hot "
     "expert.",
     "routing: balanced"},
    {"skewed", "the first few experts get a fixed share of all routes",
     "Replays constant skew: skew-share of the routes spread evenly over the first skew-experts "
     "experts, the rest over the others. Every system meets exactly these loads.",
     "routing: skewed, skew-share: 0.7, skew-experts: 4"},
    {"load", "a given load matrix",
     "Replays a row of routes per source rank and a column per expert, scaled to the routes of an "
     "iteration. No expert can get more than every token, with k experts per token a kth of a "
     "row. Every system meets exactly these loads.",
     "routing: load, load: [[5, 1, 1, 3], [2, 4, 3, 1]]"},
    {"trace", "the loads of a recorded or generated trace",
     "Replays every count of a trace, iteration by iteration, layer by layer and rank by rank; "
     "after its last iteration it begins again. The trace has the job's shape: its layers, experts "
     "and ranks, one micro-batch, and top-k routes of every token. Which token goes where is "
     "arbitrary. Every system meets exactly these loads.",
     "routing: trace, trace: loads.mptrace (or: trace: zipf exponent=1 seed=3)"},
    {0},
};

static const struct cli_capability capabilities[] = {
    {MP_SYSTEM_REPLICATES, "replicates experts",
     "Experts may be on other ranks than their owner's too, for an iteration or for longer."},
    {MP_SYSTEM_DROPS, "drops routes",
     "Routes may be dropped: what they would have taught is not learnt, so losses differ from "
     "those "
     "of other systems. Tables show the share beside the speed-up."},
    {MP_SYSTEM_CHANGES_GATE, "may change the gate",
     "With some of its options tokens go to other experts than the gate chose; losses then differ "
     "from those of other systems."},
    {MP_SYSTEM_MOVES_OWNERS, "moves experts",
     "Where experts are kept between iterations changes during training."},
    {MP_SYSTEM_PLANS_BEFORE_GATE, NULL,
     "It decides something before a layer's loads are known, as what is copied during attention."},
    {MP_SYSTEM_UNEVEN_EXPERTS, NULL, "Works when experts can't be divided evenly over ranks."},
    {MP_SYSTEM_MORE_RANKS, NULL, "Works with more ranks than experts."},
    {MP_SYSTEM_UNATTAINABLE, "a yardstick, no system",
     "For comparison. Tables call it unattainable. What it does at no cost takes time on every "
     "machine."},
    {MP_SYSTEM_USES_TRANSITIONS, NULL,
     "It looks at how tokens go from an expert of one layer to an expert of the next."},
};
enum { CAPABILITIES = sizeof capabilities / sizeof *capabilities };

const struct cli_capability *cli_capability_find(const char *name) {
    const struct cli_capability *found = capabilities;
    while (strcmp(mp_system_capability_name(found->bit), name) != 0)
        found++;
    return found;
}

json_t *cli_pack_capabilities(unsigned set) {
    json_t *names = json_array();
    for (int i = 0; i < CAPABILITIES; i++)
        if (set & capabilities[i].bit)
            json_array_append_new(names,
                                  json_string(mp_system_capability_name(capabilities[i].bit)));
    return names;
}
