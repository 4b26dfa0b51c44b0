/* The core modules: the default domain's plain calls, and the calls with a domain.  A range begins
 * after what has to be done for it, and ends before: its own cost lies outside it. */
#include "profiler/nvtx/callbacks.h"

_Atomic(NvtxFunctionPointer) mp_nvtx_next_core[NVTX_CBID_CORE_SIZE];
_Atomic(NvtxFunctionPointer) mp_nvtx_next_core2[NVTX_CBID_CORE2_SIZE];

/* The next tool's function of a slot; NULL: it has none. */
#define NEXT(name)                                                                                 \
    ((nvtx##name##_impl_fntype)mp_nvtx_next(&mp_nvtx_next_core[NVTX_CBID_CORE_##name]))
#define NEXT_2(name)                                                                               \
    ((nvtx##name##_impl_fntype)mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_##name]))

/* ---- marks ---- */

static void on_mark_ex(const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    event_mark(&(struct mp_nvtx_event){.attributes = attributes});
    TELL(NEXT(MarkEx), mp_nvtx_for_next(attributes, &copy));
}

static void on_mark_a(const char *message) {
    event_mark(&(struct mp_nvtx_event){.message = message});
    TELL(NEXT(MarkA), message);
}

static void on_mark_w(const wchar_t *message) {
    event_mark(&(struct mp_nvtx_event){.wide = message});
    TELL(NEXT(MarkW), message);
}

static void on_domain_mark_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    event_mark(&(struct mp_nvtx_event){.domain = domain, .attributes = attributes});
    TELL(NEXT_2(DomainMarkEx), mp_nvtx_next_handle(domain), mp_nvtx_for_next(attributes, &copy));
}

/* ---- push and pop ---- */

static int on_push_ex(const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    TELL(NEXT(RangePushEx), mp_nvtx_for_next(attributes, &copy));
    return event_push(&(struct mp_nvtx_event){.attributes = attributes});
}

static int on_push_a(const char *message) {
    TELL(NEXT(RangePushA), message);
    return event_push(&(struct mp_nvtx_event){.message = message});
}

static int on_push_w(const wchar_t *message) {
    TELL(NEXT(RangePushW), message);
    return event_push(&(struct mp_nvtx_event){.wide = message});
}

static int on_pop(void) {
    int level = event_pop(NULL, NULL, 0);
    TELL(NEXT(RangePop), );
    return level;
}

static int on_domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    TELL(NEXT_2(DomainRangePushEx), mp_nvtx_next_handle(domain),
         mp_nvtx_for_next(attributes, &copy));
    return event_push(&(struct mp_nvtx_event){.domain = domain, .attributes = attributes});
}

static int on_domain_pop(nvtxDomainHandle_t domain) {
    int level = event_pop(domain, NULL, 0);
    TELL(NEXT_2(DomainRangePop), mp_nvtx_next_handle(domain));
    return level;
}

/* ---- start and end ---- */

static nvtxRangeId_t on_start_ex(const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    uint64_t next_id = ASK(NEXT(RangeStartEx), mp_nvtx_for_next(attributes, &copy));
    return event_start(&(struct mp_nvtx_event){.attributes = attributes}, next_id);
}

static nvtxRangeId_t on_start_a(const char *message) {
    uint64_t next_id = ASK(NEXT(RangeStartA), message);
    return event_start(&(struct mp_nvtx_event){.message = message}, next_id);
}

static nvtxRangeId_t on_start_w(const wchar_t *message) {
    uint64_t next_id = ASK(NEXT(RangeStartW), message);
    return event_start(&(struct mp_nvtx_event){.wide = message}, next_id);
}

static void on_end(nvtxRangeId_t id) {
    uint64_t next_id = event_end(id, NULL, 0);
    TELL(NEXT(RangeEnd), next_id);
}

static nvtxRangeId_t on_domain_start_ex(nvtxDomainHandle_t domain,
                                        const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    uint64_t next_id = ASK(NEXT_2(DomainRangeStartEx), mp_nvtx_next_handle(domain),
                           mp_nvtx_for_next(attributes, &copy));
    return event_start(&(struct mp_nvtx_event){.domain = domain, .attributes = attributes},
                       next_id);
}

static void on_domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
    uint64_t next_id = event_end(id, NULL, 0);
    TELL(NEXT_2(DomainRangeEnd), mp_nvtx_next_handle(domain), next_id);
}

/* ---- names; NULL: none ---- */

static void add_name(enum mp_name_kind kind, const void *domain, uint32_t number,
                     const char *name) {
    if (name)
        mp_nvtx_name_find(kind, mp_nvtx_handle_id(domain), number, name);
}

/* Our handle of what the next tool calls `next_handle`. */
static void *find_handle(enum mp_name_kind kind, const char *name, void *next_handle) {
    struct mp_nvtx_name *found = name ? mp_nvtx_name_find(kind, 0, 0, name) : NULL;
    return (void *)(uintptr_t)mp_nvtx_name_handle(found, next_handle);
}

static void on_name_category_a(uint32_t category, const char *name) {
    add_name(MP_NAME_CATEGORY, NULL, category, name);
    TELL(NEXT(NameCategoryA), category, name);
}

static void on_name_category_w(uint32_t category, const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    add_name(MP_NAME_CATEGORY, NULL, category, mp_nvtx_narrow(name, text));
    TELL(NEXT(NameCategoryW), category, name);
}

static void on_name_thread_a(uint32_t thread, const char *name) {
    add_name(MP_NAME_THREAD, NULL, thread, name);
    TELL(NEXT(NameOsThreadA), thread, name);
}

static void on_name_thread_w(uint32_t thread, const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    add_name(MP_NAME_THREAD, NULL, thread, mp_nvtx_narrow(name, text));
    TELL(NEXT(NameOsThreadW), thread, name);
}

static void on_domain_name_category_a(nvtxDomainHandle_t domain, uint32_t category,
                                      const char *name) {
    add_name(MP_NAME_CATEGORY, domain, category, name);
    TELL(NEXT_2(DomainNameCategoryA), mp_nvtx_next_handle(domain), category, name);
}

static void on_domain_name_category_w(nvtxDomainHandle_t domain, uint32_t category,
                                      const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    add_name(MP_NAME_CATEGORY, domain, category, mp_nvtx_narrow(name, text));
    TELL(NEXT_2(DomainNameCategoryW), mp_nvtx_next_handle(domain), category, name);
}

static nvtxStringHandle_t on_register_string_a(nvtxDomainHandle_t domain, const char *string) {
    void *next = ASK(NEXT_2(DomainRegisterStringA), mp_nvtx_next_handle(domain), string);
    return find_handle(MP_NAME_STRING, string, next);
}

static nvtxStringHandle_t on_register_string_w(nvtxDomainHandle_t domain, const wchar_t *string) {
    char text[MP_NVTX_WIDE_BYTES];
    void *next = ASK(NEXT_2(DomainRegisterStringW), mp_nvtx_next_handle(domain), string);
    return find_handle(MP_NAME_STRING, mp_nvtx_narrow(string, text), next);
}

static nvtxDomainHandle_t on_domain_create_a(const char *name) {
    void *next = ASK(NEXT_2(DomainCreateA), name);
    mp_nvtx_prepare();
    return find_handle(MP_NAME_DOMAIN, name, next);
}

static nvtxDomainHandle_t on_domain_create_w(const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    void *next = ASK(NEXT_2(DomainCreateW), name);
    mp_nvtx_prepare();
    return find_handle(MP_NAME_DOMAIN, mp_nvtx_narrow(name, text), next);
}

/* What has been recorded in a domain stays, and so does its handle, which others may have got. */
static void on_domain_destroy(nvtxDomainHandle_t domain) {
    (void)domain;
}

/* ---- what is left: passed on and not recorded ---- */

static nvtxResourceHandle_t on_resource_create(nvtxDomainHandle_t domain,
                                               nvtxResourceAttributes_t *attributes) {
    if (!attributes)
        return NULL;
    nvtxResourceAttributes_t copy = *attributes;
    if (copy.messageType == NVTX_MESSAGE_TYPE_REGISTERED)
        copy.message.registered = mp_nvtx_next_handle(attributes->message.registered);
    return ASK(NEXT_2(DomainResourceCreate), mp_nvtx_next_handle(domain), &copy);
}

static void on_resource_destroy(nvtxResourceHandle_t resource) {
    TELL(NEXT_2(DomainResourceDestroy), resource);
}

static void on_initialize(const void *reserved) {
    TELL(NEXT_2(Initialize), reserved);
}

const struct mp_nvtx_callback mp_nvtx_core_callbacks[] = {
    {NVTX_CBID_CORE_MarkEx, (NvtxFunctionPointer)on_mark_ex},
    {NVTX_CBID_CORE_MarkA, (NvtxFunctionPointer)on_mark_a},
    {NVTX_CBID_CORE_MarkW, (NvtxFunctionPointer)on_mark_w},
    {NVTX_CBID_CORE_RangeStartEx, (NvtxFunctionPointer)on_start_ex},
    {NVTX_CBID_CORE_RangeStartA, (NvtxFunctionPointer)on_start_a},
    {NVTX_CBID_CORE_RangeStartW, (NvtxFunctionPointer)on_start_w},
    {NVTX_CBID_CORE_RangeEnd, (NvtxFunctionPointer)on_end},
    {NVTX_CBID_CORE_RangePushEx, (NvtxFunctionPointer)on_push_ex},
    {NVTX_CBID_CORE_RangePushA, (NvtxFunctionPointer)on_push_a},
    {NVTX_CBID_CORE_RangePushW, (NvtxFunctionPointer)on_push_w},
    {NVTX_CBID_CORE_RangePop, (NvtxFunctionPointer)on_pop},
    {NVTX_CBID_CORE_NameCategoryA, (NvtxFunctionPointer)on_name_category_a},
    {NVTX_CBID_CORE_NameCategoryW, (NvtxFunctionPointer)on_name_category_w},
    {NVTX_CBID_CORE_NameOsThreadA, (NvtxFunctionPointer)on_name_thread_a},
    {NVTX_CBID_CORE_NameOsThreadW, (NvtxFunctionPointer)on_name_thread_w},
    {0, NULL}};

const struct mp_nvtx_callback mp_nvtx_core2_callbacks[] = {
    {NVTX_CBID_CORE2_DomainMarkEx, (NvtxFunctionPointer)on_domain_mark_ex},
    {NVTX_CBID_CORE2_DomainRangeStartEx, (NvtxFunctionPointer)on_domain_start_ex},
    {NVTX_CBID_CORE2_DomainRangeEnd, (NvtxFunctionPointer)on_domain_end},
    {NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)on_domain_push_ex},
    {NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)on_domain_pop},
    {NVTX_CBID_CORE2_DomainResourceCreate, (NvtxFunctionPointer)on_resource_create},
    {NVTX_CBID_CORE2_DomainResourceDestroy, (NvtxFunctionPointer)on_resource_destroy},
    {NVTX_CBID_CORE2_DomainNameCategoryA, (NvtxFunctionPointer)on_domain_name_category_a},
    {NVTX_CBID_CORE2_DomainNameCategoryW, (NvtxFunctionPointer)on_domain_name_category_w},
    {NVTX_CBID_CORE2_DomainRegisterStringA, (NvtxFunctionPointer)on_register_string_a},
    {NVTX_CBID_CORE2_DomainRegisterStringW, (NvtxFunctionPointer)on_register_string_w},
    {NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)on_domain_create_a},
    {NVTX_CBID_CORE2_DomainCreateW, (NvtxFunctionPointer)on_domain_create_w},
    {NVTX_CBID_CORE2_DomainDestroy, (NvtxFunctionPointer)on_domain_destroy},
    {NVTX_CBID_CORE2_Initialize, (NvtxFunctionPointer)on_initialize},
    {0, NULL}};
