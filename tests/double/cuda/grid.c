/* Kernels: the blocks of a grid one after another, the threads of a block in turn.
 *
 * A thread runs until it waits or ends.  Threads that only run share one fiber; a thread that waits
 * keeps its fiber, and another is taken for the next.  The blocks, and the threads that have not
 * been begun, are taken in an order drawn from the seed, so that code that relies on one is found
 * out.  A wait that cannot end, since the others wait elsewhere or have ended, is a fault. */
#include "exchange.h"
#include "internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARP = 32, MOST_THREADS = 1024, MOST_WARPS = MOST_THREADS / WARP };
enum { STACK_BYTES = 256 * 1024 };
enum { MOST_COPIES = 64 }; /* of a thread at a time */

static const char *const exchange_names[] = {
    [CUDA_DOUBLE_SYNC_WARP] = "__syncwarp",          [CUDA_DOUBLE_SHUFFLE] = "__shfl_sync",
    [CUDA_DOUBLE_SHUFFLE_XOR] = "__shfl_xor_sync",   [CUDA_DOUBLE_SHUFFLE_UP] = "__shfl_up_sync",
    [CUDA_DOUBLE_BALLOT] = "__ballot_sync",          [CUDA_DOUBLE_MATCH_ANY] = "__match_any_sync",
    [CUDA_DOUBLE_TOGETHER] = "a warp's instruction",
};

enum phase { NOT_BEGUN, RUNNING, AT_BARRIER, AT_EXCHANGE, ENDED };

struct thread {
    enum phase phase;
    struct double_fiber *fiber;
    const char *file; /* where it waits */
    int line;
    /* At an exchange, and then its result. */
    int kind, lane;
    unsigned mask;
    uint64_t value, result;
};

/* Copies that a thread has begun: from NULL stands for zeros. */
struct copy {
    void *to;
    const void *from;
    int bytes, group;
};

struct copies {
    int count, groups; /* groups that are complete */
    struct copy copy[MOST_COPIES];
};

struct runner {
    const struct double_grid *grid;
    struct double_fiber own;                  /* the stream's thread */
    struct double_fiber *fiber[MOST_THREADS]; /* all that there are, */
    struct double_fiber *idle, *starting;     /* those without a thread, the one switched to last */
    int fibers;
    int64_t blocks, blocks_begun, block_first, block_step;
    int threads, begun, ended;
    int at_barrier, barrier_line;
    const char *barrier_file;
    int current;
    bool stopped;                                 /* a fault */
    int order[MOST_THREADS], ready[MOST_THREADS]; /* ready is a ring */
    unsigned ready_first, ready_last;
    unsigned arrived[MOST_WARPS]; /* lanes at an exchange */
    struct thread thread[MOST_THREADS];
    struct copies copies[MOST_THREADS];
};

/* Found at once, not by a call: there is room for these few bytes in every program. */
#define FAST_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
FAST_THREAD_LOCAL uint3 threadIdx, blockIdx;
FAST_THREAD_LOCAL dim3 blockDim, gridDim;
static FAST_THREAD_LOCAL struct runner *runner;

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Usually the same string. */
static bool same_place(const char *file, int line, const char *other_file, int other_line) {
    return line == other_line && (file == other_file || strcmp(file, other_file) == 0);
}

/* One line per group of threads that are in the same place. */
static void describe_threads(const struct runner *r, char *text, size_t size) {
    bool told[MOST_THREADS] = {false};
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < r->threads; i++) {
        const struct thread *first = &r->thread[i];
        if (told[i] || at >= size)
            continue;
        int same = 0;
        for (int j = i; j < r->threads; j++) {
            const struct thread *other = &r->thread[j];
            if (other->phase != first->phase)
                continue;
            if (first->phase != ENDED && first->phase != NOT_BEGUN &&
                (other->line != first->line || other->kind != first->kind))
                continue;
            told[j] = true;
            same++;
        }
        const char *doing = first->phase == ENDED        ? "ended"
                            : first->phase == NOT_BEGUN  ? "not begun"
                            : first->phase == AT_BARRIER ? "at __syncthreads"
                            : first->phase == RUNNING    ? "running"
                                                         : exchange_names[first->kind];
        at += (size_t)snprintf(text + at, size - at, "\n    %d from thread %d on: %s", same, i,
                               doing);
        if (at < size && first->phase != ENDED && first->phase != NOT_BEGUN && first->file)
            at += (size_t)snprintf(text + at, size - at, ", %s:%d", first->file, first->line);
    }
}

