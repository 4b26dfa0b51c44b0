/* Inference: sets are drawn alike every time, fit what is to be fitted, and what no set explains is
 * said. */
#include "harness/reproduce/infer.h"

#include "baselines/systems.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"
#include "tests/results/ends.h"

TEST_END(reproduction, struct mp_reproduction *, mp_reproduction_destroy(*it))
TEST_END(inference, struct mp_inference *, mp_inference_destroy(*it))

static struct mp_systems systems;

static int enter(void **state) {
    assert_works(mp_systems_register_all(&systems, &error));
    return enter_folder(state);
}

/* With loads that do not change, EP's time grows with the exponent, and nothing else matters. */
static const char paper[] =
    "# a remark that stays\n"
    "paper: flexmoe\n"
    "description: small\n"
    "common: {layers: 2, width: 64, heads: 2, expert-width: 128, sequence: 64, experts: 16,\n"
    "         batch: 16}\n"
    "unknowns:\n"
    "  - {key: loads.exponent, from: 0.1, to: 1.5, why: loads are not published}\n"
    "  - {key: predict.attention, choices: [full, flash], why: it is not said}\n"
    "budget: 160\n"
    "windows: [{loads: zipf, warm-up: 1, iterations: 2}]\n"
    "machines: [{name: m, cluster: hecate-a, change: nodes=1}]\n"
    "models: [{name: one}]\n"
    "jobs: [{name: ep, system: ep}, {name: balanced, system: free-balance}]\n"
    "rows: # another one\n"
    "  - {row: deepspeed-mean, figure: imbalance, of: ep, over: balanced, use: fit}\n"
    "  - {row: deepspeed-most, figure: imbalance, of: ep, over: balanced, use: score}\n"
    "  - {row: fastermoe-mean, figure: imbalance, of: ep, use: score}\n"
    "  - {row: fastermoe-most, of: ep, over: ep, use: input}\n";

static struct mp_reproduction *load(const char *text) {
    struct mp_reproduction *all = NULL;
    write_file("paper.yaml", text);
    assert_works(mp_reproduction_load("paper.yaml", &systems, &all, &error));
    return all;
}

static struct mp_inference *infer(struct mp_reproduction *all, int processes) {
    const struct mp_infer_settings settings = {
        .reproduce = {.systems = &systems}, .seed = 1, .processes = processes};
    struct mp_inference *inference = NULL;
    assert_works(mp_infer(all, &settings, &inference, &error));
    return inference;
}

static void replace(char text[], size_t size, const char *from, const char *to) {
    char rest[sizeof paper];
    char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, size - (size_t)(at - text), "%s%s", to, rest);
}

TEST(the_best_set_fits) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    AUTO(inference) struct mp_inference *inference = infer(all, 2);
    assert_int_equal(inference->sets, 80); /* of two cells */
    assert_numbers(inference->sampled, 48, inference->lines, 4);
    const struct mp_infer_set *best = &inference->set[inference->best];
    assert_true(best->loss == 0);
    assert_true(best->number[0] >= 1.53 && best->number[0] <= 1.87); /* 1.70, 10 % */
    assert_true(inference->line[0].is_inside && !inference->line[3].is_inside);
    const struct mp_infer_counts fitted = mp_infer_count(inference, inference->best, MP_USE_FIT);
    assert_true(fitted.inside == 1 && fitted.all == 1);
    assert_int_equal(mp_infer_count(inference, inference->best, MP_USE_SCORE).all,
                     2); /* the input counts nowhere */
    /* Loads are what the row is about, attention is not. */
    struct mp_infer_interval loads = mp_infer_unknown(inference, 0),
                             attention = mp_infer_unknown(inference, 1);
    assert_true(loads.high - loads.low < 0.8 && loads.low < loads.high);
    assert_true(attention.low < 0.5 && attention.high >= 0.5);
    struct mp_infer_interval prior = mp_infer_prior(inference, 0),
                             near = mp_infer_line(inference, 0);
    assert_true(prior.low < near.low && near.low <= best->number[0] &&
                best->number[0] <= near.high && near.high < prior.high);
}

/* Three numbers of one row are inside with at least 1.53, or one of each of two other rows with at
 * most 1.43, which leaves the smaller distance: numbers count, and distances only among equals. */
