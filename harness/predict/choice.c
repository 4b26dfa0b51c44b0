#include "harness/predict/choice.h"

#include <math.h>

void mp_choice_create(struct mp_choice *choice, int count, int arrays, double **memory) {
    *choice = (struct mp_choice){*memory, *memory + count, *memory + 2 * count, count};
    *memory += arrays * count;
}

void mp_choice_begin(struct mp_choice *choice, int first) {
    for (int i = 0; i < choice->count; i++) {
        choice->of[i] = i < first ? 1.0 / first : 0;
        choice->regret[i] = choice->mean[i] = 0;
    }
}

double mp_choice_weighted(const struct mp_choice *weights, const struct mp_choice *seconds) {
    double sum = 0;
    for (int i = 0; i < weights->count; i++)
        sum += weights->of[i] * seconds->of[i];
    return sum;
}

/* The weights, in proportion to these where any is above zero. */
static void weigh(struct mp_choice *choice, const double by[]) {
    double sum = 0;
    for (int i = 0; i < choice->count; i++)
        sum += by[i];
    for (int i = 0; i < choice->count && sum > 0; i++)
        choice->of[i] = by[i] / sum;
}

void mp_choice_improve(struct mp_choice *choice, const struct mp_choice *seconds, double share,
                       double enough) {
    double mean = 0;
    for (int i = 0; i < choice->count; i++)
        mean += choice->of[i] * fmin(enough, seconds->of[i]);
    for (int i = 0; i < choice->count; i++) {
        choice->mean[i] += share * choice->of[i];
        choice->regret[i] = fmax(0, choice->regret[i] + fmin(enough, seconds->of[i]) - mean);
    }
    weigh(choice, choice->regret);
}

void mp_choice_take_mean(struct mp_choice *choice) {
    weigh(choice, choice->mean);
}

void mp_choice_spread(const struct mp_choice *kinds, int first, struct mp_choice *choice) {
    for (int i = 0; i < choice->count; i++)
        choice->of[i] = i < first ? kinds->of[0] / first : kinds->of[1] / (choice->count - first);
}

void mp_choice_improve_kinds(struct mp_choice *kinds, const struct mp_choice *seconds, int first,
                             double share) {
    double mean[2] = {0};
    for (int i = 0; i < seconds->count; i++)
        mean[i >= first] += seconds->of[i] / (i < first ? first : seconds->count - first);
    mp_choice_improve(kinds, &(struct mp_choice){.of = mean, .count = 2}, share, INFINITY);
}
