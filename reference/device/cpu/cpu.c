/* Creating a cpu device: instruction set, table of operations, scratch memory. */
#include "reference/device/cpu/cpu.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTALL(family, variant) MP_CPU_EXPAND(install_##family, variant)(operations);

#ifdef MP_CPU_X86
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
}

static void install_avx512(struct mp_device_operations *operations) {
    MP_CPU_FAMILIES(INSTALL, avx512)
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static void install_avx2(struct mp_device_operations *operations) {
    MP_CPU_FAMILIES(INSTALL, avx2)
}
#endif

static bool has_baseline(void) {
    return true;
}

static void install_baseline(struct mp_device_operations *operations) {
    MP_CPU_FAMILIES(INSTALL, baseline)
}

/* Best first. */
static const struct instruction_set {
    const char *name;
    bool (*is_there)(void);
    void (*install)(struct mp_device_operations *operations);
} instruction_sets[] = {
#ifdef MP_CPU_X86
    {"avx512", has_avx512, install_avx512},
    {"avx2", has_avx2, install_avx2},
#endif
    {"baseline", has_baseline, install_baseline},
};

bool mp_cpu_use_instruction_set(struct mp_device *device, const char *name) {
    struct mp_cpu *cpu = mp_cpu_of(device);
    for (size_t i = 0; i < sizeof instruction_sets / sizeof *instruction_sets; i++) {
        const struct instruction_set *set = &instruction_sets[i];
        if ((name && strcmp(name, set->name) != 0) || !set->is_there())
            continue;
        set->install(&cpu->operations);
        cpu->instruction_set = set->name;
        return true;
    }
    return false;
}

static void destroy(struct mp_device *device) {
    struct mp_cpu *cpu = mp_cpu_of(device);
    free(cpu->expert_state);
    free(cpu->keys);
    free(cpu->turned);
    free(cpu->scratch);
    free(cpu);
}

static void describe(const struct mp_device *device, char *text, size_t size) {
    const struct mp_cpu *cpu = (const struct mp_cpu *)device;
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, size, "oneDNN %d.%d.%d, %s", version->major, version->minor, version->patch,
             cpu->instruction_set);
}

static int allocate_scratch(struct mp_cpu *cpu, struct mp_error *error) {
    const struct mp_device_limits *limits = &cpu->limits;
    size_t layer_norm = 2 * (size_t)limits->width;
    size_t attention = mp_cpu_attention_floats(&limits->attention);
    size_t floats = layer_norm > attention ? layer_norm : attention;

    cpu->scratch_floats = (floats + 15) / 16 * 16;
    size_t bytes = (size_t)cpu->threads * cpu->scratch_floats * sizeof(float);
    cpu->scratch = mp_cpu_allocate(&cpu->device, bytes);
    size_t turned = 2 * sizeof(float) * MP_CPU_TURNED_ROWS * (size_t)limits->width;
    cpu->turned = mp_cpu_allocate(&cpu->device, turned);
    cpu->expert_state = calloc((size_t)limits->experts + 1, 2 * sizeof *cpu->expert_state);
    size_t keys = 2 * (size_t)limits->tokens * sizeof *cpu->keys;
    cpu->keys = malloc(keys ? keys : 1);
    if (!cpu->scratch || !cpu->turned || !cpu->expert_state || !cpu->keys)
        return mp_fail(error, MP_ENOMEM, "cpu device: no memory for %zu bytes of scratch",
                       bytes + turned + keys);
    return MP_OK;
}

int mp_device_cpu_create(int threads, const struct mp_device_limits *limits,
                         struct mp_device **device, struct mp_error *error) {
    const struct mp_attention_shape *shape = &limits->attention;
    if (threads < 1)
        return mp_fail(error, MP_EINVAL, "cpu device: %d threads, at least 1 is needed", threads);
    if (limits->experts < 0 || limits->width < 0 || limits->tokens < 0 || shape->sequence < 0 ||
        shape->head_width < 0)
        return mp_fail(error, MP_EINVAL, "cpu device: a limit is negative");

    struct mp_cpu *cpu;
    MP_TRY(MP_NEW(cpu, 1, error));
    cpu->device.operations = &cpu->operations;
    cpu->device.element = MP_FLOAT32;
    cpu->threads = threads;
    cpu->limits = *limits;
    cpu->operations.name = "cpu";
    cpu->operations.destroy = destroy;
    cpu->operations.describe = describe;
    mp_cpu_install_memory(&cpu->operations);
    mp_cpu_use_instruction_set(&cpu->device, NULL);

    int code = allocate_scratch(cpu, error);
    if (code) {
        destroy(&cpu->device);
        return code;
    }
    *device = &cpu->device;
    return MP_OK;
}