TEST(what_is_inside_counts_first) {
    char text[sizeof paper + 128];
    snprintf(text, sizeof text, "%s", paper);
    replace(text, sizeof text, "[{name: one}]", "[{name: one}, {name: two}, {name: three}]");
    replace(text, sizeof text, "budget: 160", "budget: 480");
    AUTO(reproduction) struct mp_reproduction *all = load(text);
    all->row[1].use = all->row[2].use = MP_USE_FIT;
    all->row[1].published.low = all->row[1].published.high = 1.3;
    all->row[1].models = all->row[2].models = 1;
    AUTO(inference) struct mp_inference *inference = infer(all, 2);
    const struct mp_infer_set *best = &inference->set[inference->best];
    assert_int_equal(best->fitted, 3);
    assert_true(best->number[0] >= 1.53);
    int with_less_loss = 0;
    for (int i = 0; i < inference->sets; i++) {
        const struct mp_infer_set *set = &inference->set[i];
        const struct mp_infer_counts fitted = mp_infer_count(inference, i, MP_USE_FIT);
        assert_int_equal(fitted.all, 5);
        assert_int_equal(set->fitted, fitted.inside);
        assert_true(fitted.inside < 3 || set->loss >= best->loss);
        double miss[5]; /* of three lines of a row and one each of two */
        for (int l = 0; l < 5; l++) {
            double d = fabs(log(mp_infer_ratio(&all->line[l].row->published, set->number[l])));
            miss[l] = d / (d + 0.1);
        }
        assert_within(set->loss, ((miss[0] + miss[1] + miss[2]) / 3 + miss[3] + miss[4]) / 3, 1e-9);
        assert_int_equal(mp_infer_near(inference, i),
                         set->loss <= best->loss + 0.05 && fitted.inside >= 2);
        with_less_loss += set->loss < best->loss;
    }
    assert_true(with_less_loss > 0);
}

/* Every part of a range is met once by the hypercube, and words about equally often. */
TEST(the_hypercube_covers_ranges) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    for (uint64_t seed = 1; seed < 10; seed++) { /* many sets, and few in several orders */
        const struct mp_infer_settings settings = {.reproduce = {.systems = &systems},
                                                   .budget = seed > 1 ? 14 : 0,
                                                   .seed = seed,
                                                   .processes = 1};
        AUTO(inference) struct mp_inference *inference = NULL;
        assert_works(mp_infer(all, &settings, &inference, &error));
        int met[48] = {0}, full = 0, sampled = inference->sampled;
        assert_int_equal(sampled, seed > 1 ? 4 : 48);
        for (int i = 0; i < sampled; i++) {
            met[(int)(inference->set[i].place[0] * sampled)]++;
            full += !strcmp(inference->set[i].value[1], "full");
        }
        for (int i = 0; i < sampled; i++)
            assert_int_equal(met[i], 1);
        assert_int_equal(full, sampled / 2);
        for (int i = 0; i < inference->sets && i < sampled + 16;
             i++) /* first steps lead to new sets */
            for (int j = sampled; j < i; j++)
                assert_true(memcmp(inference->set[i].value, inference->set[j].value,
                                   sizeof inference->set[i].value) != 0);
    }
}

TEST(processes_do_not_matter) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    AUTO(inference) struct mp_inference *one = infer(all, 1);
    AUTO(inference) struct mp_inference *three = infer(all, 3);
    assert_int_equal(one->best, three->best);
    for (int i = 0; i < one->sets; i++) {
        assert_memory_equal(one->set[i].value, three->set[i].value, sizeof one->set[i].value);
        assert_memory_equal(one->set[i].number, three->set[i].number, sizeof one->set[i].number);
        assert_true(one->set[i].loss == three->set[i].loss);
    }
}

static const char *sentence(const json_t *said, size_t i) {
    return json_string_value(json_array_get(said, i));
}

static const struct mp_infer_set *nearest_to(const struct mp_inference *inference, int line) {
    const struct mp_infer_set *nearest = inference->set;
    for (int i = 1; i < inference->sets; i++)
        if (inference->set[i].number[line] > nearest->number[line])
            nearest = &inference->set[i];
    return nearest;
}

