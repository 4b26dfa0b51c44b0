/* Store: recorded runs in one SQLite database.
 *
 * The database is an interface: users query it with any SQLite shell.  Its tables and the promised
 * views (v_run, v_speedup, v_iteration, v_straggler, v_imbalance, v_phase, and v_span, v_load,
 * v_number, v_rank, v_fact beside them) are defined and documented column by column in schema.sql
 * and, for what later versions added or changed, in tables_2.sql and tables_3.sql, which are
 * compiled into the program.
 * README.md in this folder is the guide for people who query.
 *
 * A database carries `PRAGMA application_id` MP_STORE_APPLICATION ("MoEp") and `PRAGMA
 * user_version` MP_STORE_VERSION.  It is in WAL mode, so reports can read while a suite writes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/error.h"

struct sqlite3;

enum { MP_STORE_APPLICATION = 0x4d6f4570, MP_STORE_VERSION = 4 };

struct mp_store;

/* Opens for reading and writing; creates the file when it does not exist (or is empty), brings an
 * older schema up to date in one transaction, and then replaces in another the views that are not
 * this build's (views gain columns without a new schema version).  The file is left as it was on
 * every error:
 *   MP_EINVAL    no file: ":memory:", "" or a URI, whose runs would be gone with the program
 *   MP_EVERSION  written by a newer moeperf (both versions are named)
 *   MP_EFORMAT   not an SQLite database, damaged, or an SQLite database of another program
 *   MP_EIO       can't be opened, read or written; busy for more than 10 s
 *   MP_ENOSPACE  the disk is full */
int mp_store_open(const char *path, struct mp_store **store, struct mp_error *error);

/* The same without ever writing.  The file must exist (MP_ENOTFOUND) and have schema version 2,
 * whose tables have the same columns, or this build's; an older one is MP_EVERSION with the advice
 * to open it once for writing.  Temporary views hide those in the file that are not this build's,
 * so that queries on this connection see every column.  A file where nothing may be written (SQLite
 * would want to) is read as one that nobody writes to, unless a log beside it has runs that are not
 * in it yet: MP_EIO. */
int mp_store_open_read_only(const char *path, struct mp_store **store, struct mp_error *error);

void mp_store_close(struct mp_store *store); /* accepts NULL */
MP_END(store, struct mp_store *, mp_store_close(*it))

/* Who decides how long to wait while another program has the database locked: `waits` is called
 * some fifty times a second with the seconds waited so far, and false gives up (MP_EIO, "database
 * is locked").  NULL: 10 s, as from the beginning on. */
void mp_store_set_patience(struct mp_store *store, bool (*waits)(void *context, double seconds),
                           void *context);

/* A text about a run that is known without its recordings. */
struct mp_store_fact {
    const char *name, *value;
};

/* Nanoseconds of CLOCK_MONOTONIC on rank 0's host. */
struct mp_store_slice {
    int64_t start_ns, end_ns;
};

/* One job of one suite invocation, as the harness knows it.  Texts are borrowed during the call;
 * NULL is stored as NULL where the comment does not say otherwise. */
struct mp_store_run {
    const char *suite;     /* name of the suite; required */
    const char *job;       /* name of the job in it; required */
    const char *suite_run; /* id of one invocation; runs are only compared inside one; required */
    const char *system;    /* "ep", "fssdp", ...; required */
    const char *executor;  /* "measured" or "predicted"; required */
    const char *workload;  /* "text", "balanced", "skewed 0.70 on 4", ...; required */
    const char *gate;      /* "gshard", "switch", "softmax top-6" */
    const char *model;     /* what else two runs differ in that are not compared, e.g. the sizes of
                            * the model in one line; NULL: nothing else */
    const char *setting_key; /* equal for runs that are compared, whatever their loads; NULL: where
                              * gate, model, ranks, ranks_per_node and executor are equal */
    const char *status; /* "complete", "failed", "interrupted", "timeout", or "refused": its system
                         * can't do such a job, and nothing was started; required */
    const char *reason; /* one sentence, for all but "complete" */
    bool unless_completed;  /* nobody saw its end: it is complete, whatever these two say, if every
                             * rank's recording says that it completed */
    const char *started_at; /* ISO 8601, UTC: "2025-01-31T12:00:00Z"; required */
    const char *suite_text; /* the suite file as it was read */
    const char *job_text;   /* the job file as the ranks read it */
    const char *command;    /* the command line that started the job */
    int round;              /* repetition of the suite, from 0; ratios are taken inside one */
    int ranks, nodes, ranks_per_node;
    int64_t iterations_wanted;
    bool unattainable; /* the system is a yardstick that none attains: every report says so */
    const struct mp_store_fact *fact; /* [facts], put into table fact with rank -1 */
    int facts;
    /* [slices], one after another: when the job had the machine for itself.  Iterations that don't
     * lie within one of them don't count as steady.  NULL: it had it always. */
    const struct mp_store_slice *slice;
    int slices;
};

