#include "harness/suite/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "harness/suite/seconds.h"
#include "reference/base/characters.h"

/* ---- estimate ---- */

struct mp_estimate {
    int jobs, rounds;
    int turn;     /* of the running job, over all rounds */
    double begin; /* of the running job, s; 0: none runs */
    double done;  /* seconds of all jobs that have ended */
    int64_t first_iteration, iteration, iterations;
    double first_at, last_at; /* when the first and the last line came, s; 0: not yet */
    double duration[];        /* [jobs] in the last round, s; 0: not known */
};

int mp_estimate_create(int jobs, int rounds, struct mp_estimate **estimate,
                       struct mp_error *error) {
    struct mp_estimate *made = calloc(1, sizeof *made + (size_t)jobs * sizeof *made->duration);
    if (!made)
        return mp_fail(error, MP_ENOMEM, "no memory to estimate times");
    made->jobs = jobs;
    made->rounds = rounds;
    *estimate = made;
    return MP_OK;
}

void mp_estimate_destroy(struct mp_estimate *estimate) {
    free(estimate);
}

void mp_estimate_begin_job(struct mp_estimate *estimate) {
    estimate->begin = mp_seconds_now();
    estimate->iteration = estimate->iterations = 0;
    estimate->first_at = estimate->last_at = 0;
}

void mp_estimate_end_job(struct mp_estimate *estimate) {
    double seconds = mp_seconds_now() - estimate->begin;
    estimate->duration[estimate->turn % estimate->jobs] = seconds;
    estimate->done += seconds;
    estimate->begin = 0;
    estimate->turn++;
}

void mp_estimate_update(struct mp_estimate *estimate, int64_t iteration, int64_t iterations) {
    if (iterations < 1 || iteration == estimate->iteration)
        return;
    estimate->last_at = mp_seconds_now();
    if (estimate->first_at <= 0) {
        estimate->first_at = estimate->last_at;
        estimate->first_iteration = iteration;
    }
    estimate->iteration = iteration;
    estimate->iterations = iterations;
}

/* Seconds that the running job still needs; negative: not known. */
static double job_left(const struct mp_estimate *estimate, double elapsed) {
    int64_t counted = estimate->iteration - estimate->first_iteration;
    if (estimate->first_at > 0 && counted > 0) {
        double pace = (estimate->last_at - estimate->first_at) / (double)counted;
        double left = pace * (double)(estimate->iterations - estimate->iteration);
        double since = mp_seconds_now() - estimate->last_at;
        return left > since ? left - since : 0;
    }
    double known = estimate->duration[estimate->turn % estimate->jobs];
    if (known <= 0)
        return -1;
    return known > elapsed ? known - elapsed : 0;
}

void mp_estimate_read(const struct mp_estimate *estimate, double *share, double *seconds_left) {
    int turns = estimate->jobs * estimate->rounds, known = 0;
    double elapsed = estimate->begin > 0 ? mp_seconds_now() - estimate->begin : 0, sum = 0;
    double left = estimate->begin > 0 ? job_left(estimate, elapsed) : 0;
    *share = turns > 0 ? (double)estimate->turn / turns : 0;
    *seconds_left = -1;
    if (left < 0)
        return;
    for (int i = 0; i < estimate->jobs; i++) {
        sum += estimate->duration[i];
        known += estimate->duration[i] > 0;
    }
    double mean = known > 0 ? sum / known : elapsed + left;
    for (int turn = estimate->turn + (estimate->begin > 0); turn < turns; turn++) {
        double duration = estimate->duration[turn % estimate->jobs];
        left += duration > 0 ? duration : mean;
    }
    double spent = estimate->done + elapsed;
    *seconds_left = left;
    *share = spent + left > 0 ? spent / (spent + left) : 0;
}

enum {
    BAR_LEAST = 10,
    BAR_MOST = 30,
    NAME_COLUMNS = 24,
    LINE_SIZE = 512,
    SAID_SIZE = 16384,
    DRAW_MS = 100
};

void mp_progress_begin(struct mp_progress *progress, FILE *stream) {
    const char *terminal = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    memset(progress, 0, sizeof *progress);
    progress->stream = stream;
    progress->is_terminal =
        stream && isatty(fileno(stream)) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
    progress->has_colour = progress->is_terminal && !(no_colour && *no_colour);
}

/* Adds `more` to the text of `length` columns if that stays within `limit`. */
static bool add_within(char *text, int *length, int limit, const char *more) {
    int columns = (int)strlen(more);
    if (*length + columns > limit)
        return false;
    memcpy(text + *length, more, (size_t)columns + 1);
    *length += columns;
    return true;
}

