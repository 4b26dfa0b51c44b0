#include "profiler/straggler/straggler.h"

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"

enum { SPANS_LIMIT = 100000000 };

const char *mp_abstention_text(enum mp_abstention abstention) {
    switch (abstention) {
    case MP_ABSTAINS_ONE_RANK:
        return "one rank waits for nobody";
    case MP_ABSTAINS_MISSING:
        return "ranks left no recording, so who is waited for is not known";
    case MP_ABSTAINS_NO_SPANS:
        return "no steady iteration was recorded by every rank (the first is left out)";
    case MP_ABSTAINS_NO_MEETINGS:
        return "the recording says nothing of ranks waiting for each other";
    case MP_ABSTAINS_CLOCKS:
        return "the ranks' clocks are too far apart: their times were put together where they "
               "leave meetings, so slow transfers and late beginnings have no name";
    case MP_ABSTAINS_NO_LOADS:
        return "no loads were recorded, so how even the experts were is not known";
    case MP_ABSTAINS_NO_TOKENS:
        return "expert spans don't say how many tokens they had, so more tokens can't be told from "
               "a slow rank";
    case MP_ABSTAINS_FEW_ITERATIONS:
        return "fewer than 5 iterations can't tell what is always slow from what was once";
    case MP_ABSTAINS_CUT:
        return "a rank's recording ends early: only iterations that all ranks recorded are here";
    case MP_ABSTAINS_UNMATCHED:
        return "some sends and receives have no other end, so who waits for whom there is not "
               "known";
    }
    return "?";
}

/* What makes any analysis of waiting impossible. */
static unsigned hopeless(const struct mp_straggler_input *input) {
    unsigned found = 0;
    if (input->times.ranks + input->ranks_missing <= 1)
        found |= MP_ABSTAINS_ONE_RANK;
    if (input->ranks_missing > 0)
        found |= MP_ABSTAINS_MISSING;
    if (input->times.iterations == 0 || input->times.spans == 0)
        found |= MP_ABSTAINS_NO_SPANS;
    return found;
}

static bool anybody_meets(const struct mp_graph *graph) {
    for (int g = 0; g < graph->groups; g++)
        if (graph->group[g].meets)
            return true;
    return false;
}

static void find_untold(struct analysis *analysis) {
    const struct mp_straggler_input *input = analysis->input;
    const struct mp_recorded_times *times = &analysis->times;
    uint32_t evidence = (analysis->causes.knows_tokens ? MP_EVIDENCE_TOKENS : 0u) |
                        (analysis->causes.knows_usual ? MP_EVIDENCE_ITERATIONS : 0u) |
                        (analysis->out->clock_free ? 0u : MP_EVIDENCE_CLOCK) | MP_EVIDENCE_CPU;
    for (size_t s = 0; s < times->spans; s++) {
        evidence |= 1u << times->span[s].phase;
        if (input->collected && input->collected[s] > 0)
            evidence |= 1u << MP_PHASE_COLLECT;
    }
    for (int i = 0; i < times->iterations * times->ranks; i++) {
        if (!(times->rank[i].cpu > 0))
            evidence &= ~(uint32_t)MP_EVIDENCE_CPU;
        if (input->between && input->between[i].seconds > 0)
            evidence |= 1u << input->between[i].phase;
    }
    for (int c = 0; c < MP_CAUSES; c++)
        if (mp_cause_kind((enum mp_cause)c)->needs & ~evidence)
            analysis->out->untold |= 1u << c;
}

static int analyse_waiting(struct analysis *analysis, struct mp_error *error) {
    struct mp_straggler *out = analysis->out;
    MP_TRY(analysis_make_graph(analysis, error));
    if (!anybody_meets(analysis->graph)) {
        out->abstentions |= MP_ABSTAINS_NO_MEETINGS;
        return MP_OK;
    }
    MP_TRY(mp_waits_find(analysis->graph, analysis->input->number, &analysis->waits, error));
    MP_TRY(mp_causes_find(analysis->graph, &analysis->causes, error));
    MP_TRY(analysis_find(analysis, error));
    MP_TRY(analysis_find_places(analysis, error));
    MP_TRY(mp_slowdowns_find(analysis->graph, &out->memory, &out->slowdowns, error));
    if (out->clock_free)
        out->abstentions |= MP_ABSTAINS_CLOCKS;
    if (!analysis->causes.knows_tokens)
        out->abstentions |= MP_ABSTAINS_NO_TOKENS;
    if (!analysis->causes.knows_usual)
        out->abstentions |= MP_ABSTAINS_FEW_ITERATIONS;
    if (analysis->graph->unmatched)
        out->abstentions |= MP_ABSTAINS_UNMATCHED;
    find_untold(analysis);
    return MP_OK;
}

const struct mp_straggler_balance *mp_straggler_hot_expert(
    const struct mp_straggler *straggler, const struct mp_straggler_finding *finding) {
    const bool in_layer = finding->layer >= 0 && finding->layer < straggler->layers;
    const struct mp_straggler_balance *balance =
        in_layer ? &straggler->layer[finding->layer] : &straggler->balance;
    return finding->cause == MP_CAUSE_ROUTING && balance->hottest_expert >= 0 ? balance : NULL;
}

static void end_analysis(struct analysis *analysis) {
    mp_waits_destroy(&analysis->waits);
    mp_causes_destroy(&analysis->causes);
    mp_graph_destroy(analysis->graph);
    mp_arena_release(&analysis->memory);
}
MP_END(analysis, struct analysis, end_analysis(it))

int mp_straggler_analyse(const struct mp_straggler_input *input, struct mp_straggler *straggler,
                         struct mp_error *error) {
    MP_AUTO(analysis)
    struct analysis analysis = {.input = input, .times = input->times, .out = straggler};
    int code = MP_OK;
    *straggler = (struct mp_straggler){
        .ranks = input->times.ranks, .iterations = input->times.iterations, .most_waited_for = -1};
    if (input->times.spans > SPANS_LIMIT)
        return mp_fail(error, MP_ELIMIT, "%zu spans are too many to analyse at once; at most %d",
                       input->times.spans, SPANS_LIMIT);
    straggler->abstentions = hopeless(input);
    if (!straggler->abstentions)
        code = analyse_waiting(&analysis, error);
    if (!code)
        code = analysis_find_balance(&analysis, error);
    if (input->ranks_cut > 0)
        straggler->abstentions |= MP_ABSTAINS_CUT;
    if (!input->routes)
        straggler->abstentions |= MP_ABSTAINS_NO_LOADS;
    if (code)
        mp_straggler_destroy(straggler);
    return code;
}

void mp_straggler_destroy(struct mp_straggler *straggler) {
    mp_arena_release(&straggler->memory);
    *straggler = (struct mp_straggler){0};
}
