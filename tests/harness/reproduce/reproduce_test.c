/* Papers' files: all of them are read and complete, slips are named, numbers are put together as
 * the header says. */
#include "harness/reproduce/reproduce.h"

#include "baselines/systems.h"
#include "harness/predict/known_bounds.h"
#include "reference/base/median.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(reproduction, struct mp_reproduction *, mp_reproduction_destroy(*it))

static struct mp_systems systems;

static struct mp_reproduction *load_paper(const char *name) {
    struct mp_reproduction *all = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/harness/suites/paper/%s.yaml", MOEPERF_SOURCE, name);
    assert_works(mp_reproduction_load(path, &systems, &all, &error));
    return all;
}

static int enter(void **state) {
    assert_works(mp_systems_register_all(&systems, &error));
    return enter_folder(state);
}

TEST(every_paper_has_a_file) {
    for (const struct mp_paper *paper = mp_papers; paper->name; paper++) {
        AUTO(reproduction) struct mp_reproduction *all = load_paper(paper->name);
        assert_string_equal(all->name, paper->name);
        assert_true(all->rows > 0);
        assert_true(all->assumptions > 0);
    }
}

/* Rows of a paper's file alternate by name between fitted and held out, so that nobody chooses
 * which is which. */
TEST(rows_alternate_by_name) {
    for (const struct mp_paper *paper = mp_papers; paper->name; paper++) {
        AUTO(reproduction) struct mp_reproduction *all = load_paper(paper->name);
        const struct mp_reproduce_row *last = NULL;
        assert_true(all->unknowns > 0 && all->budget > 0);
        for (int count = 0;; count++) { /* the next name that is no input */
            const struct mp_reproduce_row *next = NULL;
            for (int i = 0; i < all->rows; i++) {
                const struct mp_reproduce_row *row = &all->row[i];
                const char *id = row->published.id;
                if (row->use != MP_USE_INPUT && (!last || strcmp(id, last->published.id) > 0) &&
                    (!next || strcmp(id, next->published.id) < 0))
                    next = row;
            }
            if (!next)
                break;
            for (int i = 0; i < all->rows; i++)
                if (!strcmp(all->row[i].published.id, next->published.id) &&
                    all->row[i].use != (count % 2 ? MP_USE_SCORE : MP_USE_FIT))
                    fail_msg("%s: %s", paper->name, next->published.id);
            last = next;
        }
    }
}

/* A small file of the paper with the fewest rows, on a small cluster. */
enum part { HEAD, WINDOWS, JOBS, MORE, ROWS, LEFT, PARTS };
static const char *const small[PARTS] = {
    [HEAD] = "paper: flexmoe\n"
             "description: small\n"
             "assumptions: [{what: w, because: b}]\n"
             "common: {layers: 2, width: 64, heads: 2, expert-width: 128,\n"
             "         sequence: 64, experts: 16}\n",
    [WINDOWS] = "windows: [{loads: zipf exponent=1, warm-up: 2, iterations: 3}]\n",
    [JOBS] = "machines: [{name: m, cluster: hecate-a, change: nodes=1}]\n"
             "models: [{name: one}, {name: two, layers: 4}]\n"
             "jobs: [{name: ep, system: ep}, {name: flex, system: flexmoe}]\n",
    [MORE] = "",
    [ROWS] = "rows:\n"
             "  - {row: deepspeed-mean, of: ep, over: flex}\n"
             "  - {row: deepspeed-most, of: ep, over: flex, combine: most}\n"
             "  - {row: fastermoe-mean, of: ep, over: flex, combine: mean}\n",
    [LEFT] = "left-out: [{row: fastermoe-most, because: b}]\n"};

static int load_with(enum part part, const char *other, struct mp_reproduction **all,
                     struct mp_error *error) {
    char text[8192] = "";
    for (int i = 0; i < PARTS; i++)
        strcat(text, i == (int)part ? other : small[i]);
    write_file("paper.yaml", text);
    return mp_reproduction_load("paper.yaml", &systems, all, error);
}

static struct mp_reproduction *load_small(const char *more) {
    struct mp_reproduction *all = NULL;
    assert_works(load_with(MORE, more, &all, &error));
    return all;
}

