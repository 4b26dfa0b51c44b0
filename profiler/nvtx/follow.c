#include "profiler/nvtx/follow.h"

_Atomic(mp_nvtx_follow_push) mp_nvtx_followed_push;
_Atomic(mp_nvtx_follow_pop) mp_nvtx_followed_pop;

__attribute__((visibility("default"))) void mp_nvtx_follow(mp_nvtx_follow_push push,
                                                           mp_nvtx_follow_pop pop) {
    atomic_store(&mp_nvtx_followed_push, push);
    atomic_store(&mp_nvtx_followed_pop, pop);
}
