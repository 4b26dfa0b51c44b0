/* Signals that end a run: SIGINT, SIGTERM, and SIGHUP unless it is ignored (nohup).
 *
 * A thread waits for them; nothing handles them.  A handler would be called on the stack of what it
 * interrupts, and oneDNN's products of 32-bit floats with AVX-512 point the stack pointer at a
 * block of the heap where the inner dimension is long (oneDNN 2.7, jit_avx512_common_gemm_f32): the
 * signal's frame, some 3 KB, would lie over whatever is before that block. */
#ifndef MOEPERF_REFERENCE_TRAINER_SIGNALS_H
#define MOEPERF_REFERENCE_TRAINER_SIGNALS_H

#include "reference/trainer/trainer.h"

/* Holds them back, in the calling thread and in all that it creates: to be called before there are
 * others. */
void mp_signals_hold(void);

/* From now on they end the program, as they would if nobody had held them back; those that came
 * meanwhile, too.  MP_ENOMEM. */
int mp_signals_watch(struct mp_error *error);

/* From now on they ask this trainer to stop; NULL: they end the program.  The trainer is borrowed
 * until the next call. */
void mp_signals_stop(struct mp_trainer *trainer);

/* Waits for them no more; they are held back again.  Needs no mp_signals_watch before. */
void mp_signals_end(void);

#endif
