/* An injection library that does nothing: what calling any costs.  With OTHER_TOOL_LOG set it
 * writes a line for every push to that file instead, as a next tool that can be asked. */
#define NVTX_NO_IMPL
#include <stdio.h>
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

static FILE *record;
static struct { int is_ours; } a_domain = {1}, a_string = {2};

static nvtxDomainHandle_t create(const char *name) {
    if (record)
        fprintf(record, "domain %s\n", name);
    return (void *)&a_domain;
}

static nvtxStringHandle_t string(nvtxDomainHandle_t domain, const char *text) {
    if (record)
        fprintf(record, "string %s %s\n", text, (void *)domain == &a_domain ? "own" : "foreign");
    return (void *)&a_string;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    if (record) {
        fprintf(record, "push %s %s\n", (void *)domain == &a_domain ? "own" : "foreign",
                (void *)attributes->message.registered == &a_string ? "own" : "foreign");
        fflush(record);
    }
    return 0;
}

static int pop(nvtxDomainHandle_t domain) {
    (void)domain;
    if (record) {
        fprintf(record, "pop\n");
        fflush(record);
    }
    return 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned size = 0;
    const char *log = getenv("OTHER_TOOL_LOG");
    if (log && !record)
        record = fopen(log, "a");
    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
        return 1;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)string;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