static const struct {
    enum part part;
    const char *text, *says;
} slips[] = {
    {HEAD, "paper: flexmo\ndescription: d\n", "no published figures"},
    {HEAD, "paper: flexmoe\n", "description: not given; a paper's file needs some text"},
    {HEAD, "paper: flexmoe\ndescription: d\nrow: 3\n",
     "unknown option \"row\" for a paper's file; did you mean \"rows\"?"},
    {WINDOWS, "", "windows: not given"},
    {WINDOWS, "windows: [{warm-up: 3}]\n", "loads: not given"},
    {WINDOWS, "windows: [{loads: zipf, warmup: 3}]\n", "did you mean \"warm-up\"?"},
    {JOBS,
     "machines: [{name: m, cluster: hecate-a}]\nmodels: [{name: a}, {name: a}]\n"
     "jobs: [{name: ep, system: ep}]\n",
     "\"a\" is there already"},
    {JOBS, "machines: [{name: m}]\nmodels: [{name: a}]\njobs: [{name: ep, system: eq}]\n",
     "unknown job \"flex\""},
    {JOBS,
     "machines: [{name: m}]\nmodels: [{name: a}]\n"
     "jobs: [{name: ep, system: eq}, {name: flex, system: ep}]\n",
     "unknown system \"eq\""},
    {ROWS, "rows: [{row: deepspeed-men, of: ep}]\n", "did you mean \"deepspeed-mean\"?"},
    {ROWS, "rows: [{row: deepspeed-mean, over: ep}]\n",
     "of: not given; a row needs a value: names of the jobs it is about"},
    {ROWS, "rows: [{row: deepspeed-mean, of: ep, figure: second}]\n",
     "\"second\" is not one of seconds"},
    {ROWS, "rows: [{row: deepspeed-mean, of: ep, figure: moe, single: layer}]\n",
     "another combine than each"},
    {ROWS, "rows: [{row: deepspeed-mean, of: ep, single: iterations, combine: most}]\n",
     "\"iterations\" is not one of none, iteration"},
    {MORE, "unknowns: [{key: batch, from: 3, to: 1, why: w}]\n", "from 3 to 1 is no range"},
    {MORE, "unknowns: [{key: batch, choices: [8, 9]}]\n",
     "why: not given; an unknown needs some text"},
    {MORE, "unknowns: [{key: batch, choices: [8], why: w}]\n",
     "choices: should be a list of 2 to 8, each a short word"},
    {MORE,
     "unknowns: [{key: batch, choices: [8, 16], why: w}]\n"
     "inferred: {command: c, values: {batches: 8}}\n",
     "did you mean \"batch\"?"},
    {LEFT, "", "\"fastermoe-most\" is neither in rows nor in left-out"},
    {LEFT, "left-out: [{row: fastermoe-most, because: b}, {row: deepspeed-mean, because: b}]\n",
     "both in rows and in left-out"},
};

TEST_ROWS(slips_are_named, slips, row) {
    struct mp_reproduction *all = NULL;
    struct mp_error error = {0};
    assert_true(load_with(row->part, row->text, &all, &error) != MP_OK);
    assert_contains(error.text, row->says);
}

TEST(numbers_are_put_together) {
    AUTO(reproduction) struct mp_reproduction *all = load_small("");
    const double ep[2] = {3, 8}, flex[2] = {2, 4};
    for (int model = 0; model < 2; model++)
        for (int job = 0; job < 2; job++) {
            struct mp_reproduce_cell *cell = mp_reproduction_cell(all, 0, model, job);
            cell->figure[MP_FIGURE_SECONDS] = job ? flex[model] : ep[model];
            cell->out_of_memory = model && job;
            cell->is_done = true;
        }
    assert_works(mp_reproduction_lines(all, &error));
    assert_int_equal(all->lines, 4);
    assert_true(all->line[0].value == 1.5 && all->line[1].value == 2);
    assert_string_equal(all->line[0].label, "one");
    assert_string_equal(all->line[1].label, "two");
    assert_true(all->line[2].value == 2 && all->line[3].value == 1.75);
    for (int i = 0; i < 4; i++)
        assert_int_equal(all->line[i].out_of_memory, i > 0);
    all->row[2].combine = MP_COMBINE_GEOMETRIC_MEAN;
    assert_works(mp_reproduction_lines(all, &error));
    assert_true(fabs(all->line[3].value - sqrt(3)) < 1e-12);
    /* Neither has what is only measured, or what there is nothing of. */
    for (int i = 0; i < 2; i++) {
        all->row[0].figure = i ? MP_FIGURE_ATTENTION : MP_FIGURE_TO_LOSS;
        assert_works(mp_reproduction_lines(all, &error));
        assert_string_equal(all->line[0].missing, i ? "flex has none of it to compare with"
                                                    : "needs measured iterations of ep and flex");
    }
    all->row[0].figure = MP_FIGURE_SECONDS;
    /* What was stopped before it was done has no number and says so. */
    mp_reproduction_cell(all, 0, 1, 1)->is_done = false;
    assert_works(mp_reproduction_lines(all, &error));
    assert_true(isnan(all->line[1].value) && isnan(all->line[3].value));
    assert_true(strstr(all->line[1].missing, "stopped") != NULL);
    assert_false(all->line[1].is_inside);
}

