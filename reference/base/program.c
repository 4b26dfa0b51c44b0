#include "reference/base/program.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"

/* What is used of Cbc_C_Interface.h, as it has been since CBC 2.9.  Starts of columns are int in
 * Debian's and Ubuntu's builds, as in CBC's own. */
struct solver {
    const char *(*version)(void);
    void *(*create)(void);
    void (*destroy)(void *model);
    void (*load)(void *model, int columns, int rows, const int *start, const int *index,
                 const double *value, const double *column_low, const double *column_high,
                 const double *cost, const double *row_low, const double *row_high);
    void (*whole)(void *model, int column);
    void (*start)(void *model, int count, const int columns[], const double values[]);
    void (*parameter)(void *model, const char *name, const char *value);
    int (*solve)(void *model);
    int (*is_infeasible)(void *model);
    int (*is_unbounded)(void *model);
    int (*is_optimal)(void *model);
    int (*secondary_status)(void *model);
    int (*nodes)(void *model);
    double (*bound)(void *model);
    double *(*best)(void *model);
};
#define FUNCTION(name, member)                                                                     \
    { name, offsetof(struct solver, member) }
static const struct {
    const char *name;
    size_t place;
} functions[] = {
    FUNCTION("Cbc_getVersion", version),
    FUNCTION("Cbc_newModel", create),
    FUNCTION("Cbc_deleteModel", destroy),
    FUNCTION("Cbc_loadProblem", load),
    FUNCTION("Cbc_setInteger", whole),
    FUNCTION("Cbc_setMIPStartI", start),
    FUNCTION("Cbc_setParameter", parameter),
    FUNCTION("Cbc_solve", solve),
    FUNCTION("Cbc_isProvenInfeasible", is_infeasible),
    FUNCTION("Cbc_isContinuousUnbounded", is_unbounded),
    FUNCTION("Cbc_isProvenOptimal", is_optimal),
    FUNCTION("Cbc_secondaryStatus", secondary_status),
    FUNCTION("Cbc_getNodeCount", nodes),
    FUNCTION("Cbc_getBestPossibleObjValue", bound),
    FUNCTION("Cbc_bestSolution", best),
};

/* Stays loaded: asking again finds the same library, which is only counted. */
static int load_solver(struct solver *solver, struct mp_error *error) {
    const char *given = getenv("MOEPERF_CBC_LIBRARY");
    const bool is_given = given && *given;
    const int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    const char *name = is_given ? given : "libCbcSolver.so.3";
    void *library = dlopen(name, how);
    if (!library && !is_given) /* as Ubuntu names it since 24.04 */
        library = dlopen(name = "libCbcSolver.so.3.1", how);
    if (!library)
        return mp_fail(error, MP_ENOTFOUND,
                       "integer programs can't be solved, since COIN-OR's CBC can't be loaded "
                       "(%s); install coinor-libcbc-dev, or name the library in "
                       "MOEPERF_CBC_LIBRARY",
                       dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            return mp_fail(error, MP_ENOTFOUND, "%s has no function %s; it takes CBC 2.9 or later",
                           name, functions[i].name);
        memcpy((char *)solver + functions[i].place, &function, sizeof function);
    }
    return MP_OK;
}

int mp_program_solver(char *text, size_t size, struct mp_error *error) {
    struct solver solver;
    MP_TRY(load_solver(&solver, error));
    snprintf(text, size, "CBC %s", solver.version());
    return MP_OK;
}

double mp_program_gap(double objective, double bound) {
    return objective > bound ? (objective - bound) / objective : 0;
}

struct column {
    double low, high, cost;
    bool whole;
};
struct row {
    double low, high;
};
struct term {
    int row, column;
    double factor;
};

struct mp_program {
    struct solver solver;
    struct column *column; /* owned as all lists */
    struct row *row;
    struct term *term; /* row by row */
    int columns, rows, terms;
    bool lacks_memory, lacks_column; /* to be told when it is solved */
};

