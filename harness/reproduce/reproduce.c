#include "harness/reproduce/reproduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/elementary.h"

static const double widest_even_step = 3; /* factor from which a range is even in its logarithm */

enum { TRIAL_ITERATIONS = 3 }; /* of a batch that is tried: planners have seen loads by then */

struct mp_reproduce_cell *mp_reproduction_cell(const struct mp_reproduction *all, int machine,
                                               int model, int job) {
    return &all->cell[(machine * all->models.count + model) * all->jobs.count + job];
}

static bool has(uint32_t set, int part) {
    return set >> part & 1;
}

/* ---- jobs ---- */

void mp_reproduction_value(const struct mp_reproduce_unknown *unknown, double place,
                           char value[MP_REPRODUCE_VALUE]) {
    if (unknown->choices) {
        int choice = (int)(place * unknown->choices);
        snprintf(value, MP_REPRODUCE_VALUE, "%s",
                 unknown->choice[choice < unknown->choices ? choice : unknown->choices - 1]);
        return;
    }
    double from = unknown->from, to = unknown->to;
    double number = from > 0 && to / from > widest_even_step
                        ? from * mp_elementary_power(to / from, place)
                        : from + place * (to - from);
    snprintf(value, MP_REPRODUCE_VALUE, "%.3g", number);
}

/* Systems without an option keep theirs. */
static int set_option(struct mp_predict_job *job, const char *assignment,
                      const struct mp_systems *systems, struct mp_error *error) {
    const char *name = !strncmp(assignment, "options.", 8) ? assignment + 8 : NULL;
    char key[MP_REPRODUCE_LABEL];
    if (name) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(name, "="), name);
        if (!job->file.system->options || !mp_options_find(job->file.system->options, key))
            return MP_OK;
    }
    return mp_predict_job_set(job, assignment, systems, error);
}

static const char *value_of(const struct mp_reproduction *all,
                            const struct mp_reproduce_settings *settings, int unknown) {
    return settings->value ? settings->value[unknown] : all->unknown[unknown].value;
}

static bool is_of(const struct mp_reproduce_unknown *unknown, const char *kind) {
    return !strncmp(unknown->key, kind, strlen(kind));
}

/* The unknowns that are keys of jobs; what the job itself says of its system's options stays. */
static int set_unknowns(const struct mp_reproduction *all,
                        const struct mp_reproduce_settings *settings, int job,
                        struct mp_predict_job *predict, struct mp_error *error) {
    const struct mp_yaml *own = mp_yaml_get(all->jobs.part[job].mapping, "options");
    for (int i = 0; i < all->unknowns; i++) {
        const struct mp_reproduce_unknown *unknown = &all->unknown[i];
        const char *value = value_of(all, settings, i);
        char assignment[2 * MP_REPRODUCE_LABEL];
        if (!has(unknown->jobs, job) || is_of(unknown, "loads.") || is_of(unknown, "times.") ||
            is_of(unknown, "tokens-per-rank") ||
            (own && is_of(unknown, "options.") && mp_yaml_get(own, unknown->key + 8)))
            continue;
        snprintf(assignment, sizeof assignment, "%.100s=%s", unknown->key, value);
        MP_TRY(set_option(predict, assignment, settings->systems, error));
    }
    return MP_OK;
}

static int apply_options(const struct mp_reproduction *all,
                         const struct mp_reproduce_settings *settings, const int place[3],
                         struct mp_predict_job *predict, struct mp_error *error) {
    const struct mp_yaml *const layers[] = {all->common, all->models.part[place[1]].mapping,
                                            all->machines.part[place[0]].mapping,
                                            all->jobs.part[place[2]].mapping};
    for (int i = 0; i < 4; i++)
        if (layers[i])
            MP_TRY(mp_predict_job_apply(predict, layers[i], all->path, settings->systems, error));
    if (!predict->file.system)
        return mp_fail(error, MP_EINVAL, "%s:%d: job %s has no system", all->path,
                       all->jobs.part[place[2]].mapping->line, all->jobs.part[place[2]].name);
    MP_TRY(set_unknowns(all, settings, place[2], predict, error));
    for (int i = 0; i < settings->sets; i++)
        MP_TRY(set_option(predict, settings->set[i], settings->systems, error));
    return MP_OK;
}

