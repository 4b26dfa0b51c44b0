/* The analysis in full: see stragglers.h. */
#include "results/report/stragglers.h"

#include <math.h>
#include <string.h>

#include "profiler/record/record.h"
#include "results/report/query.h"
#include "results/report/table.h"
#include "results/report/waiting_words.h"

enum { ROWS_SHOWN = 16 }; /* of longer tables, those with most waiting */

/* ---- text ---- */

static void print_slowdowns(const struct mp_straggler *found, FILE *out) {
    const struct mp_slowdowns *slow = &found->slowdowns;
    table_paragraph(out,
                    "Efficiencies (1 is best, above 0.8 good): parallel %.2f = load balance %.2f x "
                    "communication %.2f, that being serialisation %.2f x transfer %.2f.",
                    slow->parallel, slow->load_balance, slow->communication, slow->serialisation,
                    slow->transfer);
    table_paragraph(
        out,
        "Without stragglers: S = %.3f (a mean iteration of %.2f ms would take %.2f); what "
        "lies between spans makes %.3f; the replay is %.2f %% off the recording.",
        slow->slowdown, 1e3 * slow->without_delay, 1e3 * slow->ideal, slow->host,
        100 * fabs(slow->replayed / slow->base - 1));
    if (slow->slowdown < 1 + MP_STRAGGLER_LEAST)
        return;
    if (!isnan(slow->worst_ranks))
        table_paragraph(
            out, "The slowest %s %.0f %% of that (M_W, of 3 %% of the ranks, rounded up).",
            found->ranks <= 33 ? "rank makes" : "3 % of the ranks make", 100 * slow->worst_ranks);
    if (!isnan(slow->last_stage))
        table_paragraph(out,
                        "Were the last of %d pipeline stages as long as their mean, %.0f %% of "
                        "that would be gone (M_S).",
                        slow->pipelines, 100 * slow->last_stage);
    for (int t = 0; t < slow->types && t < 3; t++)
        if (slow->type[t].slowdown > 1.005)
            table_paragraph(out, "S of %s%s%s alone: %.3f.", waiting_phase(slow->type[t].phase),
                            slow->type[t].direction == MP_FORWARD    ? " forward"
                            : slow->type[t].direction == MP_BACKWARD ? " backward"
                                                                     : "",
                            slow->type[t].transfer ? ", transfers," : "", slow->type[t].slowdown);
}

static int main_cause(const struct mp_straggler_rank *rank) {
    int most = 0;
    for (int c = 1; c < MP_CAUSES; c++)
        if (rank->cause[c] > rank->cause[most])
            most = c;
    return most;
}

struct rank_row {
    struct mp_straggler_rank of;
    int rank;
    double caused, slowdown;
    const char *cause;
};
#define RANK(member) offsetof(struct rank_row, member)
static const struct table_column rank_columns[] = {
    {"rank", TABLE_COUNT, NULL, "rank", .at = RANK(rank)},
    {"own", TABLE_MS, "ms", "own_ms", RANK(of.own), .decimals = 2},
    {"waits", TABLE_MS, "ms", "waits_ms", RANK(of.suffered), .decimals = 2},
    {"others wait\nfor it,", TABLE_MS, "ms", .at = RANK(caused), .decimals = 2},
    {"passed\non,", TABLE_MS, "ms", "propagated_ms", RANK(of.propagated), 2, .optional = 2},
    {"most often", TABLE_NUMBER, "%", "most_waited_for", .at = RANK(of.most_waited_for)},
    {"most of it\nfor", TABLE_LEFT, .at = RANK(cause)},
    {"expert\ntokens", TABLE_NUMBER, NULL, "tokens", RANK(of.tokens), .optional = 1},
    {"S", TABLE_NUMBER, NULL, "slowdown", RANK(slowdown), .decimals = 3},
    {NULL, TABLE_MS, NULL, "direct_ms", .at = RANK(of.direct)},
    {NULL, TABLE_NUMBER, NULL, "on_core", .at = RANK(of.on_core)},
};
enum { RANK_COLUMNS = MP_LENGTH(rank_columns) };

