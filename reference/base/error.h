/* Errors: the first failure wins and carries one sentence.
 *
 * Every function that can fail returns MP_OK or a negative MP_E... code and, when it is the first
 * to fail, writes one sentence into `struct mp_error`: what was being done, to what, the value at
 * fault, and for files the path, the line and the key.  Upper layers pass the error on; only
 * `main` prints it and chooses the exit status. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/order.h"

enum mp_code {
    MP_OK = 0,
    MP_EINVAL = -1,        /* a value that the caller or the user got wrong */
    MP_EIO = -2,           /* reading or writing failed */
    MP_ENOMEM = -3,        /* out of memory */
    MP_EFORMAT = -4,       /* a file is not what it should be */
    MP_EVERSION = -5,      /* a file of a version that this build does not know */
    MP_ENOSPACE = -6,      /* a disk is full */
    MP_ENOTFOUND = -7,     /* a name, file or program does not exist */
    MP_ELIMIT = -8,        /* a stated limit (memory, ranks, slots) would be exceeded */
    MP_ECOMM = -9,         /* the transport failed; the text names the rank */
    MP_EDEVICE = -10,      /* a compute library failed; the text holds its own code */
    MP_EPLAN = -11,        /* a plan breaks the law (plan_check.h) or is not declared (system.h) */
    MP_EINTERRUPTED = -12, /* stopped by SIGINT, SIGTERM or SIGHUP after a complete iteration */
    MP_EREFUSED = -13      /* a system can't do such a job; another one may */
};

struct mp_error {
    int code;       /* MP_OK until the first failure */
    char text[768]; /* one sentence, no line break at its end */
};

/* Records the first failure and returns `code`, so that callers can write
 * `return mp_fail(error, ...)`.  Later failures do not overwrite it.  `error` may be NULL. */
int mp_fail(struct mp_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* mp_fail with what errno says behind the text: "a.yaml: Permission denied".  MP_ENOTFOUND for what
 * isn't there, MP_ENOSPACE for a full disk, a quota and a limit of sizes, else MP_EIO. */
int mp_fail_errno(struct mp_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Leaves the function with the code of a call that failed; what has to be undone then is MP_AUTO.
 */
#define MP_TRY(call)                                                                               \
    do {                                                                                           \
        int mp_tried = (call);                                                                     \
        if (mp_tried)                                                                              \
            return mp_tried;                                                                       \
    } while (0)

/* What is declared as MP_AUTO(name) is ended with its block, however that is left: as MP_END says
 * of the name, beside the type; the call takes `it`.  So a function that makes something can go on
 * with MP_TRY.  Not for what malloc gave it itself, which static analysis would take for lost, but
 * for what mp_new did: zeroed, to be freed; NULL without memory. */
#define MP_AUTO(name) __attribute__((cleanup(mp_end_##name)))
#define MP_END(name, type, call)                                                                   \
    static inline void mp_end_##name(__typeof__(type) *it) {                                       \
        call;                                                                                      \
    }
MP_END(text, char *, free(*it))
MP_END(file, FILE *, (*it ? fclose(*it) : 0)) /* that was read */
void *mp_new(size_t count, size_t size);

/* MP_ENOMEM, "no memory": where there is nothing to say of what it was for. */
int mp_no_memory(struct mp_error *error);

/* Makes `table` what mp_new gives.  MP_ENOMEM with a sentence that has the sizes: it stays as it
 * was. */
#define MP_NEW(table, count, error) mp_make(&(table), (size_t)(count), sizeof *(table), error)
int mp_make(void *table, size_t count, size_t size, struct mp_error *error);

/* A table of any type that is only wanted here: MP_AUTO(memory) int *order = NULL, then MP_NEW. */
static inline void mp_end_memory(void *it) {
    void *table;
    memcpy(&table, it, sizeof table);
    free(table);
}

/* Puts "`prefix`: " in front of the recorded sentence (for instance the rank or the file) and
 * returns the recorded code.  Does nothing when nothing has failed. */
int mp_error_prefix(struct mp_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