int mp_program_create(struct mp_program **program, struct mp_error *error) {
    struct solver solver;
    *program = NULL;
    MP_TRY(load_solver(&solver, error));
    MP_TRY(MP_NEW(*program, 1, error));
    (*program)->solver = solver;
    return MP_OK;
}

void mp_program_destroy(struct mp_program *program) {
    if (!program)
        return;
    free(program->column);
    free(program->row);
    free(program->term);
    free(program);
}

/* Room for one more item of a list; false: there is no memory, or the program has failed before. */
static bool make_room(struct mp_program *program, void *list, size_t item, int count) {
    program->lacks_memory |= count >= 1 << 29 || !mp_list_room(list, (size_t)count, item);
    return !program->lacks_memory;
}

int mp_program_column(struct mp_program *program, double low, double high, double cost,
                      bool whole) {
    if (make_room(program, &program->column, sizeof *program->column, program->columns))
        program->column[program->columns++] = (struct column){low, high, cost, whole};
    return program->columns - 1;
}

void mp_program_row(struct mp_program *program, double low, double high) {
    if (make_room(program, &program->row, sizeof *program->row, program->rows))
        program->row[program->rows++] = (struct row){low, high};
}

void mp_program_term(struct mp_program *program, int column, double factor) {
    program->lacks_column |= column < 0 || column >= program->columns || program->rows == 0;
    if (make_room(program, &program->term, sizeof *program->term, program->terms))
        program->term[program->terms++] = (struct term){program->rows - 1, column, factor};
}

/* The program as CBC takes it: terms by column, bounds in lists of their own.  It has one column
 * more, whole and in no row: of programs with none, CBC prints what it does, and keeps no
 * solution. */
struct form {
    int *begin, *index;                             /* [columns + 2], [terms] */
    double *factor;                                 /* [terms] */
    double *low, *high, *cost, *row_low, *row_high; /* [columns], [rows] */
    int *number;                                    /* [columns] 0, 1, ... */
    struct mp_arena memory;                         /* of all these */
};

static int make_form(const struct mp_program *program, struct form *form, struct mp_error *error) {
    MP_TAKE_EACH(&form->memory, program->columns + 2, form->begin, form->number, form->low,
                 form->high, form->cost);
    MP_TAKE_EACH(&form->memory, program->rows, form->row_low, form->row_high);
    MP_TAKE_EACH(&form->memory, program->terms, form->index, form->factor);
    MP_TRY(mp_arena_check(&form->memory, error));
    for (int t = 0; t < program->terms; t++)
        form->begin[program->term[t].column + 1]++;
    for (int c = 0; c < program->columns; c++) {
        form->begin[c + 1] += form->begin[c];
        form->number[c] = form->begin[c]; /* where its next term goes */
        form->low[c] = program->column[c].low;
        form->high[c] = program->column[c].high;
        form->cost[c] = program->column[c].cost;
    }
    for (int t = 0; t < program->terms; t++) {
        int place = form->number[program->term[t].column]++;
        form->index[place] = program->term[t].row;
        form->factor[place] = program->term[t].factor;
    }
    form->begin[program->columns + 1] = program->terms;
    for (int c = 0; c < program->columns; c++)
        form->number[c] = c;
    for (int r = 0; r < program->rows; r++) {
        form->row_low[r] = program->row[r].low;
        form->row_high[r] = program->row[r].high;
    }
    return MP_OK;
}

static void set_number(const struct solver *solver, void *model, const char *name, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    solver->parameter(model, name, text);
}

static void set_limits(const struct solver *solver, void *model,
                       const struct mp_program_limits *limits) {
    set_number(solver, model, "log", 0);
    set_number(solver, model, "threads", 0);
    set_number(solver, model, "randomSeed", 1234567);
    set_number(solver, model, "randomCbcSeed", 1234567);
    set_number(solver, model, "ratioGap", limits->gap);
    set_number(solver, model, "maxNodes", limits->nodes);
    if (limits->seconds > 0)
        set_number(solver, model, "seconds", limits->seconds);
}