/* The window's loads, with what is unknown of them. */
static void name_loads(const struct mp_reproduction *all,
                       const struct mp_reproduce_settings *settings, int window,
                       char text[MP_TEXT_SIZE]) {
    snprintf(text, MP_TEXT_SIZE, "%s",
             settings->loads ? settings->loads : all->window[window].loads);
    for (int i = 0; i < all->unknowns && !settings->loads; i++)
        if (is_of(&all->unknown[i], "loads."))
            mp_text_add(text, MP_TEXT_SIZE, " ", "%s=%s", all->unknown[i].key + strlen("loads."),
                        value_of(all, settings, i));
}

/* The unknowns that need the cluster: its own numbers, and the batch. */
static int finish_job(const struct mp_reproduction *all,
                      const struct mp_reproduce_settings *settings, struct mp_predict_job *job,
                      struct mp_cluster *cluster, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; i < all->unknowns && !code; i++) {
        const char *value = value_of(all, settings, i);
        if (is_of(&all->unknown[i], "times."))
            code = mp_cluster_scale(cluster, all->unknown[i].key + strlen("times."),
                                    strtod(value, NULL), error);
        if (!is_of(&all->unknown[i], "tokens-per-rank"))
            continue;
        int least = job->options.micro_batches;
        int sequences = (int)(strtod(value, NULL) / job->file.job.sequence);
        sequences -= sequences % least;
        job->file.job.batch = (sequences > least ? sequences : least) * job->file.job.ranks;
    }
    return code;
}

int mp_reproduction_job(const struct mp_reproduction *all,
                        const struct mp_reproduce_settings *settings, const int place[3],
                        struct mp_predict_job *predict, struct mp_cluster **cluster,
                        struct mp_error *error) {
    struct mp_cluster *own = NULL;
    memset(predict, 0, sizeof *predict);
    int code = mp_predict_job_create(predict, error);
    if (!code)
        code = apply_options(all, settings, place, predict, error);
    if (!code && cluster)
        code = mp_suite_job_cluster(predict, &own, error);
    if (!code && cluster)
        code = finish_job(all, settings, predict, own, error);
    if (!code)
        name_loads(all, settings, 0, predict->loads);
    if (code) {
        mp_cluster_destroy(own);
        mp_predict_job_destroy(predict);
    } else if (cluster) {
        *cluster = own;
    }
    return code;
}

/* ---- one prediction ---- */

/* Sums of the counted iterations. */
struct counting {
    int64_t seen, warm_up, most;
    double figure[MP_FIGURES];
    double routes, dropped, bound;
    double *iteration, *layer; /* of the cell; NULL: nobody asks */
    int layers;
};

static void count(double figure[MP_FIGURES], const struct mp_prediction *one) {
    figure[MP_FIGURE_SECONDS] += one->seconds;
    figure[MP_FIGURE_MOE] += one->moe_seconds;
    figure[MP_FIGURE_EXCHANGE] += one->exchange_seconds;
    figure[MP_FIGURE_EXPERT] += one->expert_seconds;
    figure[MP_FIGURE_EXPERT_MAX] += one->expert_seconds_max;
    figure[MP_FIGURE_ATTENTION] += one->attention_seconds;
    figure[MP_FIGURE_EXPOSED] += one->exposed_seconds;
    figure[MP_FIGURE_LATE] += one->late_seconds;
    figure[MP_FIGURE_TRANSFER] += one->transfer_seconds;
    figure[MP_FIGURE_TRANSFER_EXPOSED] += one->transfer_exposed_seconds;
    figure[MP_FIGURE_MOVE] += one->move_seconds;
    figure[MP_FIGURE_IMBALANCE] += one->imbalance;
    figure[MP_FIGURE_COPIED] += (double)one->copies; /* predict() makes it a share */
}

static bool count_step(void *context, const struct mp_prediction *prediction) {
    struct counting *counting = context;
    if (counting->seen++ >= counting->warm_up) {
        count(counting->figure, prediction);
        counting->routes += (double)prediction->routes;
        counting->dropped += (double)prediction->dropped;
        counting->bound += prediction->bound_seconds;
        if (counting->iteration)
            *counting->iteration++ = prediction->seconds;
        for (int layer = 0; counting->layer && layer < counting->layers; layer++)
            counting->layer[layer] += prediction->layer_seconds[layer];
    }
    return counting->seen < counting->most;
}