/* One sentence for each of the lines outside: what it would cost, or the nearest there is. */
TEST(every_row_outside_is_explained) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    AUTO(inference) struct mp_inference *inference = infer(all, 2);
    all->row[1].published.low = all->row[1].published.high = 9;
    AUTO(json) json_t *said = mp_infer_outside(inference);
    assert_int_equal(json_array_size(said), 3);
    char wanted[512];
    const struct mp_infer_set *nearest = nearest_to(inference, 1);
    snprintf(wanted, sizeof wanted,
             "nearest %.4g, %.2f times what would be inside, under loads.exponent %s, "
             "predict.attention %s",
             nearest->number[1], nearest->number[1] / 8.1, nearest->value[0], nearest->value[1]);
    assert_contains(sentence(said, 0), "deepspeed-most is inside under no set: published 9, ",
                    wanted);
    double least = 1;
    for (int i = 0; i < inference->sets; i++)
        if (mp_infer_inside(inference, i, 2) && inference->set[i].loss < least)
            least = inference->set[i].loss;
    snprintf(wanted, sizeof wanted,
             "at best with 0 fitted inside instead of 1 and a loss of %.3f instead of 0.000",
             least);
    assert_contains(sentence(said, 1), "fastermoe-mean is inside under ", wanted,
                    "what is outside there, and inside now: deepspeed-mean");
    assert_null(strstr(sentence(said, 1), "leave it open"));
    assert_contains(sentence(said, 2), "fastermoe-most is inside under no set: published 1.45, "
                                       "predicted 1 to 1; nearest 1, 0.77 times");
    /* As good a set with the row inside: nothing speaks against it. */
    for (int i = 0; i < inference->sets; i++)
        if (mp_infer_inside(inference, i, 2))
            inference->set[i].loss = MP_INFER_TOLERANCE / 2;
    AUTO(json) json_t *again = mp_infer_outside(inference);
    assert_contains(sentence(again, 1), "nearly as good: fitted rows leave it open");
    /* Six of nine lines that are lost have their names. */
    for (; inference->lines < 12; inference->lines++) {
        inference->line[inference->lines] = inference->line[0];
        for (int i = 0; i < inference->sets; i++)
            inference->set[i].number[inference->lines] = inference->set[i].number[0];
    }
    AUTO(json) json_t *more = mp_infer_outside(inference);
    assert_contains(sentence(more, 1), "deepspeed-mean; deepspeed-mean and 3 more; ");
}

/* What differs between sets in which the first lines and those in which the last lines are inside.
 */
static const struct {
    int job, quantity;
    double first, last;
    const char *says;
} conditions[] = {
    {-1, 0, 0.9, 0.1,
     "first only where loads.exponent is at least 1.14, the second only where loads.exponent is at "
     "most 0.131"},
    {0, MP_INFER_IMBALANCE, 1.2, 1.5,
     "first only where the fullest rank under ep has at most 1.20 x the mean, the second only "
     "where "
     "the fullest rank under ep has at least 1.50 x the mean"},
    {1, MP_INFER_EXCHANGE, 0.2, 0.1,
     "first only where at least 20 % of balanced's iteration is dispatch and combine, the second "
     "only where at most 10 % of balanced's iteration is dispatch and combine"},
};

/* Of sixteen pairs twelve are told, those with least evidence (of row a, inside least often) not.
 */
TEST_ROWS(pairs_are_told_by_what_keeps_them_apart, conditions, row) {
    static const char *const id[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    struct mp_infer_set set[16] = {0};
    struct mp_inference made = {.reproduction = all, .set = set, .sets = 16, .lines = 8};
    for (int l = 0; l < 8; l++) {
        all->row[l] = all->row[0];
        all->row[l].published.id = id[l];
        made.line[l].row = &all->row[l];
        for (int i = 0; i < 16; i++)
            set[i].number[l] = i % 2 == l / 4 && (l || i >= 4) ? all->row[0].published.high : 0;
    }
    for (int i = 0; i < 16; i++)
        *(row->job < 0 ? &set[i].place[0] : &set[i].quantity[row->job][row->quantity]) =
            i % 2 ? row->last : row->first;
    AUTO(json) json_t *said = mp_infer_contradictions(&made);
    assert_int_equal(json_array_size(said), 13);
    assert_contains(
        sentence(said, 0),
        "b and e are never inside together, alone under 8 and 8 of 16 sets: ", row->says);
    for (size_t i = 0; i < 12; i++)
        assert_true(*sentence(said, i) != 'a');
    assert_string_equal(sentence(said, 12), "4 more pairs are never inside together");
}

/* Of changes 1 more. */
TEST(ratios_are_to_the_nearer_end) {
    const struct mp_paper_row row = {.unit = MP_PAPER_CHANGE, .low = -0.2, .high = -0.1};
    assert_within(mp_infer_ratio(&row, 0.1), 1.1 / 0.9, 1e-12);
    assert_within(mp_infer_ratio(&row, -0.6), 0.4 / 0.8, 1e-12);
    assert_true(mp_infer_ratio(&row, -0.15) == 1);
}

/* A layer 11.87 and an iteration 1.70 times as fast: 45 % of the iteration is layers. */
TEST(layers_bound_iterations) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    AUTO(inference) struct mp_inference *inference = infer(all, 2);
    struct mp_reproduce_row *layer = &all->row[0], *iteration = &all->row[3];
    layer->figure = MP_FIGURE_MOE;
    layer->published.low = layer->published.high = 11.87;
    iteration->over = layer->over;
    iteration->published.low = iteration->published.high = 1.70;
    AUTO(json) json_t *said = mp_infer_contradictions(inference);
    assert_contains(sentence(said, 0), "hold together only where at most 45 % of ep's iteration");
}

