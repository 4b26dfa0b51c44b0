/* moeperf predict --run: see predict.h. */
#include "harness/cli/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_job.h"
#include "harness/predict/other_system.h"
#include "reference/base/characters.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* Ranks whose costs are all replayed; of more, that of the one who waited least. */
enum { RANKS_REPLAYED = 64, ROWS_LIMIT = 2 * CLI_WORDS_LIMIT + 8, NAME_SIZE = 80 };
static const double MUCH = 0.1; /* share of its time that rates may miss a run by unmentioned */

static struct {
    const char *database, *run;
    struct cli_words without, system, set;
    struct cli_format format;
    bool bound;
} given = {.database = CLI_DATABASE};

/* One line of the table. */
struct what_if_row {
    char name[NAME_SIZE];
    char reason[768]; /* of a system that can't do it; "" otherwise */
    /* The median of an iteration; of a system also all options that it planned with. */
    struct mp_other_answer other;
    double speedup;
};

/* Everything that is asked and answered. */
struct answer {
    struct mp_recorded recorded;
    struct mp_what_if *what_if;
    struct mp_other_system *other; /* NULL unless systems are asked for */
    double again;                  /* s of the own system, from its rates alone; 0: not asked */
    double bound, of_bound;    /* s that no system takes less than, and its share of the run's time;
                                  NAN:    not known */
    double measured, replayed; /* s */
    struct what_if_row row[ROWS_LIMIT];
    int rows;
    int slowest;            /* rank */
    double slowest_seconds; /* without it */
    int layer;              /* that costs most; -1: there is none */
    double layer_seconds;   /* with its experts balanced */
};

static void destroy_answer(struct answer *answer) {
    mp_other_system_destroy(answer->other);
    mp_what_if_destroy(answer->what_if);
    mp_recorded_destroy(&answer->recorded);
}

MP_END(answer, struct answer, destroy_answer(it))

static const struct cli_flag known_flags[] = {
    {"--run", CLI_VALUE, &given.run, "ID", "the recorded run, measured or predicted"},
    {"--db", CLI_VALUE, &given.database, "FILE", "database to read (" CLI_DATABASE ")"},
    {"--without", CLI_REPEATED, &given.without, "WHAT",
     "imbalance: every rank has the mean tokens (or, where\n"
     "tokens were not recorded, experts and exchanges that\n"
     "take the ranks' mean); slowest: the costliest rank\n"
     "keeps its tokens and is as fast as the others with\n"
     "them (or, where tokens were not recorded, works like\n"
     "their mean); stragglers: nobody is slower than others\n"
     "in anything (all three)"},
    {"--system", CLI_REPEATED, &given.system, "NAME[:OPTION=VALUE,...]",
     "another system, planning for the recorded loads, at\n"
     "its defaults but for these options; the run's own\n"
     "keeps the run's; all for all of them; may be repeated"},
    {"--set", CLI_REPEATED, &given.set, "options.KEY=VALUE",
     "sets an option of those systems that have it (moeperf\n"
     "show NAME); may be repeated"},
    {"--bound", CLI_SWITCH, &given.bound, NULL,
     "the best that any placement could do with the run's\n"
     "costs, proven, and how near systems come, also where\n"
     "that takes more than a second or so, and without\n"
     "--system; with it, tables have it anyway"},
    CLI_FORMAT_FLAGS(&given.format),
    {0},
};
const struct cli_usage cli_what_if_usage = {
    "moeperf predict --run ID [--db FILE] [--without WHAT] [--system NAME[:OPTION=VALUE]]",
    "What a recorded run would have taken, had something been otherwise.  Its spans are\n"
    "replayed as the ranks waited for each other; as they were, they give the run's own\n"
    "time back.  Another system plans for the recorded loads; the predictor carries its\n"
    "plans out with costs fitted to the run, and the run's own for comparison; the bound\n"
    "is what no system that drops nothing and keeps gate and exchange takes less than.",
    known_flags,
    0,
    0,
    "  moeperf predict --run 1 --db out/quickstart/results.db\n"
    "  moeperf predict --run 1 --without imbalance --system fssdp --system llep\n"
    "  moeperf predict --run 1 --system fssdp --system fssdp:window=2,overlap=4\n"
    "  moeperf predict --run 1 --system all --set options.capacity-factor=1.25\n"};

