/* A deferred device without a GPU: the cuda back end on the double of CUDA, whose streams are
 * threads that do what is queued, in order and after pauses, so that a missing event shows as wrong
 * data. That double also is the device's side of the NCCL double (cuda_double_enqueue,
 * cuda_double_is_device). */
#pragma once

#include <stdint.h>

#include "reference/device/device.h"

/* pause_us: four times the pause before anything queued.  NULL if there is no memory. */
struct mp_device *queue_device_create(uint64_t seed, int pause_us);
/* Allocations, streams and events that are not given back yet. */
int queue_device_live(void);
/* Allocations of either kind so far: none may happen within a step. */
int64_t queue_device_allocations(void);
/* Work of a test's own, in the stream's order. */
void queue_device_enqueue(struct mp_device *device, mp_stream stream, void (*work)(void *context),
                          void *context);
/* The n-th allocation from now fails; 0: none. */
void queue_device_fail(int n);
