/* Times contain what recording them cost: how much, on either side. */
#include <math.h>
#include <stdio.h>

#include "results/compare/internal.h"
#include "results/report/recording_cost.h"

enum { SHARE_TEXT = 48 };

/* The largest share of an iteration over a side's complete runs, in words. */
static int describe(const struct side *side, char text[SHARE_TEXT], int *measured,
                    struct mp_error *error) {
    double most = NAN;
    for (int i = 0; i < side->count; i++) {
        struct recording_cost cost;
        if (!side->run[i].complete || side->run[i].predicted)
            continue;
        MP_TRY(recording_cost_read(side->store, side->run[i].run_id, &cost, error));
        most = fmax(most, cost.share);
        ++*measured;
    }
    if (isnan(most))
        snprintf(text, SHARE_TEXT, "not measured");
    else
        snprintf(text, SHARE_TEXT, "at most %.3f %% of an iteration", 100 * most);
    return MP_OK;
}

int gate_note_recording(struct comparison *comparison, struct mp_error *error) {
    char base[SHARE_TEXT], head[SHARE_TEXT];
    int measured = 0;
    MP_TRY(describe(&comparison->base, base, &measured, error));
    MP_TRY(describe(&comparison->head, head, &measured, error));
    if (measured > 0)
        gate_note(comparison->gate, "Recording cost: base %s, head %s.", base, head);
    return MP_OK;
}