static struct rank_row rank_row(const struct mp_straggler *found, int index) {
    const struct mp_straggler_rank *rank = &found->rank[index];
    int cause = main_cause(rank);
    return (struct rank_row){*rank, index, rank->direct + rank->propagated,
                             found->slowdowns.rank ? found->slowdowns.rank[index] : NAN,
                             rank->cause[cause] > 0 ? waiting_cause((enum mp_cause)cause) : "-"};
}

/* By what they cause, the most first. */
MP_COMPARE(compare_ranks, struct rank_row,
           MP_ORDER(b->caused, a->caused) ?: MP_ORDER(a->rank, b->rank))

static int print_ranks(const struct mp_straggler *found, FILE *out, struct mp_error *error) {
    MP_AUTO(memory) struct rank_row *rows = NULL;
    MP_TRY(MP_NEW(rows, found->ranks, error));
    MP_AUTO(table) struct table table = table_of(rank_columns, RANK_COLUMNS);
    table.lines_first = true;
    for (int r = 0; r < found->ranks; r++)
        rows[r] = rank_row(found, r);
    MP_SORT(rows, found->ranks, compare_ranks);
    int shown = found->ranks < ROWS_SHOWN ? found->ranks : ROWS_SHOWN;
    MP_TRY(table_fill(&table, rows, shown, sizeof *rows, error));
    fputc('\n', out);
    table_paragraph(out, "Ranks, per iteration%s",
                    found->ranks > ROWS_SHOWN ? ", those most waited for" : "");
    table_print(&table, out);
    return MP_OK;
}

static const struct table_column place_columns[] = {
    {"where", .kind = TABLE_LEFT},
    {"waits\nms", .kind = TABLE_RIGHT},
    {"waits from\nhere, ms", .kind = TABLE_RIGHT},
    {"arrival\nskew, ms", .kind = TABLE_RIGHT},
    {"transfer\nms", .kind = TABLE_RIGHT},
    {"least\nms", .kind = TABLE_RIGHT},
    {"slowest\nrank", .kind = TABLE_RIGHT},
    {"often\n%", .kind = TABLE_RIGHT},
    {"tokens\nx mean", .kind = TABLE_RIGHT},
};

static int compare_places(const void *left, const void *right) {
    const struct mp_straggler_place *a = *(const struct mp_straggler_place *const *)left,
                                    *b = *(const struct mp_straggler_place *const *)right;
    return MP_ORDER(fmax(b->caused, b->waiting), fmax(a->caused, a->waiting)) ?: MP_ORDER(a, b);
}

static int add_place(struct table *table, const struct mp_straggler_place *place,
                     struct mp_error *error) {
    char name[80];
    MP_TRY(table_add(table, NULL, error));
    table_set(table, 0, "%s", waiting_place(place->phase, place->layer, name, sizeof name));
    table_set_number(table, 1, place->meets ? 1e3 * place->waiting : NAN, 2);
    table_set_number(table, 2, 1e3 * place->caused, 2);
    table_set_number(table, 3, place->meets ? 1e3 * place->skew : NAN, 2);
    table_set_number(table, 4, place->meets ? 1e3 * place->transfer : NAN, 2);
    table_set_number(table, 5, place->meets ? 1e3 * place->transfer_least : NAN, 2);
    table_set_number(table, 6, place->slowest < 0 ? NAN : place->slowest, 0);
    table_set_number(table, 7, 100 * place->slowest_share, 0);
    table_set_number(table, 8, place->tokens, 2);
    return MP_OK;
}

