/* Fibers: on x86-64 a switch saves the registers that a call keeps and takes a few nanoseconds;
 * elsewhere, or with CUDA_DOUBLE_UCONTEXT defined, it is swapcontext. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#if defined(__x86_64__) && !defined(CUDA_DOUBLE_UCONTEXT)
#define OWN_SWITCH 1
#else
#define OWN_SWITCH 0
#endif

#if OWN_SWITCH
/* Pushes what a function has to keep, leaves the stack pointer in *save and goes on at `to`. */
void double_switch(void **save, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden double_switch\n"
        ".globl double_switch\n"
        ".type double_switch, @function\n"
        "double_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size double_switch, . - double_switch\n"
        ".section .note.GNU-stack,\"\",@progbits\n"
        ".text\n");
#endif

/* Stacks start at different offsets, lest the tops of all of them want the same cache lines. */
static char *top_of(const struct double_fiber *fiber, int number) {
    return fiber->stack + fiber->bytes - 64 * (size_t)(number % 61) - 64;
}

void double_fiber_restart(struct double_fiber *fiber, int number, void (*entry)(void)) {
#if SANITIZED
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
    fiber->fake_stack = NULL;
#endif
    char *top = top_of(fiber, number);
#if OWN_SWITCH
    /* Six registers, the entry, and a return address of zero, where a back trace ends; then the
     * entry finds its stack aligned as after a call. */
    void **frame = (void **)(void *)top - 8;
    memset(frame, 0, 8 * sizeof *frame);
    memcpy(&frame[6], &entry, sizeof entry);
    fiber->at = frame;
#else
    ucontext_t *context = fiber->at;
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = (size_t)(top - fiber->stack);
    context->uc_link = NULL;
    makecontext(context, entry, 0);
#endif
}

bool double_fiber_of_thread(struct double_fiber *fiber) {
    pthread_attr_t attributes;
    void *stack;
    memset(fiber, 0, sizeof *fiber);
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return false;
    bool known = pthread_attr_getstack(&attributes, &stack, &fiber->bytes) == 0;
    pthread_attr_destroy(&attributes);
    fiber->stack = stack;
#if !OWN_SWITCH
    fiber->at = malloc(sizeof(ucontext_t));
    known = known && fiber->at;
#endif
    return known;
}

void double_fiber_release_thread(struct double_fiber *fiber) {
#if OWN_SWITCH
    (void)fiber;
#else
    free(fiber->at);
#endif
}

bool double_fiber_create(struct double_fiber *fiber, size_t bytes, int number,
                         void (*entry)(void)) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    memset(fiber, 0, sizeof *fiber);
    char *memory = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    if (mprotect(memory, page, PROT_NONE) != 0) {
        munmap(memory, bytes + page);
        return false;
    }
    fiber->stack = memory + page;
    fiber->bytes = bytes;
#if !OWN_SWITCH
    fiber->at = malloc(sizeof(ucontext_t));
    if (!fiber->at) {
        munmap(memory, bytes + page);
        return false;
    }
#endif
    double_fiber_restart(fiber, number, entry);
    return true;
}

void double_fiber_destroy(struct double_fiber *fiber) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
#if !OWN_SWITCH
    free(fiber->at);
#endif
#if SANITIZED
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
#endif
    munmap(fiber->stack - page, fiber->bytes + page);
}

void double_fiber_begin(struct double_fiber *fiber) {
#if SANITIZED
    __sanitizer_finish_switch_fiber(fiber->fake_stack, NULL, NULL);
#else
    (void)fiber;
#endif
}

void double_fiber_switch(struct double_fiber *from, struct double_fiber *to) {
#if SANITIZED
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
#endif
#if OWN_SWITCH
    double_switch(&from->at, to->at);
#else
    swapcontext(from->at, to->at);
#endif
    double_fiber_begin(from);
}
