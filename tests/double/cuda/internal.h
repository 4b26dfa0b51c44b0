/* Inside of the double: one lock for everything, streams that are threads, kernels on fibers. */
#pragma once

#include <pthread.h>

#include "double.h"

/* A point in a stream, passed or not yet: what an event's last record was. */
struct double_mark {
    int references;
    bool passed;
    int64_t time_ns; /* monotonic */
};

struct CUevent_st {
    struct CUevent_st *next;  /* of all */
    struct double_mark *mark; /* NULL: never recorded */
    unsigned flags;
};

struct double_work {
    struct double_work *next;
    void (*run)(void *context);     /* left out once the device has failed */
    void (*release)(void *context); /* always; may be NULL */
    void *context;
};

struct CUstream_st {
    struct CUstream_st *next; /* of all */
    int references, device, priority;
    bool ending;
    uint64_t random;
    struct double_work *first, *last;
    int64_t submitted, completed;
    pthread_t thread;
    pthread_cond_t more;
};

struct double_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* a stream has passed something */
    int waiting;             /* threads that want to know */
    /* Settings (settings.c). */
    bool ready;
    int device_count, driver, delay_us;
    uint64_t seed;
    int64_t malloc_limit, host_limit; /* -1: none */
    int64_t streams_left;             /* -1: any number */
    int allocations_left;             /* until one fails; 0: none does */
    int launches_left;                /* until one fails; 0: none does */
    cudaError_t launch_error;
    struct cuda_double_device devices[CUDA_DOUBLE_DEVICES];
    /* What there is. */
    cudaError_t fault; /* stays */
    int64_t device_used[CUDA_DOUBLE_DEVICES], host_used;
    struct CUstream_st *streams;
    uint64_t streams_made;
    struct CUevent_st *events;
    struct cuda_double_counts counts;
};
extern struct double_state double_state;

/* Lock, with the settings read. */
void double_enter(void);
void double_leave(void);
void double_read_settings(void);

/* The default first error of every call: no driver, no device, or the fault that stays. */
cudaError_t double_check(void);
/* What a call of CUDA's begins with, that error and the lock, and ends with: its own, kept. */
cudaError_t double_begin(void);
cudaError_t double_end(cudaError_t error);
int double_device(void); /* of the calling thread */

/* The stream that a handle means; NULL if it is none.  Locked. */
struct CUstream_st *double_stream(cudaStream_t handle);
/* Queues; locked.  cudaErrorMemoryAllocation where there is no memory for the entry. */
cudaError_t double_queue(struct CUstream_st *stream, void (*run)(void *), void (*release)(void *),
                         void *context);
/* Waits until the stream has passed what it has been given by now.  Locked. */
void double_drain(struct CUstream_st *stream);
void double_drain_all(void);
void double_wait(void); /* for progress; locked */

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
uint64_t double_random(uint64_t *state);

/* A kernel over its grid, on the calling thread.  double_end_fibers frees what that needs. */
struct double_grid {
    dim3 blocks, threads;
    const void *kernel;
    void (*call)(void *arguments);
    void *arguments;
    uint64_t seed;
};
void double_run_grid(const struct double_grid *grid);
void double_end_fibers(void);
/* As the linker knows it, or where it is in which file (for addr2line). */
void double_name_kernel(const void *kernel, char *name, size_t size);

/* A fiber: a stack of its own and where it stopped on it. */
struct double_fiber {
    struct double_fiber *next;
    void *at;         /* stack pointer, or a ucontext_t */
    char *stack;      /* mapped, one page below it is not accessible */
    size_t bytes;     /* of the stack */
    void *fake_stack; /* of the address sanitizer */
    int thread;       /* of the block */
};
/* The calling thread's own stack as a fiber.  False: no memory. */
bool double_fiber_of_thread(struct double_fiber *fiber);
void double_fiber_release_thread(struct double_fiber *fiber);
bool double_fiber_create(struct double_fiber *fiber, size_t bytes, int number, void (*entry)(void));
/* Back to the start of `entry`, whatever it was in. */
void double_fiber_restart(struct double_fiber *fiber, int number, void (*entry)(void));
void double_fiber_destroy(struct double_fiber *fiber);
void double_fiber_switch(struct double_fiber *from, struct double_fiber *to);
/* What `entry` calls first. */
void double_fiber_begin(struct double_fiber *fiber);