static int print_places(const struct mp_straggler *found, FILE *out, struct mp_error *error) {
    MP_AUTO(memory) const struct mp_straggler_place **order = NULL;
    MP_TRY(MP_NEW(order, found->places + 1, error));
    MP_AUTO(table) struct table table = table_of(place_columns, MP_LENGTH(place_columns));
    table.lines_first = true;
    table.optional[5] = 2;
    table.optional[7] = 1;
    for (int p = 0; p < found->places; p++)
        order[p] = &found->place[p];
    MP_SORT(order, found->places, compare_places);
    for (int p = 0; p < found->places && p < ROWS_SHOWN; p++)
        MP_TRY(add_place(&table, order[p], error));
    fputc('\n', out);
    table_paragraph(out,
                    "Where ranks wait, and where that comes from, per iteration over all ranks");
    table_print(&table, out);
    return MP_OK;
}

struct balance_row {
    const char *name;
    struct mp_percentiles of;
};
#define BALANCE(member) offsetof(struct balance_row, member)
static const struct table_column balance_columns[] = {
    {"routes over experts", TABLE_LEFT, .at = BALANCE(name)},
    {"p50", TABLE_NUMBER, NULL, "p50", BALANCE(of.p50), .decimals = 3},
    {"p90", TABLE_NUMBER, NULL, "p90", BALANCE(of.p90), .decimals = 3},
    {"p99", TABLE_NUMBER, NULL, "p99", BALANCE(of.p99), .decimals = 3},
    {"max", TABLE_NUMBER, NULL, "max", BALANCE(of.largest), .decimals = 3},
};
enum { BALANCE_COLUMNS = MP_LENGTH(balance_columns) };

/* As a balance has them, but for what chance gives. */
static const struct {
    const char *name, *key;
} measures[MP_MEASURES - 1] = {
    {"max over mean", "max_over_mean"},
    {"effective experts", "effective_experts"},
    {"coefficient of variation", "variation"},
    {"Gini", "gini"},
    {"dead experts, share", "dead_fraction"},
    {"overload above 1.25 x mean, share", "overload_fraction"},
    {"dropped, share", "dropped_fraction"},
};

static int print_balance(const struct mp_straggler *found, FILE *out, struct mp_error *error) {
    const struct mp_straggler_balance *balance = &found->balance;
    if (isnan(balance->max_over_mean.p50))
        return MP_OK;
    MP_AUTO(table) struct table table = table_of(balance_columns, BALANCE_COLUMNS);
    for (int m = 0; m < MP_MEASURES - 1; m++) {
        const struct balance_row row = {measures[m].name, balance->of[m]};
        MP_TRY(table_fill(&table, &row, 1, sizeof row, error));
    }
    fputc('\n', out);
    table_paragraph(out, "Balance over layers and iterations, whole batch, before drops");
    table_print(&table, out);
    table_paragraph(out,
                    "Chance alone would vary by %.3f. Expert %d of layer %d gets most: %.1f %% "
                    "of its layer's routes.",
                    balance->chance_variation.p50, balance->hottest_expert, balance->hottest_layer,
                    100 * balance->hottest_share);
    if (!isnan(balance->time_imbalance) && !isnan(balance->token_imbalance))
        table_paragraph(out, "Over ranks, max over mean: expert time %.2f beside tokens %.2f.",
                        balance->time_imbalance, balance->token_imbalance);
    return MP_OK;
}

int stragglers_detail_print(const struct straggler *straggler, FILE *out, struct mp_error *error) {
    const struct mp_straggler *found = &straggler->found;
    char text[WAITING_TEXT];
    if (!found->slowdowns.rank)
        return print_balance(found, out, error);
    table_paragraph(out, "%s", waiting_clocks(found, text, sizeof text));
    if (straggler->shares_cores)
        table_paragraph(out, "Ranks shared cores: who is slow may only have had no turn.");
    print_slowdowns(found, out);
    MP_TRY(print_ranks(found, out, error));
    table_paragraph(out, "The rank most waited for changed %lld time%s.",
                    (long long)found->culprit_changes, found->culprit_changes == 1 ? "" : "s");
    MP_TRY(print_places(found, out, error));
    return print_balance(found, out, error);
}

/* ---- JSON ---- */

static json_t *ms(double seconds) {
    return number_value(1e3 * seconds);
}