/* Single iterations and layers are compared with each other, not their means. */
TEST(singles_are_compared_one_by_one) {
    AUTO(reproduction) struct mp_reproduction *all = load_small("");
    static const double ep[] = {3, 8, 4}, flex[] = {2, 4, 4};
    for (int job = 0; job < 2; job++) {
        struct mp_reproduce_cell *cell = mp_reproduction_cell(all, 0, 0, job);
        cell->iteration = malloc(sizeof ep);
        memcpy(cell->iteration, job ? flex : ep, sizeof ep);
        cell->layer = malloc(2 * sizeof *ep);
        memcpy(cell->layer, job ? flex : ep, 2 * sizeof *ep);
        cell->iterations = 3;
        cell->layers = 2;
        cell->is_done = true;
    }
    all->rows = 3;
    for (int i = 0; i < 3; i++) {
        all->row[i].models = 1;
        all->row[i].single = i < 2 ? MP_SINGLE_ITERATION : MP_SINGLE_LAYER;
        all->row[i].combine = i == 1 ? MP_COMBINE_LEAST : MP_COMBINE_MOST;
    }
    all->row[2].combine = MP_COMBINE_MEAN;
    assert_works(mp_reproduction_lines(all, &error));
    assert_int_equal(all->lines, 3);
    assert_true(all->line[0].value == 2 && all->line[1].value == 1);
    assert_true(all->line[2].value == 1.75);
}

/* With so many options over every job's. */
static struct mp_reproduce_settings settings_of(const char *const set[], int sets) {
    return (struct mp_reproduce_settings){.systems = &systems, .set = set, .sets = sets};
}

/* A job that its system refuses has no figures and says why; the others have theirs, and the
 * largest batch is that of those that run. */
TEST(refused_cells_say_why) {
    AUTO(reproduction) struct mp_reproduction *all = load_small("largest-batch: [ep, flex]\n");
    const char *const set[] = {"experts=12", "width=2048", "heads=32", "sequence=2048",
                               "expert-width=8192"};
    const struct mp_reproduce_settings settings = settings_of(set, 5);
    assert_works(mp_reproduction_run(all, &settings, &error));
    for (int model = 0; model < 2; model++) {
        assert_string_equal(mp_reproduction_cell(all, 0, model, 0)->refusal,
                            "experts: 12 experts can't be divided evenly over 8 ranks, which "
                            "system ep needs; take a multiple of ranks");
        assert_false(mp_reproduction_cell(all, 0, model, 0)->is_done);
        const struct mp_reproduce_cell *flex = mp_reproduction_cell(all, 0, model, 1);
        assert_true(!flex->refusal && flex->is_done && flex->figure[MP_FIGURE_SECONDS] > 0);
        assert_true(!flex->out_of_memory && all->batch[model] > 1 &&
                    all->batch[model] < MP_REPRODUCE_BATCH);
    }
    all->row[0].over = 0;
    all->row[0].of = 2; /* flex alone */
    assert_works(mp_reproduction_lines(all, &error));
    assert_int_equal(all->lines, 4);
    for (int i = 0; i < 4; i++) {
        const struct mp_reproduced *line = &all->line[i];
        assert_int_equal(line->is_refused, i >= 2);
        assert_int_equal(isnan(line->value), i >= 2);
        assert_true(i < 2 || !strncmp(line->missing, "ep is refused: experts: 12", 26));
        assert_true(i < 2 || mp_reproduced_is_lost(all, line)); /* the file says of none */
    }
    all->row[0].of = 1;
    all->rows = 1;
    for (int i = 0; i < 4; i++)
        all->cell[i].is_needed = false;
    mp_reproduction_forget(all);
    assert_fails(mp_reproduction_run(all, &settings, &error), MP_EREFUSED,
                 "paper.yaml: every job is refused; the first: experts: 12");
}

/* Means over windows of means over their counted iterations, each as it is when it is counted
 * alone; memory is that of the window with most. */
