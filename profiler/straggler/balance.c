/* Measures of balance: see straggler.h. */
#include "profiler/straggler/straggler.h"
#include "reference/base/median.h"

#include <math.h>

struct mp_balance mp_balance_of(const uint32_t routes[], int experts, int64_t sorted[]) {
    double total = 0, squares = 0, over = 0, ranked = 0;
    for (int e = 0; e < experts; e++) {
        sorted[e] = routes[e];
        total += routes[e];
    }
    const struct mp_imbalance imbalance = mp_imbalance_of(sorted, experts); /* in their order */
    mp_sort_integers(sorted, experts);
    if (!(total > 0))
        return (struct mp_balance){imbalance, NAN, NAN, NAN, NAN};
    double mean = total / experts;
    for (int e = 0; e < experts; e++) {
        double n = (double)sorted[e];
        squares += (n - mean) * (n - mean);
        over += n > 1.25 * mean ? n - 1.25 * mean : 0;
        ranked += (e + 1.0) * n;
    }
    return (struct mp_balance){
        .imbalance = imbalance,
        .variation = sqrt(squares / experts) / mean,
        .chance_variation = 1 / sqrt(mean),
        .overload_fraction = over / total,
        .gini = 2 * ranked / (experts * total) - (experts + 1.0) / experts,
    };
}

static double nearest_rank(const double value[], int count, int percent) {
    int64_t place = ((int64_t)count * percent + 99) / 100;
    return value[place > 0 ? place - 1 : 0];
}

struct mp_percentiles mp_percentiles_of(double value[], int count) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(value[i]))
            value[kept++] = value[i];
    if (kept == 0)
        return (struct mp_percentiles){NAN, NAN, NAN, NAN};
    mp_sort_numbers(value, kept);
    return (struct mp_percentiles){nearest_rank(value, kept, 50), nearest_rank(value, kept, 90),
                                   nearest_rank(value, kept, 99), value[kept - 1]};
}