static json_t *rank_or_null(int rank) {
    return rank < 0 ? json_null() : json_integer(rank);
}

static json_t *findings_json(const struct straggler *straggler) {
    const struct mp_straggler *found = &straggler->found;
    char title[WAITING_TEXT], text[WAITING_TEXT];
    struct waiting_advice advice;
    json_t *all = json_array();
    for (int f = 0; f < found->findings; f++) {
        const struct mp_straggler_finding *finding = &found->finding[f];
        const struct mp_straggler_balance *hot = mp_straggler_hot_expert(found, finding);
        waiting_advise(found, finding, &straggler->context, &advice);
        json_array_append_new(
            all,
            json_pack(
                "{so so ss so so so sb so so so so so so so so ss si so so sI so ss ss so so}",
                "expert", rank_or_null(hot ? hot->hottest_expert : -1), "expert_share",
                number_value(hot ? hot->hottest_share : NAN), "cause",
                mp_cause_name(finding->cause), "rank", rank_or_null(finding->rank), "stage",
                rank_or_null(finding->stage), "from", rank_or_null(finding->from), "chronic",
                finding->chronic, "waiting_ms", ms(finding->waiting), "caused_ms",
                ms(finding->caused), "longer_ms", ms(finding->longer), "would_save_ms",
                ms(finding->saved), "share_of_iterations", number_value(finding->seen),
                "most_waited_for", number_value(finding->last), "tokens_over_mean",
                number_value(finding->tokens), "on_core", number_value(finding->on_core), "phase",
                waiting_phase(finding->phase), "layer", finding->layer, "share_here",
                number_value(finding->here), "victim", rank_or_null(finding->victim),
                "worst_iteration", (json_int_t)finding->worst_iteration, "worst_ms",
                ms(finding->worst), "title", waiting_title(found, finding, title, sizeof title),
                "text", waiting_text(found, finding, text, sizeof text), "advice",
                text_value(advice.words), "command",
                text_value(*advice.command ? advice.command : NULL)));
    }
    return all;
}

static json_t *abstentions_json(unsigned abstentions) {
    json_t *all = json_array();
    for (unsigned bit = 1; bit < 1u << MP_ABSTENTIONS; bit *= 2)
        if (abstentions & bit)
            json_array_append_new(all, json_string(mp_abstention_text((enum mp_abstention)bit)));
    return all;
}

/* Causes that can't be told, with what the recording would need for it where that can be added. */
static json_t *untold_json(const struct mp_straggler *found) {
    json_t *all = json_array();
    for (int c = 0; c < MP_CAUSES; c++)
        if (found->untold >> c & 1)
            json_array_append_new(
                all, json_pack("{ss so}", "cause", mp_cause_name((enum mp_cause)c), "needs",
                               text_value(mp_cause_kind((enum mp_cause)c)->evidence)));
    return all;
}

static json_t *slowdowns_json(const struct mp_slowdowns *slow) {
    json_t *types = json_array();
    if (!slow->rank)
        return json_decref(types), json_null();
    for (int t = 0; t < slow->types; t++)
        json_array_append_new(
            types,
            json_pack("{ss so sb so}", "phase", waiting_phase(slow->type[t].phase), "direction",
                      slow->type[t].direction == MP_FORWARD    ? json_string("forward")
                      : slow->type[t].direction == MP_BACKWARD ? json_string("backward")
                                                               : json_null(),
                      "transfers", slow->type[t].transfer, "slowdown",
                      number_value(slow->type[t].slowdown)));
    return json_pack("{so so so so so so so so so so so so so si so}", "slowdown",
                     number_value(slow->slowdown), "host", number_value(slow->host), "worst_ranks",
                     number_value(slow->worst_ranks), "recorded_ms", ms(slow->base), "replayed_ms",
                     ms(slow->replayed), "without_delay_ms", ms(slow->without_delay), "ideal_ms",
                     ms(slow->ideal), "load_balance", number_value(slow->load_balance),
                     "communication_efficiency", number_value(slow->communication),
                     "parallel_efficiency", number_value(slow->parallel), "transfer_efficiency",
                     number_value(slow->transfer), "serialisation_efficiency",
                     number_value(slow->serialisation), "types", types, "stages", slow->pipelines,
                     "last_stage", number_value(slow->last_stage));
}

