/* The two entry points: NVTX calls them for each shared object with annotations, perhaps from
 * several threads at the same time. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/nvtx/callbacks.h"

enum { MOST_SLOTS = 32 };

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *info);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one shared object after the other */

/* ---- the next tool ---- */

static void *next_symbol(const char *name) {
    static void *library;
    static bool tried;
    if (!tried) {
        tried = true;
        const char *path = getenv("MOEPERF_NVTX_NEXT");
        if (path && *path)
            library = dlopen(path, RTLD_LAZY);
    }
    return library ? dlsym(library, name) : NULL;
}

struct module {
    NvtxCallbackModule number;
    const struct mp_nvtx_callback *callbacks;
    _Atomic(NvtxFunctionPointer) *next;
    NvtxFunctionTable table;
    unsigned size;
    NvtxFunctionPointer before[MOST_SLOTS]; /* what was in the slots when we came */
};

static void find_table(const NvtxExportTableCallbacks *callbacks, struct module *module) {
    if (!callbacks->GetModuleFunctionTable(module->number, &module->table, &module->size) ||
        !module->table)
        module->size = 0;
    if (module->size > MOST_SLOTS)
        module->size = MOST_SLOTS;
    for (unsigned id = 1; id < module->size; id++)
        module->before[id] = module->table[id] ? *module->table[id] : NULL;
}

/* A slot that has changed is the next tool's; all others are ours or nobody's. */
static void find_next(const struct module *module) {
    for (const struct mp_nvtx_callback *own = module->callbacks; own->id; own++) {
        if (own->id >= module->size || !module->table[own->id])
            continue;
        NvtxFunctionPointer now = *module->table[own->id];
        if (now && now != module->before[own->id])
            atomic_store(&module->next[own->id], now);
    }
}

static void take_slots(const struct module *module) {
    for (const struct mp_nvtx_callback *own = module->callbacks; own->id; own++)
        if (own->id < module->size && module->table[own->id])
            *module->table[own->id] = own->function;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    if (!callbacks || callbacks->struct_size < sizeof *callbacks)
        return 1; /* stays loaded, takes nothing */
    struct module modules[] = {
        {NVTX_CB_MODULE_CORE, mp_nvtx_core_callbacks, mp_nvtx_next_core, NULL, 0, {NULL}},
        {NVTX_CB_MODULE_CORE2, mp_nvtx_core2_callbacks, mp_nvtx_next_core2, NULL, 0, {NULL}}};
    pthread_mutex_lock(&lock);
    const bool on = mp_nvtx_session_start();
    for (int i = 0; i < 2; i++)
        find_table(callbacks, &modules[i]);
    NvtxInitializeInjectionNvtxFunc_t next =
        (NvtxInitializeInjectionNvtxFunc_t)next_symbol("InitializeInjectionNvtx2");
    const bool next_stays = next && next(get_table);
    for (int i = 0; i < 2 && on; i++) {
        if (next_stays)
            find_next(&modules[i]);
        take_slots(&modules[i]);
    }
    pthread_mutex_unlock(&lock);
    return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t *info) {
    NvtxExtInitializeInjectionFunc_t next;
    pthread_mutex_lock(&lock);
    next = (NvtxExtInitializeInjectionFunc_t)next_symbol("InitializeInjectionNvtxExtension");
    int taken = 0;
    if (info->moduleId != NVTX_EXT_PAYLOAD_MODULEID || info->segmentsCount < 1 ||
        !mp_nvtx_session_start()) {
        taken = next ? next(info) : 0;
        pthread_mutex_unlock(&lock);
        return taken;
    }
    nvtxExtModuleSegment_t *segment = &info->segments[0];
    intptr_t before[MP_NVTX_PAYLOAD_SLOTS];
    size_t slots =
        segment->slotCount < MP_NVTX_PAYLOAD_SLOTS ? segment->slotCount : MP_NVTX_PAYLOAD_SLOTS;
    memcpy(before, segment->functionSlots, slots * sizeof *before);
    const bool next_stays = next && next(info);
    for (size_t id = 0; id < slots; id++) {
        intptr_t now = segment->functionSlots[id];
        if (!mp_nvtx_payload_callbacks[id])
            continue;
        if (next_stays && now && now != before[id])
            atomic_store(&mp_nvtx_next_payload[id], now);
        segment->functionSlots[id] = mp_nvtx_payload_callbacks[id];
    }
    pthread_mutex_unlock(&lock);
    return 1;
}