static double as_column(const struct column *column, double value) {
    return column->whole ? round(value) : value;
}

static double objective_of(const struct mp_program *program, const double value[]) {
    double objective = 0;
    for (int c = 0; c < program->columns; c++)
        objective += program->column[c].cost * as_column(&program->column[c], value[c]);
    return objective;
}

enum { STOPPED_BY_SIGNAL = 5 }; /* CBC's secondary status: "stopped on user event" */

/* What the model says once it has been solved.  Of a solution that is proven to be good enough it
 * may still tell an older bound.  CBC may end with one that is good enough and worse than the one
 * that it began with. */
static void read_result(const struct mp_program *program, void *model, double gap, bool starts,
                        double value[], struct mp_program_result *result) {
    const struct solver *solver = &program->solver;
    const double *best = solver->best(model);
    bool solved = solver->is_optimal(model);
    *result = (struct mp_program_result){.status = MP_PROGRAM_WITHOUT,
                                         .objective = MP_PROGRAM_NONE,
                                         .bound = solver->bound(model),
                                         .gap = 1,
                                         .nodes = solver->nodes(model)};
    if (solver->is_unbounded(model)) {
        result->status = MP_PROGRAM_UNBOUNDED;
    } else if (solver->is_infeasible(model)) {
        result->status = MP_PROGRAM_INFEASIBLE;
    } else if (best) {
        double found = objective_of(program, best);
        bool is_better = !starts || found <= objective_of(program, value);
        for (int c = 0; c < program->columns && is_better; c++)
            value[c] = as_column(&program->column[c], best[c]);
        result->status = solved ? MP_PROGRAM_SOLVED : MP_PROGRAM_LIMITED;
        result->objective = objective_of(program, value);
        if (solved)
            result->bound = fmax(result->bound, found - gap * fabs(found));
        result->bound = fmin(result->bound, result->objective);
        result->gap = mp_program_gap(result->objective, result->bound);
    }
}

int mp_program_solve(struct mp_program *program, const struct mp_program_limits *limits,
                     bool starts, double value[], struct mp_program_result *result,
                     struct mp_error *error) {
    const struct solver *solver = &program->solver;
    struct form form = {0};
    if (program->lacks_memory)
        return mp_fail(error, MP_ENOMEM,
                       "no memory for a program of more than %d columns, %d rows or %d terms",
                       program->columns, program->rows, program->terms);
    if (program->lacks_column || !(limits->gap >= 0) || limits->nodes < 0 ||
        !(limits->seconds >= 0))
        return mp_fail(error, MP_EINVAL,
                       "a program takes terms of rows and columns that it has, and limits of at "
                       "least 0, not a gap of %g, %d nodes and %g s",
                       limits->gap, limits->nodes, limits->seconds);
    int code = make_form(program, &form, error);
    void *model = code ? NULL : solver->create();
    if (!code && !model)
        code = mp_fail(error, MP_ENOMEM, "no memory for CBC");
    if (!code) {
        solver->load(model, program->columns + 1, program->rows, form.begin, form.index,
                     form.factor, form.low, form.high, form.cost, form.row_low, form.row_high);
        for (int c = 0; c < program->columns; c++)
            if (program->column[c].whole)
                solver->whole(model, c);
        solver->whole(model, program->columns);
        if (starts)
            solver->start(model, program->columns, form.number, value);
        set_limits(solver, model, limits);
        solver->solve(model);
        read_result(program, model, limits->gap, starts, value, result);
        if (solver->secondary_status(model) == STOPPED_BY_SIGNAL)
            raise(SIGINT); /* which was meant for the program that runs this */
        solver->destroy(model);
    }
    mp_arena_release(&form.memory);
    return code;
}