/* Room for what is kept of single iterations and layers. */
static int keep_singles(struct mp_reproduce_cell *cell, int iterations, int layers,
                        struct counting *counting, struct mp_error *error) {
    cell->iteration =
        realloc(cell->iteration, (size_t)(cell->iterations + iterations) * sizeof(double));
    if (!cell->layer)
        cell->layer = calloc((size_t)layers, sizeof(double));
    if (!cell->iteration || !cell->layer)
        return mp_fail(error, MP_ENOMEM, "no memory for %d iterations", iterations);
    counting->iteration = cell->iteration + cell->iterations;
    counting->layer = cell->layer;
    cell->layers = counting->layers = layers;
    return MP_OK;
}

/* Predicts a cell's job over one window with `batch` sequences per rank (0: the job's own); keeps
 * single iterations in `cell`, unless it is NULL. */
static int predict(const struct mp_reproduction *all, const struct mp_reproduce_settings *settings,
                   const int place[3], int batch, int window, struct mp_reproduce_cell *cell,
                   struct counting *counting, struct mp_prediction_summary *summary,
                   struct mp_error *error) {
    const struct mp_predict_watch watch = {counting, count_step, cell ? settings->bounds : NULL};
    struct mp_predict_job job;
    struct mp_cluster *cluster = NULL;
    MP_TRY(mp_reproduction_job(all, settings, place, &job, &cluster, error));
    name_loads(all, settings, window, job.loads);
    job.file.job.iterations = counting->most;
    job.first_iteration = all->window[window].planners_from;
    if (batch)
        job.file.job.batch = batch * job.file.job.ranks;
    int code = mp_job_check_model(&job.file, error);
    if (!code && cell)
        code = keep_singles(cell, (int)(counting->most - counting->warm_up), job.file.job.layers,
                            counting, error);
    if (!code)
        code = mp_predict_job_run(&job, cluster, NULL, &watch, summary, error);
    if (cell && counting->iteration)
        cell->iterations = (int)(counting->iteration - cell->iteration);
    double others = (double)job.file.job.layers * job.file.job.experts * (job.file.job.ranks - 1);
    counting->figure[MP_FIGURE_COPIED] /= others > 0 ? others : 1;
    counting->figure[MP_FIGURE_BATCH] =
        job.file.job.ranks ? (double)job.file.job.batch / job.file.job.ranks : 0;
    mp_cluster_destroy(cluster);
    mp_predict_job_destroy(&job);
    return code;
}

static double measured_iterations(const struct mp_reproduce_settings *settings, const char *job) {
    for (int i = 0; i < settings->measurements; i++)
        if (!strcmp(settings->measured[i].job, job))
            return settings->measured[i].iterations;
    return NAN;
}

/* Of a cell's iterations the slowest, over the lower median. */
static double slowest(const struct mp_reproduce_cell *cell) {
    double most = 0, median = 0;
    for (int i = 0; i < cell->iterations; i++) {
        int below = 0;
        for (int j = 0; j < cell->iterations; j++)
            below += cell->iteration[j] < cell->iteration[i] ||
                     (cell->iteration[j] == cell->iteration[i] && j < i);
        if (below == (cell->iterations - 1) / 2)
            median = cell->iteration[i];
        most = cell->iteration[i] > most ? cell->iteration[i] : most;
    }
    return median > 0 ? most / median : NAN;
}

/* What is not a mean over iterations. */
static void finish_cell(const struct mp_reproduction *all,
                        const struct mp_reproduce_settings *settings, int job,
                        const struct counting *counting, struct mp_reproduce_cell *cell) {
    const struct mp_memory *memory = &cell->memory;
    double *figure = cell->figure;
    double experts = memory->parameters + memory->copies;
    figure[MP_FIGURE_DROPPED] = counting->routes > 0 ? counting->dropped / counting->routes : 0;
    figure[MP_FIGURE_SURVIVAL] = 1 - figure[MP_FIGURE_DROPPED];
    figure[MP_FIGURE_MEMORY] = memory->total;
    figure[MP_FIGURE_MEMORY_EXPERTS] = experts + memory->gradients + memory->optimizer;
    figure[MP_FIGURE_MEMORY_PARAMETERS] = experts;
    figure[MP_FIGURE_MEMORY_COPIES] = memory->copies;
    figure[MP_FIGURE_SLOWEST] = slowest(cell);
    figure[MP_FIGURE_BATCH] = counting->figure[MP_FIGURE_BATCH];
    figure[MP_FIGURE_ITERATIONS] = measured_iterations(settings, all->jobs.part[job].name);
    figure[MP_FIGURE_TO_LOSS] = figure[MP_FIGURE_ITERATIONS] * figure[MP_FIGURE_SECONDS];
    cell->of_bound = counting->dropped > 0 ? NAN : counting->bound / figure[MP_FIGURE_SECONDS];
    cell->is_done = true;
}