static json_t *ranks_json(const struct mp_straggler *found) {
    json_t *all = json_array();
    for (int r = 0; r < found->ranks && found->rank; r++) {
        const struct rank_row row = rank_row(found, r);
        json_t *causes = json_object(), *object = table_object(rank_columns, RANK_COLUMNS, &row);
        for (int c = 0; c < MP_CAUSES; c++)
            json_object_set_new(causes, mp_cause_name((enum mp_cause)c), ms(row.of.cause[c]));
        json_object_set_new(object, "causes_ms", causes);
        json_array_append_new(all, object);
    }
    return all;
}

static json_t *places_json(const struct mp_straggler *found) {
    json_t *all = json_array();
    for (int p = 0; p < found->places; p++) {
        const struct mp_straggler_place *place = &found->place[p];
        json_array_append_new(
            all,
            json_pack("{si ss sb so so so so so so so so so so}", "layer", place->layer, "phase",
                      waiting_phase(place->phase), "meets", place->meets, "waiting_ms",
                      ms(place->waiting), "caused_ms", ms(place->caused), "arrival_skew_ms",
                      ms(place->skew), "transfer_ms", ms(place->transfer), "least_transfer_ms",
                      ms(place->transfer_least), "slowest_rank", rank_or_null(place->slowest),
                      "slowest_share", number_value(place->slowest_share), "mean_ms",
                      ms(place->own_mean), "largest_ms", ms(place->own_most), "tokens_over_mean",
                      number_value(place->tokens)));
    }
    return all;
}

static json_t *balance_json(const struct mp_straggler_balance *balance) {
    json_t *object = json_pack("{so so so so so so}", "chance_variation",
                               number_value(balance->chance_variation.p50), "time_imbalance",
                               number_value(balance->time_imbalance), "token_imbalance",
                               number_value(balance->token_imbalance), "hottest_layer",
                               rank_or_null(balance->hottest_layer), "hottest_expert",
                               rank_or_null(balance->hottest_expert), "hottest_share",
                               number_value(balance->hottest_share));
    for (int m = 0; m < MP_MEASURES - 1; m++) {
        const struct balance_row row = {measures[m].name, balance->of[m]};
        json_object_set_new(object, measures[m].key,
                            table_object(balance_columns, BALANCE_COLUMNS, &row));
    }
    return object;
}

json_t *stragglers_detail_json(const struct straggler *straggler, bool in_full) {
    const struct mp_straggler *found = &straggler->found;
    json_t *object = json_pack(
        "{si si so so so so sI so so so so so so so so}", "iterations", straggler->iterations,
        "iterations_analysed", straggler->looked_at, "ms_per_iteration", ms(found->seconds),
        "waiting_ms", found->slowdowns.rank ? ms(found->waiting) : json_null(), "bubble_ms",
        found->slowdowns.rank ? ms(found->bubble) : json_null(), "most_waited_for",
        rank_or_null(found->most_waited_for), "culprit_changes", (json_int_t)found->culprit_changes,
        "clock_error_us", number_value(1e6 * found->clock_error), "clocks_used",
        json_boolean(!found->clock_free), "not_said", abstentions_json(found->abstentions),
        "not_told", untold_json(found), "findings", findings_json(straggler), "slowdowns",
        slowdowns_json(&found->slowdowns), "ranks", ranks_json(found), "balance",
        balance_json(&found->balance));
    if (!in_full || !object)
        return object;
    json_t *layers = json_array();
    for (int l = 0; l < found->layers; l++)
        json_array_append_new(layers, balance_json(&found->layer[l]));
    json_object_set_new(object, "layers", layers);
    json_object_set_new(object, "places", places_json(found));
    return object;
}