/* ---- answering ---- */

static double without_rank(struct answer *answer, int rank) {
    struct mp_what_if_change change = mp_what_if_nothing();
    change.without_rank = rank;
    return mp_what_if_median(answer->what_if, &change);
}

/* The rank whose being as fast as the others saves most. */
static void find_slowest(struct answer *answer) {
    int ranks = answer->recorded.ranks, least = 0;
    double own, blocked, least_blocked = 0;
    for (int r = 0; r < ranks; r++) {
        mp_what_if_rank(answer->what_if, r, &own, &blocked);
        if (r == 0 || blocked < least_blocked) {
            least = r;
            least_blocked = blocked;
        }
    }
    answer->slowest = least;
    answer->slowest_seconds = without_rank(answer, least);
    for (int r = 0; r < ranks && ranks <= RANKS_REPLAYED; r++) {
        double seconds = r == least ? answer->slowest_seconds : without_rank(answer, r);
        if (seconds < answer->slowest_seconds) {
            answer->slowest = r;
            answer->slowest_seconds = seconds;
        }
    }
}

static void find_layer(struct answer *answer) {
    struct mp_what_if_change change = mp_what_if_nothing();
    change.balance = true;
    answer->layer = -1;
    for (int l = 0; l < mp_what_if_layers(answer->what_if); l++) {
        change.layer = l;
        double seconds = mp_what_if_median(answer->what_if, &change);
        if (answer->layer < 0 || seconds < answer->layer_seconds) {
            answer->layer = l;
            answer->layer_seconds = seconds;
        }
    }
}

static struct what_if_row *add_row(struct answer *answer, double seconds) {
    struct what_if_row *row = &answer->row[answer->rows++];
    *row = (struct what_if_row){.other = {.seconds = seconds, .of_bound = NAN}};
    return row;
}

static int add_without(struct answer *answer, const char *what, struct mp_error *error) {
    static const char *const known[] = {"imbalance", "slowest", "stragglers", NULL};
    struct mp_what_if_change change = mp_what_if_nothing();
    if (!strcmp(what, "slowest")) {
        struct what_if_row *row = add_row(answer, answer->slowest_seconds);
        snprintf(row->name, NAME_SIZE, "without slowest rank (%d)", answer->slowest);
        return MP_OK;
    }
    change.balance = !strcmp(what, "imbalance");
    change.ideal = !strcmp(what, "stragglers");
    if (!change.balance && !change.ideal)
        return mp_fail(error, MP_EINVAL,
                       "--without %.80s: should be imbalance, slowest or stragglers%s", what,
                       mp_meant(what, known).text);
    struct what_if_row *row = add_row(answer, mp_what_if_median(answer->what_if, &change));
    snprintf(row->name, NAME_SIZE, "without %s", what);
    return MP_OK;
}

/* A system that can't do the job is a row with the reason. */
static int add_system(struct answer *answer, const struct cli_system_words *words,
                      struct mp_error *error) {
    const struct mp_other_request request = {words->system->name, words->option, words->options};
    struct mp_error own = {0};
    struct mp_other_answer other;
    int code = mp_other_system_ask(answer->other, &request, &other, &own);
    if (code == MP_ENOMEM || code == MP_EIO)
        return mp_fail(error, code, "%s", own.text);
    struct what_if_row *row = add_row(answer, 0);
    row->other = other;
    /* "fssdp:window=2", as far as it fits. */
    snprintf(row->name, NAME_SIZE, "with %s", words->system->name);
    for (int i = 0; i < words->options; i++)
        mp_text_add(row->name, NAME_SIZE, i ? "," : ":", "%s=%s", words->option[i][0],
                    words->option[i][1]);
    memcpy(row->reason, own.text, sizeof row->reason);
    return MP_OK;
}

/* The systems that are asked for, with their options. */
struct request {
    struct cli_system_words *words; /* [count] */
    char (*set)[MP_TEXT_SIZE];      /* [--set], cut in two */
    int count;
    struct mp_arena memory; /* of both */
};
MP_END(request, struct request, mp_arena_release(&it->memory))