static int predict_cell(struct mp_reproduction *all, const struct mp_reproduce_settings *settings,
                        const int place[3], struct mp_error *error) {
    struct mp_reproduce_cell *cell = mp_reproduction_cell(all, place[0], place[1], place[2]);
    int batch = all->batch[place[0] * all->models.count + place[1]];
    struct mp_prediction_summary summary;
    struct counting sums = {0};
    int windows = settings->loads ? 1 : all->windows;
    for (int i = 0; i < windows; i++) {
        const struct mp_reproduce_window *window = &all->window[i];
        struct counting one = {.warm_up = window->warm_up,
                               .most = (int64_t)window->warm_up + window->iterations};
        MP_TRY(predict(all, settings, place, batch, i, cell, &one, &summary, error));
        if (one.seen <= one.warm_up)
            return mp_fail(error, MP_EINVAL,
                           "loads \"%.200s\" end after %lld iterations, within the %d of warm-up",
                           settings->loads ? settings->loads : window->loads, (long long)one.seen,
                           window->warm_up);
        double counted = (double)(one.seen - one.warm_up) * windows;
        for (int figure = 0; figure <= MP_FIGURE_COPIED; figure++)
            cell->figure[figure] += one.figure[figure] / counted;
        sums.routes += one.routes;
        sums.dropped += one.dropped;
        sums.bound += one.bound / counted;
        sums.figure[MP_FIGURE_BATCH] = one.figure[MP_FIGURE_BATCH];
        if (summary.memory.total > cell->memory.total)
            cell->memory = summary.memory;
        cell->out_of_memory = cell->out_of_memory || summary.out_of_memory;
    }
    finish_cell(all, settings, place[2], &sums, cell);
    return MP_OK;
}

/* ---- the batch ---- */

/* Whether all jobs that are compared fit; `*tight`, the one that did not fit last, is tried first.
 */
static int try_batch(const struct mp_reproduction *all,
                     const struct mp_reproduce_settings *settings, const int pair[2], int batch,
                     int *tight, bool *fits, struct mp_error *error) {
    struct mp_prediction_summary summary;
    *fits = true;
    for (int i = 0, first = *tight; *fits && i < all->jobs.count; i++) {
        struct counting counting = {.most = TRIAL_ITERATIONS};
        const int place[3] = {pair[0], pair[1], (first + i) % all->jobs.count};
        if (!has(all->largest_batch, place[2]))
            continue;
        struct mp_error own = {0};
        int code = predict(all, settings, place, batch, 0, NULL, &counting, &summary, &own);
        if (code == MP_EREFUSED)
            continue; /* it needs no memory at all */
        if (code)
            return mp_fail(error, code, "%s", own.text);
        *fits = !summary.out_of_memory;
        *tight = *fits ? *tight : place[2];
    }
    return MP_OK;
}

/* The largest batch with which nothing that is compared runs out of memory; at least 1.  More
 * sequences need more memory, so it is sought by doubling and then by halves. */
static int find_batch(struct mp_reproduction *all, const struct mp_reproduce_settings *settings,
                      int machine, int model, struct mp_error *error) {
    int *batch = &all->batch[machine * all->models.count + model];
    int fitting = 1, beyond = MP_REPRODUCE_BATCH + 1, tight = 0;
    const int pair[2] = {machine, model};
    if (!all->largest_batch || *batch)
        return MP_OK;
    while (fitting + 1 < beyond) {
        bool fits = true;
        bool is_bounded = beyond <= MP_REPRODUCE_BATCH || 2 * fitting >= beyond;
        int next = is_bounded ? (fitting + beyond) / 2 : 2 * fitting;
        MP_TRY(try_batch(all, settings, pair, next, &tight, &fits, error));
        *(fits ? &fitting : &beyond) = next;
    }
    *batch = fitting;
    return MP_OK;
}

