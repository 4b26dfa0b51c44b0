/* Program: a linear or mixed integer program, solved by COIN-OR's CBC where that is installed.
 *
 *     minimise  sum_j cost[j] x[j]
 *     with      low[i] <= sum_j factor[i][j] x[j] <= high[i]   of every row i,
 *               low[j] <= x[j] <= high[j]                      of every column j, some of them
 * whole
 *
 * CBC's C interface is loaded when a program is made (libCbcSolver.so.3 or .so.3.1, or what the
 * environment's MOEPERF_CBC_LIBRARY names): nothing is linked, and a build needs no header of it.
 * One thread, fixed seeds and a limit in nodes of the search tree: the same program has the same
 * solution every time, so that planners on many ranks may ask it alike.  The solver prints nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"

/* No bound. */
#define MP_PROGRAM_NONE 1e30

struct mp_program_limits {
    double gap;     /* a solution that is proven to be within this of the best is enough, >= 0 */
    int nodes;      /* of the search tree; 0: the root alone */
    double seconds; /* 0: none.  With one, two runs may differ: not for planners */
};

enum mp_program_status {
    MP_PROGRAM_SOLVED,     /* within the gap of the best */
    MP_PROGRAM_LIMITED,    /* a limit was met; there is a solution, and a bound on all others */
    MP_PROGRAM_WITHOUT,    /* a limit was met before any solution was found */
    MP_PROGRAM_INFEASIBLE, /* there is none */
    MP_PROGRAM_UNBOUNDED,  /* there is no least one */
};

struct mp_program_result {
    enum mp_program_status status;
    double objective; /* of the solution */
    double bound;     /* no solution has less */
    double gap;       /* mp_program_gap of both */
    int nodes;        /* searched */
};

/* (objective - bound) / objective: the share by which the best may be less, 0 where both are the
 * same.  Of objectives that are not below 0. */
double mp_program_gap(double objective, double bound);

/* Whether programs can be solved here; `text` says by what, "CBC 2.10.8".  MP_ENOTFOUND with a
 * sentence that names the package. */
int mp_program_solver(char *text, size_t size, struct mp_error *error);

struct mp_program;
/* A program without rows or columns.  MP_ENOTFOUND: as mp_program_solver; MP_ENOMEM. */
int mp_program_create(struct mp_program **program, struct mp_error *error);
void mp_program_destroy(struct mp_program *program); /* accepts NULL */
MP_END(program, struct mp_program *, mp_program_destroy(*it))

/* Adds a column and returns its number, from 0 on.  Bounds may be -MP_PROGRAM_NONE and
 * MP_PROGRAM_NONE. */
int mp_program_column(struct mp_program *program, double low, double high, double cost, bool whole);
/* Begins a row; what follows it are its terms.  A column may have one term of a row. */
void mp_program_row(struct mp_program *program, double low, double high);
void mp_program_term(struct mp_program *program, int column, double factor);

/* Solves it.  value is [columns]: the solution, if there is one; on arrival, if `starts`, one to
 * begin with, which must keep all rows and stays unless one as good is found.  May be called once
 * per program.  Errors: MP_ENOMEM, also of columns and rows before; MP_EINVAL: a limit below 0, or
 * a term of no column. */
int mp_program_solve(struct mp_program *program, const struct mp_program_limits *limits,
                     bool starts, double value[], struct mp_program_result *result,
                     struct mp_error *error);
