/* What threads of a block ask the double for, from device_functions.h to grid.c. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What lanes of a warp do together. */
enum cuda_double_exchange_kind {
    CUDA_DOUBLE_SYNC_WARP,
    CUDA_DOUBLE_SHUFFLE,
    CUDA_DOUBLE_SHUFFLE_XOR,
    CUDA_DOUBLE_SHUFFLE_UP,
    CUDA_DOUBLE_BALLOT,
    CUDA_DOUBLE_MATCH_ANY,
    CUDA_DOUBLE_TOGETHER
};

/* What all 32 lanes of a warp do as one: the first member of what each lane has. */
struct cuda_double_together {
    void (*work)(struct cuda_double_together *const lanes[32]);
};

/* Waits until all threads of the block are here. */
void cuda_double_barrier(const char *file, int line);
/* Waits until all lanes of the mask are here.  `lane` is the source, mask or distance of a shuffle.
 */
uint64_t cuda_double_exchange(int kind, unsigned mask, uint64_t value, int lane, const char *file,
                              int line);
/* Waits until all 32 lanes of the warp are here, with the same work, which is then done once. */
void cuda_double_do_together(struct cuda_double_together *lane, const char *file, int line);
/* Begins a copy of 4 to 16 bytes, or of zeros if `from` is NULL, that is done when the thread waits
 * for its group; `to` is NaNs until then.  Copies that a thread does not wait for before it
 * ends are a fault. */
void cuda_double_begin_copy(void *to, const void *from, int bytes, const char *file, int line);
void cuda_double_end_group(void);
/* Does the copies of all groups of this thread but the last `pending`. */
void cuda_double_wait_groups(int pending);
void cuda_double_trap(const char *file, int line);

#ifdef __cplusplus
}
#endif