TEST(written_sets_are_read_and_the_rest_stays) {
    AUTO(text) char *first = NULL, *second = NULL;
    size_t size;
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    assert_string_equal(all->unknown[0].value, "0.387"); /* the middle of its logarithm */
    AUTO(inference) struct mp_inference *inference = infer(all, 2);
    assert_works(mp_infer_write(inference, "a \"command\"", &error));
    assert_works(mp_yaml_read_file("paper.yaml", &first, &size, &error));
    assert_works(mp_infer_write(inference, "a \"command\"", &error));
    assert_works(mp_yaml_read_file("paper.yaml", &second, &size, &error));
    assert_string_equal(first, second); /* the old one is replaced */
    assert_contains(first, "# a remark that stays\n", "rows: # another one\n",
                    "    - \"deepspeed-mean\"\n");
    AUTO(reproduction) struct mp_reproduction *again = NULL;
    assert_works(mp_reproduction_load("paper.yaml", &systems, &again, &error));
    assert_string_equal(again->inferred_by, "a \"command\"");
    for (int u = 0; u < 2; u++)
        assert_string_equal(again->unknown[u].value, inference->set[inference->best].value[u]);
    /* And the set that was written gives the numbers that were told. */
    const struct mp_reproduce_settings settings = {.systems = &systems};
    assert_works(mp_reproduction_run(again, &settings, &error));
    assert_true(mp_reproduction_cell(again, 0, 0, 0)->figure[MP_FIGURE_IMBALANCE] ==
                inference->set[inference->best].number[2]);
    for (int job = 0; job < 2; job++) {
        const double *figure = mp_reproduction_cell(again, 0, 0, job)->figure,
                     *quantity = inference->set[inference->best].quantity[job];
        assert_true(quantity[MP_INFER_MOE] == figure[MP_FIGURE_MOE] / figure[MP_FIGURE_SECONDS] &&
                    quantity[MP_INFER_EXCHANGE] ==
                        figure[MP_FIGURE_EXCHANGE] / figure[MP_FIGURE_SECONDS] &&
                    quantity[MP_INFER_IMBALANCE] == figure[MP_FIGURE_IMBALANCE]);
        assert_true(job || quantity[MP_INFER_MOE] == inference->set[inference->best].share[0]);
    }
}

static const struct {
    const char *from, *to, *says;
} impossible[] = {
    {"budget: 160", "budget: 7", "a budget of 7 predictions is not 4 to 1000000 sets of 2"},
    {"use: fit", "use: input", "no row is to be fitted"},
    {"{key: loads.exponent, from: 0.1", "{key: times.peek, from: 0.1", "peek: should be"},
};

TEST_ROWS(what_can_not_be_inferred_is_said, impossible, row) {
    char text[sizeof paper + 64];
    const char *at = strstr(paper, row->from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - paper), paper, row->to,
             at + strlen(row->from));
    AUTO(reproduction) struct mp_reproduction *all = load(text);
    const struct mp_infer_settings settings = {
        .reproduce = {.systems = &systems}, .seed = 1, .processes = 2};
    struct mp_inference *inference = NULL;
    assert_fails(mp_infer(all, &settings, &inference, &error), MP_EINVAL, row->says);
}

TEST(too_many_lines_are_refused) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    all->row[0].of = all->row[0].over = 3; /* four lines */
    for (all->rows = 1; all->rows < 65; all->rows++)
        all->row[all->rows] = all->row[0];
    const struct mp_infer_settings settings = {.reproduce = {.systems = &systems}};
    struct mp_inference *inference = NULL;
    assert_fails(mp_infer(all, &settings, &inference, &error), MP_EINVAL,
                 "paper.yaml: its rows have 260 lines; inferring takes 256 at most");
}

static bool stop(void *context, int done, int all) {
    *(int *)context += done <= all;
    return false;
}

TEST(stopping_leaves_nothing) {
    AUTO(reproduction) struct mp_reproduction *all = load(paper);
    int told = 0;
    const struct mp_infer_settings settings = {.reproduce = {.systems = &systems},
                                               .seed = 1,
                                               .processes = 2,
                                               .context = &told,
                                               .progress = stop};
    struct mp_inference *inference = NULL;
    struct mp_error error = {0};
    assert_int_equal(mp_infer(all, &settings, &inference, &error), MP_EINTERRUPTED);
    assert_true(told > 0 && !inference);
}

TEST_GROUP(enter, leave_folder);