/* Adds one --set to the systems that have its option; `cut` is memory for it. */
static int set_option(const struct request *request, const char *text, char *cut,
                      struct mp_error *error) {
    static const char prefix[] = "options.";
    size_t length = sizeof prefix - 1;
    bool is_known = false;
    int code = MP_OK;
    if (strncmp(text, prefix, length) != 0)
        return mp_fail(error, MP_EINVAL,
                       "--set %.100s: the run's job stays as it was; options.KEY=VALUE sets an "
                       "option of the systems that are asked for",
                       text);
    if (snprintf(cut, MP_TEXT_SIZE, "%s", text + length) >= MP_TEXT_SIZE)
        return mp_fail(error, MP_EINVAL, "--set %.100s...: too long", text);
    char *equals = strchr(cut, '=');
    if (!equals)
        return mp_fail(error, MP_EINVAL, "--set %.100s: should be options.KEY=VALUE", text);
    *equals = '\0';
    for (int i = 0; i < request->count && !code; i++)
        if (mp_options_find(request->words[i].system->options, cut)) {
            code = cli_system_words_add(&request->words[i], cut, equals + 1, error);
            is_known = true;
        }
    return is_known ? code
                    : mp_fail(error, MP_EINVAL,
                              "--set %.100s: no system that is asked for has this option", text);
}

/* The run's own system as it was is there in any case: it says how far others can be trusted. */
static int add_own(struct answer *answer, struct mp_error *error) {
    const struct cli_system_words own = {.system = mp_other_system_own(answer->other)};
    MP_TRY(add_system(answer, &own, error));
    if (answer->row[answer->rows - 1].reason[0]) /* others would say the same */
        return mp_fail(error, MP_EINVAL, "the run's own job: %s",
                       answer->row[answer->rows - 1].reason);
    struct what_if_row *row = &answer->row[answer->rows - 1];
    snprintf(row->name, NAME_SIZE, "with %.40s, planned again", own.system->name);
    answer->again = row->other.seconds;
    /* Of the run's own time, as the bound's: it would not go with this one, of the rates alone. */
    answer->of_bound = row->other.of_bound;
    row->other.of_bound = NAN;
    return MP_OK;
}

static int add_systems(struct answer *answer, const struct mp_systems *systems,
                       const struct request *request, struct mp_store *store,
                       struct mp_error *error) {
    MP_TRY(mp_other_system_create(answer->what_if, &answer->recorded, store, systems,
                                  &answer->other, error));
    MP_TRY(mp_other_system_bound(answer->other, given.bound, &answer->bound, error));
    MP_TRY(add_own(answer, error));
    for (int i = 0; i < request->count; i++) {
        const struct cli_system_words *words = &request->words[i];
        if (words->options || words->system != mp_other_system_own(answer->other))
            MP_TRY(add_system(answer, words, error));
    }
    return MP_OK;
}

static int work_out(struct answer *answer, const struct mp_systems *systems,
                    const struct request *request, struct mp_store *store, struct mp_error *error) {
    static const char *const usual[] = {"imbalance", "slowest", "stragglers"};
    const char *const *without = given.without.count ? given.without.word : usual;
    int count = given.without.count  ? given.without.count
                : given.system.count ? 0
                                     : (int)(MP_LENGTH(usual));
    struct mp_what_if_change nothing = mp_what_if_nothing();
    MP_TRY(mp_what_if_create(&answer->recorded, &answer->what_if, error));
    answer->measured = mp_what_if_recorded(answer->what_if);
    answer->replayed = mp_what_if_median(answer->what_if, &nothing);
    find_slowest(answer);
    find_layer(answer);
    for (int i = 0; i < count; i++)
        MP_TRY(add_without(answer, without[i], error));
    if ((request->count > 0 || given.bound))
        MP_TRY(add_systems(answer, systems, request, store, error));
    return MP_OK;
}

/* ---- printing ---- */

#define ROW(member) offsetof(struct what_if_row, member)
static const struct table_column columns[] = {
    {"", TABLE_ARRAY, NULL, "what", .at = ROW(name)},
    {"ms/it", TABLE_MS, NULL, "ms_per_iteration", ROW(other.seconds), .decimals = 3},
    {"speed-up", TABLE_NUMBER, NULL, "speedup", ROW(speedup), .decimals = 3},
    {"bound /\ntime", TABLE_NUMBER, "%", "of_bound", ROW(other.of_bound), .decimals = 1},
};
enum { COLUMNS = MP_LENGTH(columns) };