TEST(cells_are_means_of_counted_iterations) {
    AUTO(reproduction) struct mp_reproduction *all = load_small("");
    MP_AUTO(known_bounds) struct mp_known_bounds *bounds = NULL;
    assert_works(mp_known_bounds_create(&bounds, &error));
    const char *const set[] = {"batch=16", "options.interval=2", "options.capacity-factor=1",
                               "options.moves=exposed"};
    const struct mp_reproduce_measured measured[] = {{"ep", 7}, {"flex", 9}};
    const struct mp_reproduce_window windows[] = {
        {"zipf exponent=1", 0, 2, 3}, {"dynamics seed=3", 5, 1, 4}, {"zipf exponent=0.2", 0, 0, 2}};
    struct mp_reproduce_settings settings = settings_of(set, 4);
    settings.measured = measured;
    settings.measurements = 2;
    settings.bounds = bounds;
    double sum[4][MP_FIGURES] = {0}, mean[4][MP_FIGURES] = {0}, bound[4] = {0}, most[4] = {0},
           iteration[4][9];
    for (int w = 0, count = 0; w < 3; w++)
        for (int k = 0; k < windows[w].iterations; k++, count++) {
            all->window[0] = windows[w];
            all->window[0].warm_up += k;
            all->window[0].iterations = 1;
            mp_reproduction_forget(all);
            assert_works(mp_reproduction_run(all, &settings, &error));
            for (int i = 0; i < 4; i++) {
                const double *figure = all->cell[i].figure, part = 1. / 3 / windows[w].iterations;
                for (int f = 0; f < MP_FIGURES; f++) {
                    sum[i][f] += figure[f];
                    mean[i][f] += figure[f] * part;
                }
                iteration[i][count] = figure[MP_FIGURE_SECONDS];
                bound[i] += all->cell[i].of_bound * figure[MP_FIGURE_SECONDS] * part;
                most[i] = fmax(most[i], figure[MP_FIGURE_MEMORY]);
            }
        }
    memcpy(all->window, windows, sizeof windows);
    all->windows = 3;
    mp_reproduction_forget(all);
    assert_works(mp_reproduction_run(all, &settings, &error));
    for (int i = 0; i < 4; i++) {
        const struct mp_reproduce_cell *cell = &all->cell[i];
        const double *figure = cell->figure;
        double moe = 0;
        for (int f = 0; f <= MP_FIGURE_COPIED; f++)
            assert_within(figure[f], mean[i][f], 1e-12);
        assert_true(cell->iterations == 9 && cell->layers == 2 + i / 2 * 2);
        for (int layer = 0; layer < cell->layers; layer++)
            moe += cell->layer[layer];
        assert_within(moe, sum[i][MP_FIGURE_MOE], 1e-12);
        assert_true(i % 2 == 0 ||
                    (figure[MP_FIGURE_DROPPED] > 0 && figure[MP_FIGURE_TRANSFER] > 0 &&
                     figure[MP_FIGURE_TRANSFER_EXPOSED] > 0 && figure[MP_FIGURE_MOVE] > 0));
        assert_within(figure[MP_FIGURE_SURVIVAL], sum[i][MP_FIGURE_SURVIVAL] / 9, 1e-12);
        assert_true(figure[MP_FIGURE_MEMORY] == most[i] && figure[MP_FIGURE_BATCH] == 2);
        assert_within(figure[MP_FIGURE_TO_LOSS], (7 + i % 2 * 2) * figure[MP_FIGURE_SECONDS],
                      1e-12);
        assert_within(i % 2 ? isnan(cell->of_bound) : cell->of_bound,
                      i % 2 ? 1 : bound[i] / figure[MP_FIGURE_SECONDS], 1e-12);
        mp_sort_numbers(iteration[i], 9);
        assert_true(figure[MP_FIGURE_SLOWEST] == iteration[i][8] / iteration[i][4]);
    }
}

/* Planners count on from where the window says: one that looks every fifth does in the first. */
TEST(planners_count_from_the_windows_number) {
    AUTO(reproduction) struct mp_reproduction *all = load_small("");
    const char *const set[] = {"batch=16", "options.interval=50"};
    const struct mp_reproduce_settings settings = settings_of(set, 2);
    double moved[2];
    for (int i = 0; i < 2; i++) {
        all->window[0].planners_from = i ? 47 : 0;
        mp_reproduction_forget(all);
        assert_works(mp_reproduction_run(all, &settings, &error));
        moved[i] = mp_reproduction_cell(all, 0, 0, 1)->figure[MP_FIGURE_IMBALANCE];
    }
    assert_true(moved[1] < 0.99 * moved[0]); /* replicas are there from the 50th on */
}

