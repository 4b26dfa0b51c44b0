/* What the straggler analysis found, in words: one place for text reports and pages. */
#pragma once

#include <stddef.h>

#include "profiler/straggler/straggler.h"
#include "results/report/command.h"

enum { WAITING_TEXT = 1024 };

/* Of the run that was analysed: what its advice depends on. */
struct waiting_context {
    const char *database; /* as it was opened; borrowed */
    int64_t run_id;
    bool one_host;   /* all ranks are on it: no network is between them */
    bool others;     /* another program than moeperf-train was recorded */
    double taken;    /* as processor_taken of v_run; NAN: not known */
    bool can_replay; /* what would have been otherwise can be worked out from its spans, */
    bool can_plan;   /* also with other systems: it kept its job and its loads */
};

/* What to do, in words, and a command that says more; "" for none. */
struct waiting_advice {
    char words[WAITING_TEXT], command[COMMAND_TEXT];
};

const char *waiting_phase(int phase); /* "other" of none that has a name */
/* "layer 1 expert", or the phase alone. */
const char *waiting_place(int phase, int layer, char *text, size_t size);

/* A cause as people read it; programs read mp_cause_name. */
const char *waiting_cause(enum mp_cause cause);

/* "rank 1 waits for rank 0", "slow rank 3" ...: a few words. */
const char *waiting_title(const struct mp_straggler *found,
                          const struct mp_straggler_finding *finding, char *text, size_t size);

/* Who waits for whom, how much, why, how often; sentences without the run's name. */
const char *waiting_text(const struct mp_straggler *found,
                         const struct mp_straggler_finding *finding, char *text, size_t size);

void waiting_advise(const struct mp_straggler *found, const struct mp_straggler_finding *finding,
                    const struct waiting_context *context, struct waiting_advice *advice);

/* A sentence for a run without findings, or why there is no analysis. */
const char *waiting_nothing(const struct mp_straggler *found, char *text, size_t size);

/* How good the clocks are. */
const char *waiting_clocks(const struct mp_straggler *found, char *text, size_t size);