struct rank_row {
    int rank;
    double own, blocked; /* s */
};
static const struct table_column rank_columns[] = {
    {"rank", TABLE_COUNT, NULL, "rank", .at = offsetof(struct rank_row, rank)},
    {"own work", TABLE_MS, "ms", "own_ms", offsetof(struct rank_row, own), .decimals = 3},
    {"blocked", TABLE_MS, "ms", "wait_ms", offsetof(struct rank_row, blocked), .decimals = 3},
};

/* Adds a row that no change of the run has made. */
static int add_line(struct table *table, const struct answer *answer, const char *name,
                    double seconds, double of_bound, struct mp_error *error) {
    struct what_if_row row = {.other = {.seconds = seconds, .of_bound = of_bound},
                              .speedup = answer->measured / seconds};
    snprintf(row.name, sizeof row.name, "%s", name);
    return table_fill(table, &row, 1, sizeof row, error);
}

/* To be freed also after an error, as the next. */
static int fill_rows(const struct answer *answer, struct table *table, struct mp_error *error) {
    *table = table_of(columns, COLUMNS);
    table->drops_empty = true;
    MP_TRY(add_line(table, answer, answer->recorded.executor, answer->measured, answer->of_bound,
                    error));
    MP_TRY(add_line(table, answer, "replayed as it was", answer->replayed, NAN, error));
    MP_TRY(table_fill(table, answer->row, answer->rows, sizeof *answer->row, error));
    if (!isnan(answer->bound))
        MP_TRY(add_line(table, answer, "bound", answer->bound, 1, error));
    return MP_OK;
}

static int fill_ranks(const struct answer *answer, struct table *table, struct mp_error *error) {
    *table = table_of(rank_columns, MP_LENGTH(rank_columns));
    for (int r = 0; r < answer->recorded.ranks; r++) {
        struct rank_row row = {.rank = r};
        mp_what_if_rank(answer->what_if, r, &row.own, &row.blocked);
        MP_TRY(table_fill(table, &row, 1, sizeof row, error));
    }
    return MP_OK;
}

/* In words: what could be gained at most, and whether it is known. */
static void print_bound(const struct answer *answer) {
    char own[256] = "", other[128] = "";
    const struct what_if_row *best = NULL;
    for (int i = 0; i < answer->rows; i++)
        if (answer->row[i].other.of_bound > (best ? best->other.of_bound : answer->of_bound))
            best = &answer->row[i];
    if (best)
        snprintf(other, sizeof other, "; %.80s it would be %.1f %%", best->name,
                 100 * best->other.of_bound);
    if (!isnan(answer->of_bound))
        snprintf(own, sizeof own, " %.40s gets %.1f %% of it%s.", answer->recorded.system,
                 100 * answer->of_bound, other);
    putchar('\n');
    if (!isnan(answer->bound))
        table_paragraph(stdout,
                        "bound: the best any placement could do with these costs is %.3f ms: no "
                        "system that drops nothing, keeps the gate and the exchange and leaves "
                        "experts whole takes less (proven in model time; memory is no limit).%s",
                        1e3 * answer->bound, own);
    else if (mp_other_system_setting(answer->other)->shards > 1)
        table_paragraph(stdout, "No bound is known of experts that are cut into shards.");
    else
        table_paragraph(stdout,
                        "The bound would take more than a second or so: --bound works it out.");
}

/* Whether what would take `seconds` saves anything that tables show. */
static bool saves(const struct answer *answer, double seconds) {
    return seconds < (1 - 5e-4) * answer->replayed;
}

static void print_costs(const struct answer *answer) {
    double replayed = answer->replayed;
    putchar('\n');
    if (saves(answer, answer->slowest_seconds))
        table_paragraph(
            stdout,
            "rank %d costs most: as fast as the others, %s, it would save %.3f ms of an "
            "iteration (%.1f %%)",
            answer->slowest,
            mp_what_if_knows_tokens(answer->what_if) ? "with the tokens that it has"
                                                     : "whose tokens were not recorded",
            1e3 * (replayed - answer->slowest_seconds),
            100 * (1 - answer->slowest_seconds / replayed));
    else
        table_paragraph(
            stdout, "no rank is slower than others: as fast as they are, none would save anything");
    if (answer->layer >= 0 && saves(answer, answer->layer_seconds))
        table_paragraph(
            stdout,
            "layer %d costs most: with its experts balanced it would save %.3f ms (%.1f %%)",
            answer->layer, 1e3 * (replayed - answer->layer_seconds),
            100 * (1 - answer->layer_seconds / replayed));
    else if (answer->layer >= 0)
        table_paragraph(stdout, "no layer costs anything by uneven experts");
}