/* Unknowns stand in the middle and are all jobs' that have no option of their own. */
TEST(unknowns_are_of_jobs) {
    struct mp_reproduction *loaded = NULL;
    struct mp_predict_job job;
    AUTO(text) char *text = NULL;
    assert_works(load_with(JOBS,
                           "unknowns: [{key: options.slots, from: 4, to: 8, why: w},\n"
                           "  {key: options.rounds, from: 4, to: 16, why: w},\n"
                           "  {key: options.threshold, from: 3, to: 5, why: w}]\n"
                           "machines: [{name: m}]\nmodels: [{name: a}]\n"
                           "jobs: [{name: ep, system: ep},\n"
                           "  {name: flex, system: flexmoe, options: {slots: 3}}]\n",
                           &loaded, &error));
    AUTO(reproduction) struct mp_reproduction *all = loaded;
    const struct mp_reproduce_settings settings = settings_of(NULL, 0);
    assert_works(mp_reproduction_job(all, &settings, (const int[]){0, 0, 1}, &job, NULL, &error));
    assert_works(mp_predict_job_text(&job, true, &text, &error));
    mp_predict_job_destroy(&job);
    assert_contains(text, "slots: 3\n", "rounds: 8\n", "threshold: 4\n");
}

struct told {
    const struct mp_reproduction *all;
    int calls, last; /* last: the call that stops; 0: none */
};

/* What is done is what cells say. */
static bool count_told(void *context, int done, int needed, const char *label) {
    struct told *told = context;
    for (int i = 0; i < needed; i++)
        done -= told->all->cell[i].is_done || told->all->cell[i].refusal;
    assert_int_equal(done, 0);
    assert_non_null(label);
    return ++told->calls != told->last;
}

/* Runs it with jobs that fill the memory. */
static int tell_of_run(struct mp_reproduction *all, int last) {
    static const char *const set[] = {"width=2048", "heads=32", "sequence=2048"};
    struct told told = {all, 0, last};
    struct mp_reproduce_settings settings = settings_of(set, 3);
    settings.context = &told;
    settings.progress = count_told;
    assert_works(mp_reproduction_run(all, &settings, &error));
    return told.calls;
}

/* The batch is the last one that fits: nothing is out of memory with it, and something is with one
 * more.  It is found in the first window; where another one needs more, it becomes smaller.  What
 * does not fit at all is so with 1. */
TEST(largest_batch_is_the_last_that_fits) {
    struct mp_reproduction *loaded = NULL;
    assert_works(load_with(
        JOBS,
        "largest-batch: [ep, flex]\n"
        "machines: [{name: m, cluster: hecate-a, change: nodes=1, expert-width: 131072},\n"
        "  {name: n, cluster: hecate-a, change: nodes=1},\n"
        "  {name: o, cluster: hecate-a, change: nodes=2}]\n"
        "models: [{name: one, expert-width: 8192},\n"
        "  {name: two, expert-width: 8192, layers: 4}]\n"
        "jobs: [{name: ep, system: ep}, {name: flex, system: flexmoe}]\n",
        &loaded, &error));
    AUTO(reproduction) struct mp_reproduction *all = loaded;
    int batch[6];
    assert_int_equal(tell_of_run(all, 0), 12); /* all fit at once */
    snprintf(all->window[0].loads, MP_TEXT_SIZE, "zipf exponent=0");
    all->window[1] = (struct mp_reproduce_window){"zipf exponent=1.5", 0, 0, 2};
    all->windows = 2;
    mp_reproduction_forget(all);
    assert_int_equal(tell_of_run(all, 6), 6); /* stopped before a smaller one is tried */
    for (int i = 0; i < 12; i++)
        assert_int_equal(all->cell[i].is_done, i < 5);
    mp_reproduction_forget(all);
    assert_true(tell_of_run(all, 0) > 12);
    for (int i = 0; i < 12; i++)
        assert_true(all->cell[i].is_done && all->cell[i].out_of_memory == (i < 4));
    assert_true(all->batch[0] == 1 && all->batch[1] == 1);
    assert_true(all->batch[2] > all->batch[3]); /* four layers need more than two */
    /* With nothing compared batches that were set stay, and are too large. */
    memcpy(batch, all->batch, sizeof batch);
    mp_reproduction_forget(all);
    all->largest_batch = 0;
    for (int i = 0; i < 6; i++)
        all->batch[i] = batch[i] + 1;
    assert_int_equal(tell_of_run(all, 0), 12);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(all->batch[i], batch[i] + 1);
        assert_true(all->cell[2 * i].out_of_memory || all->cell[2 * i + 1].out_of_memory);
    }
}

TEST_GROUP(enter, leave_folder);
