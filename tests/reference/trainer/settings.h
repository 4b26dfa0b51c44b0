/* Jobs by their settings in one text: "system=fssdp layers=3 gate=switch". */
#pragma once

#include "baselines/systems.h"
#include "reference/trainer/job.h"
#include "tests/support.h"

enum { MOST_SETTINGS = 2000 }; /* characters */

/* Sets the words of `text` one after the other, up to the first that is wrong. */
static inline int set_job(struct mp_job_file *file, const char *text,
                          const struct mp_systems *systems, struct mp_error *error) {
    char word[MOST_SETTINGS];
    for (int length; !error->code && sscanf(text, "%1999s%n", word, &length) == 1; text += length)
        mp_job_set(file, NULL, word, systems, error);
    return error->code;
}

/* A job of any system, and of `further` unless it is NULL; to be destroyed if it fails, too. */
static inline int create_job(struct mp_job_file *file, const char *text,
                             const struct mp_system *further, struct mp_error *error) {
    struct mp_systems systems = {0};
    *file = (struct mp_job_file){0};
    if (mp_systems_register_all(&systems, error) ||
        (further && mp_systems_register(&systems, further, error)) ||
        mp_job_file_create(file, error))
        return error->code;
    return set_job(file, text, &systems, error);
}