static void print_rates(const struct answer *answer) {
    const struct mp_fitted *fitted = mp_other_system_fitted(answer->other);
    const struct mp_fitted_experts *experts = fitted->experts;
    putchar('\n');
    table_paragraph(
        stdout,
        "Costs fitted to this run: an expert takes %.3g ms with 100 routes and %.3g with 1000 "
        "(backward %.3g and %.3g); an exchange %.3g + %.3g ms "
        "per 1000 rows%s; copies %.3g ms per MB, %s.",
        1e3 * mp_fitted_expert(&experts[0], 100), 1e3 * mp_fitted_expert(&experts[0], 1000),
        1e3 * mp_fitted_expert(&experts[1], 100), 1e3 * mp_fitted_expert(&experts[1], 1000),
        1e3 * mp_fitted_farthest(fitted)->exchange, 1e6 * mp_fitted_farthest(fitted)->row,
        fitted->rows_counted ? "" : " (by its bandwidth: this run shows none)",
        1e9 * mp_fitted_byte(fitted),
        fitted->copies_counted                 ? "as in this run"
        : fitted->hides || fitted->copies == 1 ? "by its links: this run shows none"
                                               : "by its bandwidth: this run shows none");
    double off = answer->again / answer->replayed - 1;
    if (answer->again > 0 && (off > MUCH || off < -MUCH))
        table_paragraph(
            stdout,
            "These costs alone miss the run's own time by %.0f %%: something else decided it, "
            "as on a busy machine. Take other systems' times as rough.",
            100 * off);
}

static void print_answer(const struct answer *answer, const char *database,
                         const struct table *rows, const struct table *ranks) {
    const struct mp_recorded *run = &answer->recorded;
    table_paragraph(
        stdout,
        "run %lld of %s: suite %s, job %s, system %s, workload %s, %d rank%s, %s; medians of %d "
        "steady iteration%s",
        (long long)run->run_id, database, run->suite, run->job, run->system, run->workload,
        run->ranks, run->ranks == 1 ? "" : "s", run->executor, run->iterations,
        run->iterations == 1 ? "" : "s");
    putchar('\n');
    table_print(rows, stdout);
    print_costs(answer);
    putchar('\n');
    table_print(ranks, stdout);
    if (answer->other) {
        print_bound(answer);
        print_rates(answer);
        /* Which options systems planned with, and why others could not. */
        for (int i = 0; i < answer->rows; i++) {
            const struct what_if_row *row = &answer->row[i];
            const char *said = row->reason[0] ? row->reason : row->other.options;
            if (*said)
                table_paragraph(stdout, "%s: %s", row->name, said);
        }
    }
}

static json_t *pack_rows(const struct answer *answer) {
    json_t *rows = json_array();
    for (int i = 0; i < answer->rows; i++) {
        const struct what_if_row *row = &answer->row[i];
        json_t *object = table_object(columns, COLUMNS, row);
        json_object_set_new(object, row->reason[0] ? "reason" : "options",
                            text_value(row->reason[0] ? row->reason : row->other.options));
        json_array_append_new(rows, object);
    }
    return rows;
}

static json_t *pack_experts(const struct mp_fitted_experts *experts) {
    return json_pack("{s:f, s:f, s:f}", "with_1_route", mp_fitted_expert(experts, 1),
                     "with_100_routes", mp_fitted_expert(experts, 100), "with_1000_routes",
                     mp_fitted_expert(experts, 1000));
}

static json_t *pack_link(const struct mp_fitted_link *link) {
    return json_pack("{s:f, s:f}", "fixed", link->exchange, "slope", link->row);
}