void double_name_kernel(const void *kernel, char *name, size_t size) {
    Dl_info info;
    if (dladdr(kernel, &info) == 0)
        snprintf(name, size, "%p", kernel);
    else if (info.dli_sname)
        snprintf(name, size, "%s", info.dli_sname);
    else
        snprintf(name, size, "%s+%#zx", info.dli_fname,
                 (size_t)((const char *)kernel - (const char *)info.dli_fbase));
}

/* Ends the kernel; does not return. */
static void stop(const char *why) {
    struct runner *r = runner;
    char text[2048], name[512];
    describe_threads(r, text, sizeof text);
    double_name_kernel(r->grid->kernel, name, sizeof name);
    cuda_double_fault(cudaErrorLaunchFailure, "kernel %s, block %u of %d threads: %s%s", name,
                      blockIdx.x, r->threads, why, text);
    r->stopped = true;
    double_fiber_switch(r->thread[r->current].fiber, &r->own);
    abort(); /* nobody goes back to a kernel that was stopped */
}

static void set_current(struct runner *r, int thread) {
    r->current = thread;
    threadIdx.x = (unsigned)thread;
}

static void make_ready(struct runner *r, int thread) {
    r->thread[thread].phase = RUNNING;
    r->ready[r->ready_last++ % MOST_THREADS] = thread;
}

static void begin_block(struct runner *r) {
    blockIdx.x = (unsigned)((r->block_first + r->blocks_begun++ * r->block_step) % r->blocks);
    r->begun = r->ended = r->at_barrier = 0;
    memset(r->arrived, 0, sizeof r->arrived);
    for (int i = 0; i < r->threads; i++) {
        r->thread[i].phase = NOT_BEGUN;
        r->copies[i].count = r->copies[i].groups = 0;
    }
}

static void fiber_entry(void);

/* A fiber for a thread to be begun. */
static struct double_fiber *take_fiber(struct runner *r) {
    struct double_fiber *fiber = r->idle;
    if (fiber) {
        r->idle = fiber->next;
    } else {
        fiber = malloc(sizeof *fiber);
        if (!fiber || !double_fiber_create(fiber, STACK_BYTES, r->fibers, fiber_entry)) {
            free(fiber);
            return NULL;
        }
        r->fiber[r->fibers++] = fiber;
    }
    r->starting = fiber;
    return fiber;
}

/* The thread at hand waits: whoever can go on does. */
static void yield_to_others(void) {
    struct runner *r = runner;
    struct thread *self = &r->thread[r->current];
    if (r->ready_first != r->ready_last) {
        int next = r->ready[r->ready_first++ % MOST_THREADS];
        set_current(r, next);
        double_fiber_switch(self->fiber, r->thread[next].fiber);
    } else if (r->begun < r->threads) {
        struct double_fiber *fiber = take_fiber(r);
        if (!fiber)
            stop("no memory for the stacks of its threads");
        double_fiber_switch(self->fiber, fiber);
    } else {
        stop("threads wait for others that never come");
    }
}

/* Puts the fiber at hand aside and goes to another; returns when it is taken for a new thread. */
static void leave_fiber(struct runner *r, struct double_fiber *self, struct double_fiber *to) {
    self->next = r->idle;
    r->idle = self;
    double_fiber_switch(self, to);
}

/* Runs threads as long as there are any to begin.  Every switch to an idle fiber, new or not, is
 * for a thread to be begun. */
static void fiber_entry(void) {
    struct runner *r = runner;
    struct double_fiber *self = r->starting;
    double_fiber_begin(self);
    for (;;) {
        int number = r->order[r->begun++];
        struct thread *thread = &r->thread[number];
        thread->fiber = self;
        thread->phase = RUNNING;
        set_current(r, number);
        r->grid->call(r->grid->arguments);
        if (r->copies[number].count > 0)
            stop("a thread ends that has not waited for its copies");
        thread->phase = ENDED;
        r->ended++;
        if (r->ready_first != r->ready_last) {
            int next = r->ready[r->ready_first++ % MOST_THREADS];
            set_current(r, next);
            leave_fiber(r, self, r->thread[next].fiber);
        } else if (r->begun < r->threads) {
            continue;
        } else if (r->ended < r->threads) {
            stop("threads wait for others that never come");
        } else if (r->blocks_begun < r->blocks) {
            begin_block(r);
        } else {
            leave_fiber(r, self, &r->own);
        }
    }
}

void cuda_double_barrier(const char *file, int line) {
    struct runner *r = runner;
    struct thread *self = &r->thread[r->current];
    self->file = file;
    self->line = line;
    self->kind = 0;
    self->phase = AT_BARRIER;
    if (r->at_barrier == 0) {
        r->barrier_file = file;
        r->barrier_line = line;
    } else if (!same_place(file, line, r->barrier_file, r->barrier_line)) {
        stop("its threads are at different barriers");
    }
    if (++r->at_barrier < r->threads) {
        yield_to_others();
        return;
    }
    r->at_barrier = 0;
    for (int i = 0; i < r->threads; i++)
        if (r->order[i] != r->current)
            make_ready(r, r->order[i]);
    self->phase = RUNNING;
}

