/* Findings in words: see waiting_words.h. */
#include "results/report/waiting_words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "profiler/record/record.h"
#include "results/report/groups.h"

#define LEAST_SAVED 0.005 /* of an iteration: less is not worth words */
#define MUCH_OUTSIDE 0.2  /* of an iteration: others may wait in so much of it */

const char *waiting_phase(int phase) {
    return phase < MP_PHASES ? mp_phase_name((enum mp_phase)phase) : "other";
}

const char *waiting_place(int phase, int layer, char *text, size_t size) {
    if (layer >= 0)
        snprintf(text, size, "layer %d %s", layer, waiting_phase(phase));
    else
        snprintf(text, size, "%s", waiting_phase(phase));
    return text;
}

const char *waiting_cause(enum mp_cause cause) {
    return cause == MP_CAUSE_BEFORE ? "late start" : mp_cause_name(cause);
}

/* A text that is being put together, and what it is about. */
struct words {
    char *text;
    size_t length, size;
    const struct mp_straggler *found;
    const struct mp_straggler_finding *finding;
    const struct waiting_context *context; /* of advice */
};

static void say(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct words *words, const char *format, ...) {
    va_list arguments;
    if (words->length + 1 >= words->size)
        return;
    va_start(arguments, format);
    int length =
        vsnprintf(words->text + words->length, words->size - words->length, format, arguments);
    va_end(arguments);
    words->length += length > 0 ? (size_t)length : 0;
}

const char *waiting_title(const struct mp_straggler *found,
                          const struct mp_straggler_finding *finding, char *text, size_t size) {
    const char *cause = waiting_cause(finding->cause);
    if (finding->stage >= 0)
        snprintf(text, size, "Ranks wait for pipeline stage %d", finding->stage);
    else if (finding->rank < 0)
        snprintf(text, size, "Ranks wait for each other: %s", cause);
    else if (found->ranks == 2)
        snprintf(text, size, "Rank %d waits for rank %d: %s", 1 - finding->rank, finding->rank,
                 cause);
    else
        snprintf(text, size, "Ranks wait for rank %d: %s", finding->rank, cause);
    return text;
}

/* Waiting is a mean over the iterations, and so is what it is a share of: no rank waits longer than
 * an iteration lasts, but on a busy machine its mean may exceed the median iteration. */
static void say_who(struct words *words) {
    const struct mp_straggler_finding *finding = words->finding;
    double ms = 1e3 * finding->waiting, whole = 1e3 * words->found->slowdowns.base;
    if (finding->stage >= 0)
        say(words,
            "a rank waits %.2f ms of each %.2f ms iteration (%.0f %%) for stage %d of the "
            "pipeline, beyond what filling and draining it takes",
            ms, whole, 100 * ms / whole, finding->stage);
    else if (finding->rank < 0)
        say(words,
            "ranks wait %.2f ms of each %.2f ms iteration (%.0f %%) for one another, now for this "
            "one and now for that",
            ms, whole, 100 * ms / whole);
    else if (words->found->ranks == 2)
        say(words, "rank %d waits %.2f ms of each %.2f ms iteration (%.0f %%) for rank %d",
            1 - finding->rank, ms, whole, 100 * ms / whole, finding->rank);
    else
        say(words, "each other rank waits %.2f ms of each %.2f ms iteration (%.0f %%) for rank %d",
            ms, whole, 100 * ms / whole, finding->rank);
    if (finding->rank >= 0 && words->found->ranks > 2 && finding->victim >= 0 &&
        finding->victim != finding->rank)
        say(words, ", rank %d most (%.2f ms)", finding->victim, 1e3 * finding->victim_waiting);
}

/* ---- why, and what to do: a row and a function for each cause ---- */

static void say_routing(struct words *words) {
    const struct mp_straggler_finding *finding = words->finding;
    const struct mp_straggler_balance *hot = mp_straggler_hot_expert(words->found, finding);
    if (finding->rank >= 0 && !isnan(finding->tokens))
        say(words,
            "it computes %.2f x the mean tokens%s (routing), and what is beyond the mean takes "
            "it %.2f ms%s",
            finding->tokens, finding->layer >= 0 ? " there" : "", 1e3 * finding->longer,
            finding->here < 0.995 ? " in all layers" : "");
    else
        say(words, "experts get uneven tokens (routing)");
    if (hot)
        say(words, ". Expert %d of layer %d gets most there, %.0f %% of the layer's routes",
            hot->hottest_expert, hot->hottest_layer, 100 * hot->hottest_share);
}

static void say_one_off(struct words *words) {
    say(words, "it was late now and then, by %.2f ms in iteration %lld (one-off)",
        1e3 * words->finding->worst, (long long)words->finding->worst_iteration);
}