/* ---- all ---- */

int mp_reproduction_needed(struct mp_reproduction *all) {
    int needed = 0;
    for (int i = 0; i < all->rows; i++)
        for (int machine = 0; machine < all->machines.count; machine++)
            for (int model = 0; model < all->models.count; model++)
                for (int job = 0; job < all->jobs.count; job++) {
                    const struct mp_reproduce_row *row = &all->row[i];
                    if (has(row->machines, machine) && has(row->models, model) &&
                        has(row->of | row->over, job))
                        mp_reproduction_cell(all, machine, model, job)->is_needed = true;
                }
    for (int i = 0; i < all->machines.count * all->models.count * all->jobs.count; i++)
        needed += all->cell[i].is_needed;
    return needed;
}

/* What the cells of a (machine, model) share while they are predicted. */
struct running {
    struct mp_reproduction *all;
    const struct mp_reproduce_settings *settings;
    int needed, done; /* of all cells */
    bool is_stopped;
};

/* Predicts a cell, or keeps why its system won't have it. */
static int try_cell(struct mp_reproduction *all, const struct mp_reproduce_settings *settings,
                    const int place[3], struct mp_error *error) {
    struct mp_reproduce_cell *cell = mp_reproduction_cell(all, place[0], place[1], place[2]);
    struct mp_error own = {0};
    int code = find_batch(all, settings, place[0], place[1], &own);
    if (!code)
        code = predict_cell(all, settings, place, &own);
    if (code != MP_EREFUSED)
        return code ? mp_fail(error, code, "%s", own.text) : MP_OK;
    cell->refusal = strdup(own.text);
    return cell->refusal ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for a refusal");
}

/* Predicts the cells of a pair that are needed and not done. */
static int predict_pair(struct running *running, int machine, int model, struct mp_error *error) {
    struct mp_reproduction *all = running->all;
    for (int job = 0; job < all->jobs.count; job++) {
        struct mp_reproduce_cell *cell = mp_reproduction_cell(all, machine, model, job);
        const int place[3] = {machine, model, job};
        char label[MP_REPRODUCE_LABEL];
        if (!cell->is_needed || cell->is_done || cell->refusal)
            continue;
        snprintf(label, sizeof label, "%.40s %.40s %.40s", all->machines.part[machine].name,
                 all->models.part[model].name, all->jobs.part[job].name);
        running->is_stopped = running->settings->progress &&
                              !running->settings->progress(running->settings->context,
                                                           running->done, running->needed, label);
        if (running->is_stopped)
            return MP_OK;
        int code = try_cell(all, running->settings, place, error);
        if (code) {
            mp_error_prefix(error, "%s", label);
            return code;
        }
        running->done++;
    }
    return MP_OK;
}

/* Whether a compared job ran out of memory after all: the batch was found on few iterations. */
static bool is_too_large(const struct mp_reproduction *all, int machine, int model) {
    for (int job = 0; job < all->jobs.count; job++)
        if (has(all->largest_batch, job) &&
            mp_reproduction_cell(all, machine, model, job)->out_of_memory)
            return all->batch[machine * all->models.count + model] > 1;
    return false;
}

static void forget_cell(struct mp_reproduce_cell *cell) {
    bool is_needed = cell->is_needed;
    free(cell->iteration);
    free(cell->layer);
    free(cell->refusal);
    memset(cell, 0, sizeof *cell);
    cell->is_needed = is_needed;
}

void mp_reproduction_forget(struct mp_reproduction *all) {
    int pairs = all->machines.count * all->models.count;
    for (int i = 0; i < pairs * all->jobs.count; i++)
        forget_cell(&all->cell[i]);
    for (int i = 0; i < pairs; i++)
        all->batch[i] = 0;
}

static void take_smaller_batch(struct running *running, int machine, int model) {
    struct mp_reproduction *all = running->all;
    all->batch[machine * all->models.count + model]--;
    for (int job = 0; job < all->jobs.count; job++) {
        struct mp_reproduce_cell *cell = mp_reproduction_cell(all, machine, model, job);
        running->done -= cell->is_done || cell->refusal;
        forget_cell(cell);
    }
}