/* What lane `lane` of the warp gets; a lane that is not there has all bits set. */
static uint64_t shuffled(const struct thread *warp, int lane, unsigned there) {
    const struct thread *self = &warp[lane];
    int from = self->lane;
    if (self->kind == CUDA_DOUBLE_SHUFFLE_XOR)
        from ^= lane;
    else if (self->kind == CUDA_DOUBLE_SHUFFLE_UP)
        from = (unsigned)from > (unsigned)lane ? lane : lane - from;
    from &= WARP - 1;
    return there >> from & 1 ? warp[from].value : UINT64_MAX;
}

static unsigned lanes_of_equal_value(const struct thread *warp, uint64_t value, unsigned there) {
    unsigned lanes = 0;
    for (int i = 0; i < WARP; i++)
        if (there >> i & 1 && warp[i].value == value)
            lanes |= 1u << i;
    return lanes;
}

/* The work of all lanes, which are there. */
static void work_together(const struct thread *warp) {
    struct cuda_double_together *lanes[WARP];
    for (int i = 0; i < WARP; i++)
        lanes[i] = (struct cuda_double_together *)(uintptr_t)warp[i].value;
    lanes[0]->work(lanes);
}

/* Results of all lanes in `there`, which have come. */
static void complete_exchange(struct thread *warp, int kind, unsigned there) {
    uint64_t all = 0;
    if (kind == CUDA_DOUBLE_TOGETHER) {
        work_together(warp);
        return;
    }
    if (kind == CUDA_DOUBLE_BALLOT)
        all = lanes_of_equal_value(warp, 1, there);
    for (int i = 0; i < WARP; i++) {
        if (!(there >> i & 1))
            continue;
        if (kind >= CUDA_DOUBLE_SHUFFLE && kind <= CUDA_DOUBLE_SHUFFLE_UP)
            warp[i].result = shuffled(warp, i, there);
        else if (kind == CUDA_DOUBLE_MATCH_ANY)
            warp[i].result = lanes_of_equal_value(warp, warp[i].value, there);
        else
            warp[i].result = all;
    }
}

/* Stops the kernel if what the lane at hand asks for cannot be, or is not what the lanes ask for
 * that are here already. */
static void check_exchange(const struct thread *warp, int lane, unsigned arrived) {
    const struct thread *self = &warp[lane];
    unsigned others = arrived & self->mask;
    if (!(self->mask >> lane & 1))
        stop("a lane is not in the mask that it gives");
    if (!others)
        return;
    const struct thread *other = &warp[__builtin_ctz(others)];
    if (other->kind != self->kind || other->mask != self->mask ||
        !same_place(other->file, other->line, self->file, self->line))
        stop("lanes of a warp are at different exchanges, or name different lanes");
    if (self->kind == CUDA_DOUBLE_TOGETHER &&
        ((struct cuda_double_together *)(uintptr_t)other->value)->work !=
            ((struct cuda_double_together *)(uintptr_t)self->value)->work)
        stop("lanes of a warp are at different instructions");
}

uint64_t cuda_double_exchange(int kind, unsigned mask, uint64_t value, int lane, const char *file,
                              int line) {
    struct runner *r = runner;
    struct thread *self = &r->thread[r->current];
    int number = r->current / WARP, own_lane = r->current % WARP;
    struct thread *warp = &r->thread[number * WARP];
    int lanes = r->threads - number * WARP;
    unsigned there = lanes < WARP ? mask & ((1u << lanes) - 1) : mask;
    *self = (struct thread){.phase = AT_EXCHANGE,
                            .fiber = self->fiber,
                            .file = file,
                            .line = line,
                            .kind = kind,
                            .lane = lane,
                            .mask = mask,
                            .value = value};
    check_exchange(warp, own_lane, r->arrived[number]);
    r->arrived[number] |= 1u << own_lane;
    if ((r->arrived[number] & there) != there) {
        yield_to_others();
        return self->result;
    }
    r->arrived[number] &= ~there;
    complete_exchange(warp, kind, there);
    self->phase = RUNNING;
    for (int i = 1; i < WARP; i++) {
        int next = (own_lane + i) % WARP;
        if (there >> next & 1)
            make_ready(r, number * WARP + next);
    }
    return self->result;
}