static void say_transfers(struct words *words) {
    const struct mp_straggler_finding *finding = words->finding;
    char from[40] = "";
    if (finding->from >= 0)
        snprintf(from, sizeof from, " from rank %d", finding->from);
    say(words, "%s transfers%s take %.2f ms longer (%s)", finding->rank >= 0 ? "its" : "their",
        from, 1e3 * finding->longer, mp_cause_name(finding->cause));
}

static void say_before(struct words *words) {
    say(words,
        "it is late already when its iterations begin, and nothing that was recorded before them "
        "says why (late start)");
}

static void say_unknown(struct words *words) {
    say(words, words->found->slowdowns.pipelines > 1
                   ? "why can't be told from this recording: a slow rank and a stage with more to "
                     "do look the same where a stage has one rank and no layers are recorded"
                   : "why can't be told from this recording");
}

static void advise_transfers(struct words *words) {
    if (words->context->one_host)
        say(words, "All ranks are on one host, so no network is between them: look at what moves "
                   "their data there, and at other programs on its processors.");
    else
        say(words, "%s",
            words->finding->rank >= 0 ? "Look at its links and at who shares them."
                                      : "Look at the network and at who shares it.");
}

static void advise_one_off(struct words *words) {
    say(words, "Look at what its host did in iteration %lld.",
        (long long)words->finding->worst_iteration);
}

static void advise_unknown(struct words *words) {
    say(words,
        "It would take tokens of every expert, %d iterations or more and a common clock to tell.",
        MP_STRAGGLER_ITERATIONS);
}

/* Who does what longer is in `does` (NULL: spends) and `longer` ("it spends 3.20 ms longer ..."),
 * unless a function says it; what helps is in `help`, unless a function says that. */
static const struct {
    const char *does, *longer;
    void (*say)(struct words *words);
    const char *help;
    void (*advise)(struct words *words);
    bool hides; /* causes that nothing was recorded of look like this one */
} causes[MP_CAUSES] = {
    [MP_CAUSE_ROUTING] = {.say = say_routing},
    [MP_CAUSE_SLOW] = {.does = "it takes",
                       .longer = "per iteration at the same tokens",
                       .help = "No system helps a slow rank: look at its host and device (other "
                               "programs on its cores, clock frequency, temperature), or leave it "
                               "out."},
    [MP_CAUSE_ONE_OFF] = {.say = say_one_off, .advise = advise_one_off, .hides = true},
    [MP_CAUSE_COMMUNICATION] = {.say = say_transfers, .advise = advise_transfers},
    [MP_CAUSE_LINK] = {.say = say_transfers, .advise = advise_transfers},
    [MP_CAUSE_STAGE] = {.does = "each of its ranks works",
                        .longer = "than a mean stage's, and none of them is slow",
                        .help = "Give the stages layers by the time they take, not by their "
                                "number: the embedding and the head count as well."},
    [MP_CAUSE_DATA] = {.longer = "to get its data",
                       .help = "Have data ready ahead of time: more workers that load it, and a "
                               "faster or nearer disk."},
    [MP_CAUSE_CHECKPOINT] = {.longer = "on checkpoints",
                             .help = "Write checkpoints beside the training, less often, or from "
                                     "all ranks alike."},
    [MP_CAUSE_COLLECT] = {.longer = "on collecting its interpreter's garbage",
                          .help = "Collect garbage on all ranks in the same iterations (Python: "
                                  "gc.disable, and gc.collect every so many), so that they wait "
                                  "once."},
    [MP_CAUSE_STOLEN] = {.does = "it takes",
                         .longer = "per iteration, as others have its processor",
                         .help = "Look for other programs on its processors, bind ranks to cores, "
                                 "and leave some for what helps them."},
    [MP_CAUSE_HOST] = {.longer = "on planning, validation or between its phases",
                       .help = "Plan less often, and look at what else its host process does.",
                       .hides = true},
    [MP_CAUSE_BEFORE] = {.say = say_before,
                         .help = "Look at what it does between iterations: checkpoints, "
                                 "validation, writing.",
                         .hides = true},
    [MP_CAUSE_UNKNOWN] = {.say = say_unknown, .advise = advise_unknown},
};

static void say_why(struct words *words) {
    const struct mp_straggler_finding *finding = words->finding;
    const char *does = causes[finding->cause].does;
    if (causes[finding->cause].say)
        causes[finding->cause].say(words);
    else
        say(words, "%s %.2f ms longer %s (%s)",
            does                 ? does
            : finding->rank >= 0 ? "it spends"
                                 : "they spend",
            1e3 * finding->longer, causes[finding->cause].longer, mp_cause_name(finding->cause));
    if (!isnan(finding->on_core)) /* of others than whose processor is stolen it is not known */
        say(words, ": it had a core for only %.0f %% of its time", 100 * finding->on_core);
}