/* With every cell refused there is nothing to show. */
static int check_refusals(const struct mp_reproduction *all, struct mp_error *error) {
    const char *first = NULL;
    for (int i = 0; i < all->machines.count * all->models.count * all->jobs.count; i++) {
        const struct mp_reproduce_cell *cell = &all->cell[i];
        if (cell->is_needed && !cell->refusal)
            return MP_OK;
        first = first ? first : cell->refusal;
    }
    return first ? mp_fail(error, MP_EREFUSED, "%s: every job is refused; the first: %s", all->path,
                           first)
                 : MP_OK;
}

int mp_reproduction_run(struct mp_reproduction *all, const struct mp_reproduce_settings *settings,
                        struct mp_error *error) {
    struct running running = {
        .all = all, .settings = settings, .needed = mp_reproduction_needed(all)};
    int pairs = all->machines.count * all->models.count;
    for (int i = 0; i < pairs && !running.is_stopped; i++) {
        int machine = i / all->models.count, model = i % all->models.count;
        int code = predict_pair(&running, machine, model, error);
        while (!code && !running.is_stopped && is_too_large(all, machine, model)) {
            take_smaller_batch(&running, machine, model);
            code = predict_pair(&running, machine, model, error);
        }
        MP_TRY(code);
    }
    MP_TRY(check_refusals(all, error));
    return mp_reproduction_lines(all, error);
}

/* ---- lines ---- */

/* A row's numbers being put together. */
struct combining {
    int count, missing;
    double sum, logarithms, least, most;
    bool out_of_memory;
};

static double in_unit(const struct mp_reproduce_row *row, double value) {
    switch (row->published.unit) {
    case MP_PAPER_CHANGE:
        return value - 1;
    case MP_PAPER_MS:
        return value * 1e3;
    case MP_PAPER_HOURS:
        return value / 3600;
    default:
        return value;
    }
}

static int add_line(struct mp_reproduction *all, struct mp_reproduced *line,
                    struct mp_error *error) {
    MP_TRY(MP_GROW(all->line, all->lines, error));
    line->is_inside = mp_paper_inside(&line->row->published, line->value);
    all->line[all->lines++] = *line;
    return MP_OK;
}

/* A cell's figure, or that of one of its iterations or layers. */
static double figure_of(const struct mp_reproduce_row *row, const struct mp_reproduce_cell *cell,
                        int single) {
    if (row->single == MP_SINGLE_ITERATION)
        return cell->iteration[single];
    return row->single == MP_SINGLE_LAYER ? cell->layer[single] : cell->figure[row->figure];
}

/* How many numbers a row has of a cell. */
static int singles_of(const struct mp_reproduce_row *row, const struct mp_reproduce_cell *cell) {
    if (!cell->is_done || row->single == MP_SINGLE_NONE)
        return 1;
    return row->single == MP_SINGLE_ITERATION ? cell->iterations : cell->layers;
}

/* The number of one combination; over < 0: of one job alone. */
static void one_number(const struct mp_reproduction *all, const struct mp_reproduce_row *row,
                       int machine, int model, int of, int over, int single,
                       struct mp_reproduced *line) {
    const struct mp_reproduce_cell *above = mp_reproduction_cell(all, machine, model, of);
    const struct mp_reproduce_cell *below =
        over < 0 ? NULL : mp_reproduction_cell(all, machine, model, over);
    bool is_measured = row->figure == MP_FIGURE_ITERATIONS || row->figure == MP_FIGURE_TO_LOSS;
    *line = (struct mp_reproduced){.row = row, .value = NAN};
    if (above->refusal || (below && below->refusal)) {
        snprintf(line->missing, sizeof line->missing, "%.30s is refused: %.400s",
                 all->jobs.part[above->refusal ? of : over].name,
                 above->refusal ? above->refusal : below->refusal);
        line->is_refused = true;
        return;
    }
    if (!above->is_done || (below && !below->is_done)) {
        snprintf(line->missing, sizeof line->missing, "not predicted: it was stopped");
        return;
    }
    double value = figure_of(row, above, single);
    if (below)
        value /= figure_of(row, below, single);
    line->out_of_memory = above->out_of_memory || (below && below->out_of_memory);
    line->value = isfinite(value) ? in_unit(row, value) : NAN;
    if (isfinite(value))
        return;
    if (is_measured)
        snprintf(line->missing, sizeof line->missing, "needs measured iterations of %.30s%s%.30s",
                 all->jobs.part[of].name, below ? " and " : "",
                 below ? all->jobs.part[over].name : "");
    else
        snprintf(line->missing, sizeof line->missing, "%.30s has none of it to compare with",
                 all->jobs.part[below ? over : of].name);
}

