#include "reference/trainer/target.h"

#include <stdlib.h>

int mp_target_create(const struct mp_job *job, struct mp_target *target, struct mp_error *error) {
    *target = (struct mp_target){.loss = job->target_loss, .window = job->target_window};
    return MP_NEW(target->recent, target->window, error);
}

void mp_target_destroy(struct mp_target *target) {
    free(target->recent);
    *target = (struct mp_target){0};
}

bool mp_target_reached(struct mp_target *target, double loss) {
    double sum = 0;

    if (target->loss <= 0)
        return false;
    target->recent[target->next] = loss;
    target->next = (target->next + 1) % target->window;
    target->seen += target->seen < target->window;
    for (int index = 0; index < target->window; index++)
        sum += target->recent[index];
    return target->seen == target->window && sum / target->window <= target->loss;
}