void cuda_double_do_together(struct cuda_double_together *lane, const char *file, int line) {
    struct runner *r = runner;
    if (r->threads - r->current / WARP * WARP < WARP)
        stop("a warp with less than 32 threads is at an instruction for all of them");
    cuda_double_exchange(CUDA_DOUBLE_TOGETHER, UINT32_MAX, (uint64_t)(uintptr_t)lane, 0, file,
                         line);
}

/* Copies of the current thread that have not been done yet; those of groups that are not complete
 * have the number that the next will have. */
void cuda_double_begin_copy(void *to, const void *from, int bytes, const char *file, int line) {
    struct runner *r = runner;
    struct copies *copies = &r->copies[r->current];
    r->thread[r->current].file = file;
    r->thread[r->current].line = line;
    if ((uintptr_t)to % (size_t)bytes != 0 || (uintptr_t)from % (size_t)bytes != 0)
        stop("an address of cp.async is no multiple of what it copies");
    if (copies->count == MOST_COPIES)
        stop("a thread has more copies under way than the double keeps");
    memset(to, 0xff, (size_t)bytes);
    copies->copy[copies->count++] = (struct copy){to, from, bytes, copies->groups};
}

void cuda_double_end_group(void) {
    runner->copies[runner->current].groups++;
}

void cuda_double_wait_groups(int pending) {
    struct copies *copies = &runner->copies[runner->current];
    int left = 0;
    for (int i = 0; i < copies->count; i++) {
        struct copy *copy = &copies->copy[i];
        if (copy->group >= copies->groups - pending)
            copies->copy[left++] = *copy;
        else if (copy->from)
            memcpy(copy->to, copy->from, (size_t)copy->bytes);
        else
            memset(copy->to, 0, (size_t)copy->bytes);
    }
    copies->count = left;
}

void cuda_double_trap(const char *file, int line) {
    struct thread *self = &runner->thread[runner->current];
    self->file = file;
    self->line = line;
    stop("__trap");
}

/* A first number and a step that visit all of `count`. */
static void draw_order(uint64_t *random, int64_t count, int64_t *first, int64_t *step) {
    *first = (int64_t)(double_random(random) % (uint64_t)count);
    *step = (int64_t)(double_random(random) % (uint64_t)count);
    while (greatest_common_divisor(*step, count) != 1)
        *step = (*step + 1) % count;
    if (count == 1)
        *step = 1;
}

/* Warps in a drawn order, the lanes of each from a drawn one on. */
static void order_threads(struct runner *r, uint64_t *random) {
    int64_t warps = (r->threads + WARP - 1) / WARP, first, step;
    int count = 0;
    draw_order(random, warps, &first, &step);
    for (int64_t w = 0; w < warps; w++) {
        int begin = (int)((first + w * step) % warps) * WARP;
        int lanes = r->threads - begin < WARP ? r->threads - begin : WARP;
        int turn = (int)(double_random(random) % (uint64_t)lanes);
        for (int i = 0; i < lanes; i++)
            r->order[count++] = begin + (turn + i) % lanes;
    }
}

static void set_up(struct runner *r, const struct double_grid *grid) {
    uint64_t random = grid->seed;
    r->grid = grid;
    r->blocks = grid->blocks.x;
    r->threads = (int)grid->threads.x;
    r->blocks_begun = 0;
    r->ready_first = r->ready_last = 0;
    r->stopped = false;
    draw_order(&random, r->blocks, &r->block_first, &r->block_step);
    order_threads(r, &random);
    blockDim = grid->threads;
    gridDim = grid->blocks;
}

void double_run_grid(const struct double_grid *grid) {
    if (!runner) {
        runner = calloc(1, sizeof *runner);
        if (runner && !double_fiber_of_thread(&runner->own)) {
            free(runner);
            runner = NULL;
        }
    }
    struct runner *r = runner;
    struct double_fiber *fiber = NULL;
    if (r) {
        set_up(r, grid);
        begin_block(r);
        fiber = take_fiber(r);
    }
    if (!fiber) {
        cuda_double_fault(cudaErrorLaunchFailure, "no memory to run a kernel");
        return;
    }
    double_fiber_switch(&r->own, fiber);
    if (!r->stopped)
        return;
    r->idle = NULL;
    for (int i = 0; i < r->fibers; i++) {
        double_fiber_restart(r->fiber[i], i, fiber_entry);
        r->fiber[i]->next = r->idle;
        r->idle = r->fiber[i];
    }
}

void double_end_fibers(void) {
    struct runner *r = runner;
    if (!r)
        return;
    for (int i = 0; i < r->fibers; i++) {
        double_fiber_destroy(r->fiber[i]);
        free(r->fiber[i]);
    }
    double_fiber_release_thread(&r->own);
    free(r);
    runner = NULL;
}