/* Names what is one of several. */
static void label_line(const struct mp_reproduction *all, const struct mp_reproduce_row *row,
                       int machine, int model, int of, int over, struct mp_reproduced *line) {
    const struct {
        uint32_t set;
        const struct mp_reproduce_parts *parts;
        int part;
    } labels[] = {{row->machines, &all->machines, machine},
                  {row->models, &all->models, model},
                  {row->of, &all->jobs, of},
                  {row->over, &all->jobs, over}};
    for (int i = 0; i < 4; i++)
        if (labels[i].set & (labels[i].set - 1))
            mp_text_add(line->label, sizeof line->label, ", ", "%.30s",
                        labels[i].parts->part[labels[i].part].name);
}

static void add_number(struct combining *all, const struct mp_reproduced *line) {
    if (isnan(line->value)) {
        all->missing++;
        return;
    }
    bool is_first = !all->count++;
    all->sum += line->value;
    all->logarithms += line->value > 0 ? mp_elementary_log(line->value) : NAN;
    all->least = is_first || line->value < all->least ? line->value : all->least;
    all->most = is_first || line->value > all->most ? line->value : all->most;
    all->out_of_memory = all->out_of_memory || line->out_of_memory;
}

static double combined(const struct mp_reproduce_row *row, const struct combining *all) {
    if (!all->count || all->missing)
        return NAN;
    switch (row->combine) {
    case MP_COMBINE_GEOMETRIC_MEAN:
        return mp_elementary_exp(all->logarithms / all->count);
    case MP_COMBINE_LEAST:
        return all->least;
    case MP_COMBINE_MOST:
        return all->most;
    default:
        return all->sum / all->count;
    }
}

/* A line for every combination of a row, or for all of them. */
static int add_row(struct mp_reproduction *all, const struct mp_reproduce_row *row,
                   struct mp_error *error) {
    struct combining sums = {0};
    struct mp_reproduced line, last = {.row = row, .value = NAN};
    int pairs = (all->jobs.count + 1) * all->jobs.count; /* of and over, or none */
    for (int i = 0; i < all->machines.count * all->models.count * pairs; i++) {
        int machine = i / pairs / all->models.count, model = i / pairs % all->models.count;
        int of = i % pairs / (all->jobs.count + 1), over = i % pairs % (all->jobs.count + 1) - 1;
        bool is_there = over < 0 ? !row->over : has(row->over, over);
        if (!is_there || !has(row->machines, machine) || !has(row->models, model) ||
            !has(row->of, of))
            continue;
        int singles = singles_of(row, mp_reproduction_cell(all, machine, model, of));
        for (int single = 0; single < singles; single++) {
            one_number(all, row, machine, model, of, over, single, &line);
            if (row->combine == MP_COMBINE_EACH) {
                label_line(all, row, machine, model, of, over, &line);
                MP_TRY(add_line(all, &line, error));
                continue;
            }
            add_number(&sums, &line);
            if (isnan(line.value))
                last = line;
        }
    }
    if (row->combine == MP_COMBINE_EACH)
        return MP_OK;
    last.value = combined(row, &sums);
    last.out_of_memory = sums.out_of_memory;
    return add_line(all, &last, error);
}

int mp_reproduction_lines(struct mp_reproduction *all, struct mp_error *error) {
    all->lines = 0;
    for (int i = 0; i < all->rows; i++)
        MP_TRY(add_row(all, &all->row[i], error));
    return MP_OK;
}

void mp_reproduced_name(const struct mp_reproduced *line, char name[2 * MP_REPRODUCE_LABEL]) {
    snprintf(name, 2 * MP_REPRODUCE_LABEL, "%s%s%s", line->row->published.id,
             *line->label ? ", " : "", line->label);
}

bool mp_reproduced_is_lost(const struct mp_reproduction *all, const struct mp_reproduced *line) {
    char name[2 * MP_REPRODUCE_LABEL];
    if (!line->is_refused && (isnan(line->value) || line->is_inside))
        return false;
    mp_reproduced_name(line, name);
    for (int i = 0; i < all->insides; i++)
        if (!strcmp(all->inside[i], name))
            return true;
    return all->insides < 0;
}
