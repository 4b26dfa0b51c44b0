/* Built twice: as the first object and as the second. */
#include <nvtx3/nvToolsExt.h>

#include "tests/profiler/nvtx/pairs.h"

void OBJECT_RANGES(int count) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("shared domain");
    nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                        .messageType = NVTX_MESSAGE_TYPE_REGISTERED};
    attributes.message.registered = nvtxDomainRegisterStringA(domain, "of the " OBJECT " object");
    for (int i = 0; i < count; i++) {
        nvtxDomainRangePushEx(domain, &attributes);
        nvtxDomainRangePop(domain);
    }
}