static json_t *pack_rates(const struct answer *answer) {
    if (!answer->other)
        return json_null();
    const struct mp_fitted *fitted = mp_other_system_fitted(answer->other);
    return json_pack("{s:[oo], s:o, s:o, s:f, s:b, s:b}", "expert",
                     pack_experts(&fitted->experts[0]), pack_experts(&fitted->experts[1]),
                     "exchange", pack_link(mp_fitted_farthest(fitted)), "exchange_in_node",
                     pack_link(&fitted->link[MP_LINK_NODE]), "copies_seconds_per_byte",
                     mp_fitted_byte(fitted), "copies_counted", fitted->copies_counted,
                     "rows_counted", fitted->rows_counted);
}

static json_t *pack_answer(const struct answer *answer, const char *database,
                           const struct table *ranks) {
    const struct mp_recorded *run = &answer->recorded;
    double replayed = answer->replayed;
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:o, s:o, s:o, s:{s:i, s:f}, "
        "s:{s:i, s:f}, s:o, s:o}",
        "report", "what-if", "database", database, "run_id", (json_int_t)run->run_id, "system",
        run->system, "executor", run->executor, "workload", run->workload, "ranks", run->ranks,
        "iterations", run->iterations, "measured_ms", 1e3 * answer->measured, "replayed_ms",
        1e3 * replayed, "replayed_over_measured", replayed / answer->measured, "bound_ms",
        number_value(1e3 * answer->bound), "of_bound", number_value(answer->of_bound), "rows",
        pack_rows(answer), "costliest_rank", "rank", answer->slowest, "saves_ms",
        1e3 * (replayed - answer->slowest_seconds), "costliest_layer", "layer", answer->layer,
        "saves_ms", answer->layer < 0 ? 0 : 1e3 * (replayed - answer->layer_seconds), "per_rank",
        table_json(ranks), "rates", pack_rates(answer));
}

static int show(struct answer *answer, const char *database, enum mp_report_format format,
                struct mp_error *error) {
    MP_AUTO(table) struct table rows = {0}, ranks = {0};
    for (int i = 0; i < answer->rows; i++) {
        struct what_if_row *row = &answer->row[i];
        if (row->reason[0])
            row->other.seconds = row->other.of_bound = NAN;
        row->speedup = answer->measured / row->other.seconds;
    }
    MP_TRY(fill_rows(answer, &rows, error));
    MP_TRY(fill_ranks(answer, &ranks, error));
    if (format == MP_REPORT_JSON)
        return cli_print_json(pack_answer(answer, database, &ranks), error);
    if (format == MP_REPORT_TEXT) {
        print_answer(answer, database, &rows, &ranks);
        return MP_OK;
    }
    table_write(&rows, format, "What if", stdout);
    putchar('\n');
    table_write(&ranks, format, "Ranks", stdout);
    return check_printed(stdout, error);
}

int cli_what_if(const struct cli_call *call, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    MP_AUTO(answer) struct answer answer = {.layer = -1, .bound = NAN, .of_bound = NAN};
    MP_AUTO(request) struct request request = {0};
    MP_AUTO(runs) struct report_runs runs = {0};
    int64_t run_id = 0;
    MP_TRY(cli_run_number(given.run, &run_id, error));
    bool all = given.system.count == 1 && !strcmp(given.system.word[0], "all");
    request.count = all ? call->systems->count : given.system.count;
    MP_TAKE(&request.memory, request.words, request.count + 1);
    MP_TAKE(&request.memory, request.set, given.set.count + 1);
    MP_TRY(mp_arena_check(&request.memory, error));
    for (int i = 0; i < request.count; i++)
        MP_TRY(cli_system_words_parse(call->systems,
                                      all ? call->systems->item[i]->name : given.system.word[i],
                                      &request.words[i], error));
    for (int i = 0; i < given.set.count; i++)
        MP_TRY(set_option(&request, given.set.word[i], request.set[i], error));
    for (int i = 0; i < request.count; i++)
        MP_TRY(cli_system_words_check(&request.words[i], error));
    MP_TRY(cli_open_database(given.database, &store, error));
    MP_TRY(mp_recorded_read(store, run_id, &answer.recorded, error));
    MP_TRY(work_out(&answer, call->systems, &request, store, error));
    MP_TRY(report_runs_load(store, &(struct mp_report_selection){.run_id = run_id}, &runs, error));
    if (given.format.kind == MP_REPORT_TEXT)
        report_print_busy(&runs, stdout);
    return show(&answer, given.database, given.format.kind, error);
}