/* What it might be as well, of which nothing was recorded. */
static void say_untold(struct words *words) {
    const char *between = " It might be ";
    unsigned untold =
        causes[words->finding->cause].hides && words->context->others ? words->found->untold : 0;
    for (int c = MP_CAUSE_DATA; c < MP_CAUSE_HOST; c++)
        if (untold >> c & 1) {
            say(words, "%s%s (no %s)", between, mp_cause_name((enum mp_cause)c),
                mp_cause_kind((enum mp_cause)c)->evidence);
            between = ", ";
        }
    if (*between == ',')
        say(words, ": that can't be told from what was recorded.");
}

const char *waiting_text(const struct mp_straggler *found,
                         const struct mp_straggler_finding *finding, char *text, size_t size) {
    struct words words = {text, 0, size, found, finding, NULL};
    char place[80];
    say_who(&words);
    if (finding->cause != MP_CAUSE_BEFORE && finding->cause != MP_CAUSE_UNKNOWN)
        say(&words, ", %.0f %% of it from %s", 100 * finding->here,
            waiting_place(finding->phase, finding->layer, place, sizeof place));
    say(&words, ": ");
    say_why(&words);
    say(&words, ". It matters in %.0f %% of the iterations%s", 100 * finding->seen,
        finding->chronic ? " and is chronic" : "");
    if (finding->saved >= LEAST_SAVED * found->slowdowns.base)
        say(&words, "; %s an iteration would take %.2f ms less (%.0f %%)",
            finding->cause == MP_CAUSE_ROUTING ? "with even tokens"
            : finding->stage >= 0              ? "with even stages"
                                               : "without it",
            1e3 * finding->saved, 100 * finding->saved / found->slowdowns.base);
    say(&words, ".");
    return text;
}

/* Which system spreads the tokens best can be asked where a system can plan for the run, and how
 * much it would be worth where the run can be replayed. */
static void advise_routing(struct words *words, char command[COMMAND_TEXT]) {
    const struct waiting_context *context = words->context;
    say(words, "A system that spreads tokens over ranks takes this away");
    if (context->can_plan) {
        say(words, ". Which, and how much of it, says:");
        command_text(command, context->database, "predict --run %lld --system all",
                     (long long)context->run_id);
        return;
    }
    say(words, "; which can't be predicted for this run, whose job and loads were not "
               "both recorded (--job, --loads of record and import).");
    if (!context->can_replay)
        return;
    say(words, " What even tokens would be worth, says:");
    command_text(command, context->database, "predict --run %lld --without imbalance",
                 (long long)context->run_id);
}

void waiting_advise(const struct mp_straggler *found, const struct mp_straggler_finding *finding,
                    const struct waiting_context *context, struct waiting_advice *advice) {
    struct words words = {advice->words, 0, sizeof advice->words, found, finding, context};
    advice->command[0] = '\0';
    if (finding->cause == MP_CAUSE_ROUTING)
        advise_routing(&words, advice->command);
    else {
        const enum mp_cause cause = words.finding->cause;
        if (words.context->taken > REPORT_TAKEN)
            say(&words,
                "First run it again when nothing else runs: other programs had the processors for "
                "up "
                "to %.0f %% of the time. ",
                100 * words.context->taken);
        if (causes[cause].advise)
            causes[cause].advise(&words);
        else
            say(&words, "%s", causes[cause].help);
        say_untold(&words);
    }
}

const char *waiting_nothing(const struct mp_straggler *found, char *text, size_t size) {
    static const enum mp_abstention why[] = {MP_ABSTAINS_ONE_RANK, MP_ABSTAINS_NO_SPANS,
                                             MP_ABSTAINS_MISSING, MP_ABSTAINS_NO_MEETINGS};
    for (size_t i = 0; i < MP_LENGTH(why); i++)
        if (found->abstentions & why[i]) {
            snprintf(text, size, "%s.", mp_abstention_text(why[i]));
            return text;
        }
    struct words words = {.text = text, .size = size};
    say(&words,
        "no rank makes the others wait for %.0f %% of an iteration or more; each waits %.2f ms of "
        "%.2f ms.",
        100 * MP_STRAGGLER_LEAST, 1e3 * found->waiting / found->ranks, 1e3 * found->slowdowns.base);
    int most = 0;
    for (int r = 1; r < found->ranks; r++)
        most = found->rank[r].gaps > found->rank[most].gaps ? r : most;
    const double outside = found->rank[most].gaps / found->slowdowns.base;
    if (outside >= MUCH_OUTSIDE)
        say(&words,
            " %.0f %% of an iteration of rank %d lie outside all phases, where waiting can't be "
            "seen.",
            100 * outside, most);
    return text;
}

const char *waiting_clocks(const struct mp_straggler *found, char *text, size_t size) {
    if (found->clock_free)
        snprintf(text, size, "Clocks are off by up to %.1f us and were not used.",
                 1e6 * found->clock_error);
    else
        snprintf(text, size,
                 "Clocks are good to %.1f us (meetings left too early: %d, the worst by %.1f "
                 "us); nothing below %.3f ms per iteration is concluded from them.",
                 1e6 * found->clock_error, found->violations, 1e6 * found->worst_violation,
                 1e3 * found->finest);
    return text;
}
