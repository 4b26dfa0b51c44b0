#include "harness/record/clocks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/median.h"

enum {
    WINDOW_MEETINGS = 16 /* least, for a window of its own */,
    QUARTER = 4,
    FEW = 12 /* meetings, whose deviations say little */,
    WITHIN = 2,
    TENTH = 10
};

/* Two ends of one meeting. */
struct pair {
    int64_t at_ns, offset_ns;
    int64_t own_ns, other_ns; /* how long it took either */
};

bool meeting_synchronises(const char *function) {
    static const char *const known[] = {"allreduce", "allgather", "alltoall", "reducescatter",
                                        "barrier"};
    char letters[64];
    size_t length = 0;
    for (; *function && length < sizeof letters - 1; function++)
        if (isalpha((unsigned char)*function))
            letters[length++] = (char)tolower((unsigned char)*function);
    letters[length] = '\0';
    return MP_ANY(i, MP_LENGTH(known), strstr(letters, known[i]));
}

int meeting_compare(const void *left, const void *right) {
    const struct meeting *a = left, *b = right;
    if (a->communicator != b->communicator)
        return a->communicator < b->communicator ? -1 : 1;
    if (a->function != b->function)
        return a->function < b->function ? -1 : 1;
    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

void meetings_order(struct meeting meeting[], size_t meetings) {
    MP_SORT(meeting, meetings, meeting_compare);
}

MP_COMPARE(compare_at, struct pair, MP_ORDER(a->at_ns, b->at_ns))

/* Sorts them. */
static int64_t median(int64_t value[], size_t count) {
    mp_sort_integers(value, (int64_t)count);
    return value[(count - 1) / 2];
}

/* Damaged recordings may say any times: differences of what this gives stay inside 64 bits. */
static int64_t apart(int64_t left_ns, int64_t right_ns) {
    return clock_bounded(clock_bounded(left_ns) - clock_bounded(right_ns));
}

/* What of two clocks' meetings is one, by the time on `own`; `known` is compared already. */
static size_t match(const struct meeting_clock *own, const struct meeting_clock *known,
                    struct pair pair[]) {
    const struct clock_fit fit = clock_fit_samples(known->sample, known->samples);
    size_t a = 0, b = 0, pairs = 0;
    while (a < own->meetings && b < known->meetings) {
        int order = meeting_compare(&own->meeting[a], &known->meeting[b]);
        if (order == 0) {
            const int64_t there_ns = clock_fit_apply(&fit, known->meeting[b].end_ns);
            pair[pairs].at_ns = own->meeting[a].end_ns;
            pair[pairs].own_ns = apart(own->meeting[a].end_ns, own->meeting[a].start_ns);
            pair[pairs].other_ns = apart(known->meeting[b].end_ns, known->meeting[b].start_ns);
            pair[pairs++].offset_ns = apart(own->meeting[a].end_ns, there_ns);
        }
        a += order <= 0;
        b += order >= 0;
    }
    MP_SORT(pair, pairs, compare_at);
    return pairs;
}

/* What it took the one who came last. */
static int64_t transfer_of(const struct pair *pair) {
    return pair->own_ns < pair->other_ns ? pair->own_ns : pair->other_ns;
}

static int compare_transfers(const void *left, const void *right) {
    const int64_t a = transfer_of(left), b = transfer_of(right);
    return MP_ORDER(a, b);
}

/* Leaves the pairs in another order. */
static struct clock_sample sample_of(struct pair pair[], size_t pairs, int64_t number[]) {
    struct clock_sample sample = {.at_ns = pair[pairs / 2].at_ns};
    const size_t best = (pairs + QUARTER - 1) / QUARTER;
    MP_SORT(pair, pairs, compare_transfers);
    for (size_t i = 0; i < best; i++)
        number[i] = pair[i].offset_ns;
    sample.offset_ns = median(number, best);
    for (size_t i = 0; i < best; i++)
        number[i] = llabs(pair[i].offset_ns - sample.offset_ns);
    sample.error_ns = 2 * median(number, best);
    return sample;
}

/* How many of them one left before the other had come, by these clocks: they were no meetings. */
static size_t count_impossible(const struct pair pair[], size_t pairs, int64_t offset_ns) {
    size_t impossible = 0;
    for (size_t i = 0; i < pairs; i++)
        impossible += offset_ns - pair[i].offset_ns > pair[i].other_ns ||
                      pair[i].offset_ns - offset_ns > pair[i].own_ns;
    return impossible;
}

/* One of the ends of the ranges that an offset may lie in if nobody left before the other had come:
 * the narrowest, or, `left_out`, that which a tenth of the pairs contradict. */
static int64_t limit_of(const struct pair pair[], size_t pairs, bool is_upper, bool left_out,
                        int64_t number[]) {
    const size_t tenth = left_out ? pairs / TENTH : 0;
    for (size_t i = 0; i < pairs; i++)
        number[i] = pair[i].offset_ns + (is_upper ? pair[i].other_ns : -pair[i].own_ns);
    mp_sort_integers(number, (int64_t)pairs);
    return number[is_upper ? tenth : pairs - 1 - tenth];
}

/* Ends scatter evenly, or to both sides: processes that take turns on a core leave some 50 us later
 * in turns.  The short meetings say then where the offset can be at all. */
static void narrow(struct clock_sample *sample, const struct pair pair[], size_t pairs,
                   int64_t number[]) {
    int64_t lower_ns = limit_of(pair, pairs, false, false, number),
            upper_ns = limit_of(pair, pairs, true, false, number);
    if (lower_ns > upper_ns) {
        lower_ns = limit_of(pair, pairs, false, true, number);
        upper_ns = limit_of(pair, pairs, true, true, number);
    }
    if (lower_ns > upper_ns)
        return; /* other meetings, or a clock that runs away */
    if (sample->offset_ns < lower_ns || sample->offset_ns > upper_ns) {
        sample->error_ns = (upper_ns - lower_ns) / 2 + 1;
        sample->offset_ns = lower_ns + sample->error_ns - 1;
    } else if (sample->error_ns > upper_ns - lower_ns) {
        sample->error_ns = upper_ns - lower_ns;
    }
}

/* Takes the line through the windows' offsets from the pairs': what a clock runs apart within a
 * window is no deviation.  `even`: the first window's alone. */
static struct clock_fit straighten(struct pair pair[], size_t pairs, size_t windows, bool even,
                                   int64_t number[]) {
    struct clock_sample sample[CLOCK_WINDOWS];
    for (size_t w = 0; w < windows; w++) {
        const size_t first = pairs * w / windows, end = pairs * (w + 1) / windows;
        sample[w] = sample_of(pair + first, end - first, number);
    }
    const struct clock_fit line = clock_fit_samples(sample, even ? 1 : (int)windows);
    for (size_t i = 0; i < pairs; i++)
        pair[i].offset_ns =
            apart(pair[i].offset_ns, apart(pair[i].at_ns, clock_fit_apply(&line, pair[i].at_ns)));
    MP_SORT(pair, pairs, compare_at);
    return line;
}

/* false: they were other meetings; or, not `even`, clocks that seem to run apart and don't, as
 * where windows' offsets scatter. */
static bool fill_samples(struct meeting_clock *own, const struct meeting_clock *known, bool even,
                         struct pair pair[], int64_t number[]) {
    const size_t pairs = match(own, known, pair);
    if (pairs == 0)
        return false;
    size_t windows = pairs / WINDOW_MEETINGS;
    windows = windows < 1 ? 1 : windows > CLOCK_WINDOWS ? CLOCK_WINDOWS : windows;
    int64_t passed_on = 0; /* error of the clock that it was compared with */
    size_t impossible = 0;
    bool one_clock = true;
    for (int i = 0; i < known->samples; i++)
        passed_on = known->sample[i].error_ns > passed_on ? known->sample[i].error_ns : passed_on;
    const struct clock_fit line = straighten(pair, pairs, windows, even, number);
    for (size_t w = 0; w < windows; w++) {
        const size_t first = pairs * w / windows, end = pairs * (w + 1) / windows;
        struct clock_sample sample = sample_of(pair + first, end - first, number);
        narrow(&sample, pair + first, end - first, number);
        impossible += count_impossible(pair + first, end - first, sample.offset_ns);
        sample.offset_ns += apart(sample.at_ns, clock_fit_apply(&line, sample.at_ns));
        sample.error_ns += passed_on;
        const int64_t apart_ns = llabs(sample.offset_ns);
        one_clock = one_clock && (apart_ns <= WITHIN * sample.error_ns ||
                                  (own->on_first_host && apart_ns <= CLOCK_SAME_NS));
        if (end - first <= FEW && sample.error_ns < transfer_of(&pair[first]))
            sample.error_ns = transfer_of(&pair[first]); /* the shortest one's, now */
        own->sample[w] = sample;
    }
    own->mismatched = impossible * TENTH > pairs;
    if (own->mismatched)
        return false;
    own->samples = one_clock && own->on_first_host ? 0 : (int)windows;
    own->matched = (int64_t)pairs;
    own->aligned = true;
    for (size_t w = 0; one_clock && w < windows; w++) {
        struct clock_sample *sample = &own->sample[w];
        sample->error_ns = llabs(sample->offset_ns) > sample->error_ns ? llabs(sample->offset_ns)
                                                                       : sample->error_ns;
        sample->offset_ns = 0;
    }
    return true;
}

bool meeting_clocks_align(struct meeting_clock clock[], int clocks) {
    size_t most = 1;
    for (int i = 0; i < clocks; i++)
        most = clock[i].meetings > most ? clock[i].meetings : most;
    struct pair *pair = calloc(most, sizeof *pair);
    int64_t *number = calloc(most, sizeof *number);
    int *order = calloc((size_t)clocks + 1, sizeof *order); /* in which clocks were compared */
    const bool has_memory = pair && number && order;
    int compared = 0;
    if (has_memory && clocks > 0) {
        clock[0].aligned = true;
        order[compared++] = 0;
    }
    for (int next = 0; has_memory && next < compared; next++) {
        for (int i = 1; i < clocks; i++) {
            if (clock[i].aligned)
                continue;
            const struct meeting_clock *known = &clock[order[next]];
            if (fill_samples(&clock[i], known, false, pair, number) ||
                fill_samples(&clock[i], known, true, pair, number))
                order[compared++] = i;
        }
    }
    free(pair);
    free(number);
    free(order);
    return has_memory;
}

struct meeting_summary meeting_clocks_summarise(const struct meeting_clock clock[], int clocks) {
    struct meeting_summary summary = {0};
    for (int c = 0; c < clocks; c++) {
        summary.on_first_host += clock[c].on_first_host && clock[c].samples == 0;
        if (clock[c].samples == 0)
            continue;
        if (summary.aligned++ == 0 || clock[c].matched < summary.matched)
            summary.matched = clock[c].matched;
        for (int i = 0; i < clock[c].samples; i++) {
            const struct clock_sample *sample = &clock[c].sample[i];
            if (llabs(sample->offset_ns) > summary.offset_ns)
                summary.offset_ns = llabs(sample->offset_ns);
            if (sample->error_ns > summary.error_ns)
                summary.error_ns = sample->error_ns;
        }
    }
    return summary;
}

int clock_samples_write(const struct clock_sample sample[], int samples,
                        struct spool_writer *writer, struct mp_error *error) {
    for (int i = 0; i < samples; i++) {
        const struct mp_spool_record record = {
            .type = MP_SPOOL_CLOCK,
            .as.clock = {sample[i].at_ns, sample[i].offset_ns, sample[i].error_ns}};
        MP_TRY(spool_writer_add(writer, &record, error));
    }
    return MP_OK;
}
