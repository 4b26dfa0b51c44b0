#include "harness/predict/what_if_seconds.h"

/* What rates say of one layer, direction and rank. */
struct rated {
    double expert, dispatch, combine;
};

static struct rated rate(const struct mp_demand *demand, const struct mp_other_rates *rates,
                         int way) {
    const struct mp_stepped_seconds *steps = &demand->stepped[way];
    if (demand->pipelined) /* backward, gradients come to the experts in combine */
        return (struct rated){steps->expert, way ? steps->back : steps->there,
                              way ? steps->there : steps->back};
    return (struct rated){demand->routes > 0 ? mp_fitted_at(&rates->expert[way], demand->routes)
                                             : 0,
                          mp_fitted_at(&rates->dispatch[way], demand->rows),
                          mp_fitted_at(&rates->combine[way], demand->rows)};
}

/* How long a rank's experts have to wait for copies, or it for their gradients. */
static double stall_of(const struct mp_demand *demand, const struct mp_other_rates *rates, int way,
                       double attention) {
    const struct mp_fitted_line *line = &rates->copies[way];
    if (demand->bytes[way] <= 0)
        return 0;
    if (!mp_what_if_copies_pass(rates))
        return mp_fitted_at(line, demand->bytes[way]);
    double hidden = way ? demand->bytes[way] : demand->early;
    double beyond = mp_fitted_at(line, hidden) - attention;
    double late = demand->pipelined ? 0 : line->beyond * (demand->bytes[way] - hidden);
    return (beyond > 0 ? beyond : 0) + late; /* steps have waited for theirs */
}

/* Not below nothing. */
static double instead(double measured, double own, double now) {
    double seconds = measured + now - own;
    return seconds > 0 ? seconds : 0;
}

static void take_layer(const struct mp_demand *now, const struct mp_demand *own,
                       const struct mp_what_if_layer *measured, const double attention[2],
                       const struct mp_other_rates *rates, bool rates_alone,
                       struct mp_what_if_layer *seconds) {
    for (int way = 0; way < 2; way++) {
        struct rated asked = rate(now, rates, way), had = rate(own, rates, way);
        bool both = own->bytes[way] > 0 && now->bytes[way] > 0 && !rates_alone;
        seconds->expert[way] = asked.expert;
        seconds->dispatch[way] = asked.dispatch;
        seconds->combine[way] = asked.combine;
        if (!rates_alone) {
            if (own->routes > 0 && now->routes > 0)
                seconds->expert[way] = instead(measured->expert[way], had.expert, asked.expert);
            seconds->dispatch[way] = instead(measured->dispatch[way], had.dispatch, asked.dispatch);
            seconds->combine[way] = instead(measured->combine[way], had.combine, asked.combine);
        }
        seconds->stall[way] =
            both ? instead(measured->stall[way], mp_fitted_at(&rates->copies[way], own->bytes[way]),
                           mp_fitted_at(&rates->copies[way], now->bytes[way]))
                 : stall_of(now, rates, way, attention[way]);
    }
}

void mp_what_if_seconds(const struct mp_demands *now, const struct mp_demands *own,
                        const struct mp_what_if_measured *measured,
                        const struct mp_other_rates *rates, bool rates_alone,
                        struct mp_what_if_layer seconds[], double after_step[]) {
    for (size_t i = 0; i < mp_demands_count(now); i++)
        take_layer(&now->demand[i], &own->demand[i], &measured->layer[i], measured->attention[i],
                   rates, rates_alone, &seconds[i]);
    for (int i = 0; i < now->iterations; i++)
        after_step[i] = rates->move * now->moved[i];
}