static void format_duration(double seconds, char *text, size_t size) {
    long long whole = (long long)(fmin(fmax(seconds, 0), 1e9) + 0.5);
    if (whole >= 3600)
        snprintf(text, size, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, size, "%lld:%02lld", whole / 60, whole % 60);
}

/* The line's words, most important first, until one does not fit any more. */
static int format_words(const struct mp_progress_state *state, int limit, char *text) {
    char word[6][96] = {""}, duration[32];
    char name[NAME_COLUMNS + 1];
    snprintf(name, sizeof name, "%s", state->name);
    for (char *letter = name; *letter; letter++)
        if (*letter < ' ' || *letter > '~') /* a column each, whatever the job is called */
            *letter = '?';
    snprintf(word[0], sizeof *word, "job %d of %d ", state->job, state->jobs);
    snprintf(word[1], sizeof *word, " %s", name);
    if (state->iterations > 0) {
        snprintf(word[2], sizeof *word, "  iteration %lld/%lld", (long long)state->iteration,
                 (long long)state->iterations);
        if (state->loss > 0)
            snprintf(word[4], sizeof *word, "  loss %.3f", state->loss);
        snprintf(word[5], sizeof *word, "  %.0f ms", state->ms);
    } else {
        snprintf(word[2], sizeof *word, "  starting");
    }
    if (state->seconds_left >= 0) {
        format_duration(state->seconds_left, duration, sizeof duration);
        snprintf(word[3], sizeof *word, "  ETA %s", duration);
    }
    int length = 0;
    text[0] = '\0';
    for (int i = 0; i < 6 && add_within(text, &length, limit, word[i]); i++)
        ;
    return length;
}

const char *mp_progress_format(const struct mp_progress_state *state, int width, bool has_colour,
                               char *line, size_t size) {
    char words[LINE_SIZE];
    int limit = width - 1 < LINE_SIZE / 2 ? width - 1 : LINE_SIZE / 2;
    int length = format_words(state, limit, words);
    int columns = limit - length - 3; /* brackets and a blank */
    if (columns < BAR_LEAST) {
        snprintf(line, size, "%s", words);
        return line;
    }
    columns = columns > BAR_MOST ? BAR_MOST : columns;
    int filled = (int)(fmin(fmax(state->share, 0), 1) * columns);
    char bar[BAR_MOST + 1];
    memset(bar, '#', (size_t)filled);
    memset(bar + filled, '.', (size_t)(columns - filled));
    bar[columns] = '\0';
    snprintf(line, size, "[%s%.*s%s%s] %s", has_colour ? "\x1b[32m" : "", filled, bar,
             has_colour ? "\x1b[0m" : "", bar + filled, words);
    return line;
}

static int terminal_width(FILE *stream) {
    struct winsize window;
    if (ioctl(fileno(stream), TIOCGWINSZ, &window) || window.ws_col < 1)
        return 80;
    return window.ws_col;
}

void mp_progress_draw(struct mp_progress *progress, const struct mp_progress_state *state) {
    char line[LINE_SIZE + 64];
    if (!progress->is_terminal ||
        (progress->is_drawn && mp_seconds_now() - progress->drawn_at < 1e-3 * DRAW_MS))
        return;
    mp_progress_format(state, terminal_width(progress->stream), progress->has_colour, line,
                       sizeof line);
    fprintf(progress->stream, "\r%s\x1b[K", line);
    fflush(progress->stream);
    progress->is_drawn = true;
    progress->drawn_at = mp_seconds_now();
}

void mp_progress_end(struct mp_progress *progress) {
    if (!progress->is_drawn)
        return;
    fputs("\r\x1b[K", progress->stream);
    fflush(progress->stream);
    progress->is_drawn = false;
}

void mp_progress_say(struct mp_progress *progress, enum mp_progress_tone tone, const char *format,
                     ...) {
    static const char *const colour[] = {"", "\x1b[32m", "\x1b[31m"};
    bool is_coloured = progress->has_colour && tone != MP_TONE_PLAIN;
    if (!progress->stream)
        return;
    mp_progress_end(progress);
    if (is_coloured)
        fputs(colour[tone], progress->stream);
    va_list arguments;
    char text[SAID_SIZE];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fputs(mp_clean_text(text, sizeof text, text), progress->stream);
    fputs(is_coloured ? "\x1b[0m\n" : "\n", progress->stream);
    fflush(progress->stream);
}
