/* The catalog: see catalog.h. */
#include "harness/cli/catalog.h"

#include <stddef.h>
#include <string.h>

const struct cli_entry cli_gates[] = {
    {"gshard", "GShard: two experts per token",
     "Lepikhin et al., GShard, ICLR 2021, section 2.2 and algorithm 1",
     "Softmax over all experts, the two largest win, their probabilities are divided by their sum. "
     "The auxiliary loss is the experts' share of first choices times their mean probability. "
     "Nothing is dropped: experts have no capacity, so that the loss does not depend on the "
     "system.",
     "gate: gshard"},
    {"switch", "Switch: one expert per token",
     "Fedus et al., Switch Transformers, JMLR 2022, section 2.1 and equations 4 to 6",
     "Softmax over all experts, the largest wins and its probability scales the expert's output. "
     "The auxiliary loss is the experts' share of tokens times their mean probability. Nothing is "
     "dropped.",
     "gate: switch"},
    {0},
};

const struct cli_entry cli_workloads[] = {
    {"text", "the gate routes real text", "",
     "The gate chooses, so loads are those of the model as it learns: they move from iteration to "
     "iteration and differ between layers and ranks.",
     "routing: gate"},
    {"balanced", "every expert gets the same number of routes", "",
     "Replays equal loads in every layer and iteration. The gate still gives the weights, so "
     "gradients stay real. What is left of a system's time when nobody has to wait for a hot "
     "expert.",
     "routing: balanced"},
    {"skewed", "the first few experts get a fixed share of all routes", "",
     "Replays constant skew: skew-share of the routes spread evenly over the first skew-experts "
     "experts, the rest over the others. Every system meets exactly these loads.",
     "routing: skewed, skew-share: 0.7, skew-experts: 4"},
    {"load", "a given load matrix", "",
     "Replays a row of routes per source rank and a column per expert, scaled to the routes of an "
     "iteration. No expert can get more than every token, with gate gshard half of a row. Every "
     "system meets exactly these loads.",
     "routing: load, load: [[5, 1, 1, 3], [2, 4, 3, 1]]"},
    {0},
};

const struct cli_entry *cli_entry_find(const struct cli_entry table[], const char *name) {
    for (const struct cli_entry *entry = table; entry->name; entry++)
        if (!strcmp(entry->name, name))
            return entry;
    return NULL;
}