/* Adds one run with everything in its spools, one file per rank in any order, in one transaction:
 * either all of it is in the database or nothing.  Existing runs are never touched.
 *
 * Adding a run again adds nothing and gives the run_id it has: after a kill nobody has to know how
 * far the last attempt got.  A run is known by its recordings (fact run.identity: a digest of all
 * their records), whatever it is called; without any by suite, invocation, job, round, system,
 * start and how it ended.  A recording that goes on afterwards is another run.
 *
 * A rank whose spool is missing, is not a spool, belongs to another number of ranks or repeats a
 * rank is left out: its row in `rank` says why in `reason` and the call succeeds.  So does the row
 * of a rank that is there but recorded at another time than the others (of another run, it seems:
 * then no times are subtracted between ranks) or with a clock that jumped back.  A spool that ends
 * without an end record (killed rank) or in a damaged record is taken as far as it goes;
 * `rank.unread_bytes` has what was left.  Times are put on rank 0's clock with the recorded offsets
 * (linear between the samples) and count from the run's first span.
 *
 * run_id: of the run, may be NULL.
 * Errors: MP_EINVAL (a required field is missing; a status that does not exist), MP_EIO,
 * MP_ENOSPACE, which name the database; MP_ENOMEM. */
int mp_store_ingest(struct mp_store *store, const struct mp_store_run *run,
                    const char *const spool_paths[], int count, int64_t *run_id,
                    struct mp_error *error);

/* Adds what collectors of GPU work recorded beside a run (profiler/device/companion.h), in one
 * transaction: kernels, copies, sets and calls in tables named as in Nsight Systems' export, NCCL's
 * operations in table collective; views v_gpu and v_collective.  A spool belongs to the rank whose
 * recording the same process made, else to the rank that its launcher told it.  Work belongs to the
 * span that an external id names, else to the innermost one in which its call began.  What was
 * added before is not added again.  Spools that end in a damaged record are taken as far as they
 * go.
 *
 * Time: beside the rows themselves a pass over the rank's spans per spool (measured: 0.2 us per
 * span, a tenth of what adding them took).  Memory, of one spool at a time: 40 bytes for each call
 * and external id, 8 for each collective, 32 for each span in which one of these lies, up to twice
 * as much while the arrays grow and are sorted; nothing for other spans, however many the run has.
 *
 * Errors: MP_ENOTFOUND (no such run or file), MP_EFORMAT and MP_EVERSION (a file is no spool of
 * this build's), MP_EIO, MP_ENOSPACE, MP_ENOMEM; then nothing was added. */
int mp_store_add_device(struct mp_store *store, int64_t run_id, const char *const spool_paths[],
                        int count, struct mp_error *error);

/* Adds a fact (rank -1) to a run that is there; a fact of that name that it has already stays as it
 * is.  Errors: MP_ENOTFOUND (no such run), MP_EIO, MP_ENOSPACE. */
int mp_store_add_fact(struct mp_store *store, int64_t run_id, const struct mp_store_fact *fact,
                      struct mp_error *error);

/* Ranks of a run whose recordings could be used; 0 for an unknown run. */
int mp_store_recordings(struct mp_store *store, int64_t run_id, int64_t *recordings,
                        struct mp_error *error);

/* The connection, for reading the views (results/report).  Borrowed until mp_store_close. */
struct sqlite3 *mp_store_connection(struct mp_store *store);
const char *mp_store_path(const struct mp_store *store);

struct sqlite3_stmt;
/* Prepares a query; of ?1, ?2, ... those that it has are the first of `values`.  *statement is NULL
 * behind an error, else for mp_store_next and sqlite3_finalize. */
int mp_store_query(struct mp_store *store, const char *sql, const int64_t values[], int count,
                   struct sqlite3_stmt **statement, struct mp_error *error);
/* 1: a row, 0: no more, negative: an error. */
int mp_store_next(struct mp_store *store, struct sqlite3_stmt *statement, struct mp_error *error);
/* The first row of such a query as whole numbers; NULL is 0, and so are all without a row. */
int mp_store_numbers(struct mp_store *store, const char *sql, const int64_t values[], int count,
                     int64_t numbers[], int columns, struct mp_error *error);

/* Whether *run_id is there (MP_ENOTFOUND); 0 becomes the only run of the database: MP_ENOTFOUND
 * where there is none, MP_EINVAL where there are several. */
int mp_store_choose_run(struct mp_store *store, int64_t *run_id, struct mp_error *error);

/* Records an SQLite failure on this store as an mp_error: "path: doing what: SQLite's sentence",
 * with MP_ENOSPACE, MP_EFORMAT, MP_ENOMEM or MP_EIO by SQLite's code. */
int mp_store_fail(const struct mp_store *store, const char *doing, struct mp_error *error);
