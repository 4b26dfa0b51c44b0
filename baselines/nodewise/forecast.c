/* Forecast: how far to trust what came last. */
#include "baselines/nodewise/nodewise.h"

#include <math.h>
#include <stdlib.h>

/* Forecasts that had half of all routes at other experts are worth nothing, those that had a tenth
 * there nearly all: by the square, up to the long mean alone (README.md says what was tried). */
static const double DOUBT = 5;

struct past {
    const struct mp_recent *recent;
    size_t first;
    int without;
};

/* Routes of the iteration so many before the one that is forecast; of the oldest if there is none.
 */
static const int64_t *row(const struct past *past, int before) {
    int most = past->recent->count, wanted = before + past->without;
    return mp_recent_row(past->recent, wanted < most ? wanted : most) + past->first;
}

/* The part of all routes that went elsewhere than the two iterations before had them, on average
 * over the last `window`; all if nothing was before. */
static double moved(const struct past *past, int experts, int window) {
    int judged = past->recent->count - past->without - 1;
    int64_t apart = 0, all = 0;
    if (judged > window)
        judged = window;
    for (int before = 1; before <= judged; before++) {
        const int64_t *came = row(past, before);
        const int64_t *last = row(past, before + 1), *second = row(past, before + 2);
        for (int expert = 0; expert < experts; expert++) {
            apart += llabs(2 * came[expert] - last[expert] - second[expert]);
            all += came[expert];
        }
    }
    return all > 0 ? (double)apart / (4 * (double)all) : 1;
}

void mp_nodewise_forecast(const struct mp_recent *recent, size_t first, int experts, int window,
                          int without, int64_t expected[]) {
    const struct past past = {recent, first, without};
    int known = recent->count - without, iterations = known < window ? known : window;
    const double apart = moved(&past, experts, window), share = fmin(1, DOUBT * apart * apart);
    const int64_t *last = row(&past, 1), *second = row(&past, 2);
    for (int expert = 0; expert < experts; expert++)
        expected[expert] = 0;
    for (int before = 1; before <= iterations; before++)
        for (int expert = 0; expert < experts; expert++)
            expected[expert] += row(&past, before)[expert];
    for (int expert = 0; expert < experts; expert++) {
        double of_two = (double)(last[expert] + second[expert]) / 2;
        double of_all = (double)expected[expert] / iterations;
        expected[expert] = (int64_t)(of_two + share * (of_all - of_two) + 0.5);
    }
}
