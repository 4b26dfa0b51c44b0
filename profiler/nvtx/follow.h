/* Follow: a collector that wants to know which range each thread is in.
 *
 * CUPTI can attach an id to every call that a thread makes; with the start of the thread's
 * innermost range as the id, GPU work finds its range exactly.  The two collectors are libraries of
 * their own and meet in a program by name: whoever has this library open looks for mp_nvtx_follow.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef int (*mp_nvtx_follow_push)(int64_t start_ns);
typedef int (*mp_nvtx_follow_pop)(void);

/* From here on `push` is called by the thread that has pushed a range, with the range's start, and
 * `pop` as often when ranges end; ranges that are open already are popped without a push.  NULL,
 * NULL: nobody follows any more, though calls may still be under way.  Thread-safe. */
void mp_nvtx_follow(mp_nvtx_follow_push push, mp_nvtx_follow_pop pop);

extern _Atomic(mp_nvtx_follow_push) mp_nvtx_followed_push;
extern _Atomic(mp_nvtx_follow_pop) mp_nvtx_followed_pop;

static inline void mp_nvtx_tell_push(int64_t start_ns) {
    mp_nvtx_follow_push push = atomic_load_explicit(&mp_nvtx_followed_push, memory_order_relaxed);
    if (__builtin_expect(push != NULL, 0))
        push(start_ns);
}

static inline void mp_nvtx_tell_pop(int count) {
    mp_nvtx_follow_pop pop = atomic_load_explicit(&mp_nvtx_followed_pop, memory_order_relaxed);
    if (__builtin_expect(pop != NULL, 0))
        while (count-- > 0)
            pop();
}
