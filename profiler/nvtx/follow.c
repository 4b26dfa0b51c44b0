#include "profiler/nvtx/follow.h"

_Atomic(nvtx_follow_push) nvtx_followed_push;
_Atomic(nvtx_follow_pop) nvtx_followed_pop;

__attribute__((visibility("default"))) void mp_nvtx_follow(nvtx_follow_push push,
                                                           nvtx_follow_pop pop) {
    atomic_store(&nvtx_followed_push, push);
    atomic_store(&nvtx_followed_pop, pop);
}
