/* The core modules: the default domain's plain calls, and the calls with a domain.  A range begins
 * after what has to be done for it, and ends before: its own cost lies outside it. */
#include "profiler/nvtx/callbacks.h"

_Atomic(NvtxFunctionPointer) mp_nvtx_next_core[NVTX_CBID_CORE_SIZE];
_Atomic(NvtxFunctionPointer) mp_nvtx_next_core2[NVTX_CBID_CORE2_SIZE];

/* Calls the next tool's function of a slot, if it has one. */
#define PASS_ON(module, slot, type, ...)                                                           \
    do {                                                                                           \
        NvtxFunctionPointer next_ = mp_nvtx_next(&mp_nvtx_next_##module[slot]);                    \
        if (__builtin_expect(next_ != NULL, 0))                                                    \
            ((type)next_)(__VA_ARGS__);                                                            \
    } while (0)

/* ---- marks ---- */

static void record_mark(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open) {
    open->range.start_ns = open->range.end_ns = mp_clock_ns();
    mp_nvtx_record(thread, open);
    mp_nvtx_leave(thread);
}

static void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open open;
    if (!thread)
        return;
    open.payload_bytes = 0;
    mp_nvtx_fill(thread, &open, MP_RANGE_MARK, domain, attributes);
    record_mark(thread, &open);
}

static void mark_named(const char *message) {
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open open;
    if (!thread)
        return;
    open.payload_bytes = 0;
    mp_nvtx_fill_named(thread, &open, MP_RANGE_MARK, 0,
                       message ? mp_nvtx_name_of(thread, message) : 0);
    record_mark(thread, &open);
}

static void on_mark_ex(const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    mark(NULL, attributes);
    PASS_ON(core, NVTX_CBID_CORE_MarkEx, nvtxMarkEx_impl_fntype,
            mp_nvtx_for_next(attributes, &copy));
}

static void on_mark_a(const char *message) {
    mark_named(message);
    PASS_ON(core, NVTX_CBID_CORE_MarkA, nvtxMarkA_impl_fntype, message);
}

static void on_mark_w(const wchar_t *message) {
    char text[MP_NVTX_WIDE_BYTES];
    mark_named(message ? mp_nvtx_narrow(message, text) : NULL);
    PASS_ON(core, NVTX_CBID_CORE_MarkW, nvtxMarkW_impl_fntype, message);
}

static void on_domain_mark_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    mark(domain, attributes);
    PASS_ON(core2, NVTX_CBID_CORE2_DomainMarkEx, nvtxDomainMarkEx_impl_fntype,
            mp_nvtx_next_handle(domain), mp_nvtx_for_next(attributes, &copy));
}

/* ---- push and pop ---- */

static inline int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    struct mp_nvtx_thread *thread;
    struct mp_nvtx_open *open = mp_nvtx_begin_push(&thread);
    if (!open)
        return NVTX_NO_PUSH_POP_TRACKING;
    mp_nvtx_fill(thread, open, MP_RANGE_PUSHED, domain, attributes);
    return mp_nvtx_end_push(thread, open);
}

static inline int push_named(const char *message) {
    struct mp_nvtx_thread *thread;
    struct mp_nvtx_open *open = mp_nvtx_begin_push(&thread);
    if (!open)
        return NVTX_NO_PUSH_POP_TRACKING;
    uint32_t name = message ? mp_nvtx_name_of(thread, message) : 0;
    mp_nvtx_fill_named(thread, open, MP_RANGE_PUSHED, 0, name);
    return mp_nvtx_end_push(thread, open);
}

static inline int pop(nvtxDomainHandle_t domain) {
    int64_t end_ns = mp_clock_ns();
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    if (!thread)
        return -1;
    struct mp_nvtx_open *open = mp_nvtx_innermost(thread, mp_nvtx_handle_id(domain));
    int level = open ? mp_nvtx_pop(thread, open, end_ns) : -1;
    mp_nvtx_leave(thread);
    return level;
}

static int on_push_ex(const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    PASS_ON(core, NVTX_CBID_CORE_RangePushEx, nvtxRangePushEx_impl_fntype,
            mp_nvtx_for_next(attributes, &copy));
    return push(NULL, attributes);
}

static int on_push_a(const char *message) {
    PASS_ON(core, NVTX_CBID_CORE_RangePushA, nvtxRangePushA_impl_fntype, message);
    return push_named(message);
}

static int on_push_w(const wchar_t *message) {
    char text[MP_NVTX_WIDE_BYTES];
    PASS_ON(core, NVTX_CBID_CORE_RangePushW, nvtxRangePushW_impl_fntype, message);
    return push_named(message ? mp_nvtx_narrow(message, text) : NULL);
}

static int on_pop(void) {
    int level = pop(NULL);
    NvtxFunctionPointer next = mp_nvtx_next(&mp_nvtx_next_core[NVTX_CBID_CORE_RangePop]);
    if (__builtin_expect(next != NULL, 0))
        ((nvtxRangePop_impl_fntype)next)();
    return level;
}

static int on_domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    PASS_ON(core2, NVTX_CBID_CORE2_DomainRangePushEx, nvtxDomainRangePushEx_impl_fntype,
            mp_nvtx_next_handle(domain), mp_nvtx_for_next(attributes, &copy));
    return push(domain, attributes);
}

static int on_domain_pop(nvtxDomainHandle_t domain) {
    int level = pop(domain);
    PASS_ON(core2, NVTX_CBID_CORE2_DomainRangePop, nvtxDomainRangePop_impl_fntype,
            mp_nvtx_next_handle(domain));
    return level;
}

/* ---- start and end ---- */

static nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes,
                           const char *message, uint64_t next_id) {
    uint64_t id = 0;
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    if (!thread)
        return 0;
    struct mp_nvtx_open *open = mp_nvtx_start(thread, &id);
    if (open) {
        mp_nvtx_fill(thread, open, MP_RANGE_STARTED, domain, attributes);
        if (message)
            open->range.name = mp_nvtx_name_of(thread, message);
        open->range.start_ns = mp_clock_ns();
        mp_nvtx_started(id, next_id);
    }
    mp_nvtx_leave(thread);
    return id;
}

/* Ends our range; returns the next tool's id of it. */
static uint64_t end(nvtxRangeId_t id) {
    int64_t end_ns = mp_clock_ns();
    uint64_t next_id = 0;
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    if (!thread)
        return 0;
    struct mp_nvtx_open *open = mp_nvtx_end(thread, id, &next_id);
    if (open)
        mp_nvtx_ended(thread, id, open, end_ns);
    mp_nvtx_leave(thread);
    return next_id;
}

static nvtxRangeId_t on_start_ex(const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    uint64_t next_id = 0;
    NvtxFunctionPointer next = mp_nvtx_next(&mp_nvtx_next_core[NVTX_CBID_CORE_RangeStartEx]);
    if (next)
        next_id = ((nvtxRangeStartEx_impl_fntype)next)(mp_nvtx_for_next(attributes, &copy));
    return start(NULL, attributes, NULL, next_id);
}

static nvtxRangeId_t on_start_a(const char *message) {
    NvtxFunctionPointer next = mp_nvtx_next(&mp_nvtx_next_core[NVTX_CBID_CORE_RangeStartA]);
    uint64_t next_id = next ? ((nvtxRangeStartA_impl_fntype)next)(message) : 0;
    return start(NULL, NULL, message, next_id);
}

static nvtxRangeId_t on_start_w(const wchar_t *message) {
    char text[MP_NVTX_WIDE_BYTES];
    NvtxFunctionPointer next = mp_nvtx_next(&mp_nvtx_next_core[NVTX_CBID_CORE_RangeStartW]);
    uint64_t next_id = next ? ((nvtxRangeStartW_impl_fntype)next)(message) : 0;
    return start(NULL, NULL, message ? mp_nvtx_narrow(message, text) : NULL, next_id);
}

static void on_end(nvtxRangeId_t id) {
    uint64_t next_id = end(id);
    PASS_ON(core, NVTX_CBID_CORE_RangeEnd, nvtxRangeEnd_impl_fntype, next_id);
}

static nvtxRangeId_t on_domain_start_ex(nvtxDomainHandle_t domain,
                                        const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t copy;
    uint64_t next_id = 0;
    NvtxFunctionPointer next =
        mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_DomainRangeStartEx]);
    if (next)
        next_id = ((nvtxDomainRangeStartEx_impl_fntype)next)(mp_nvtx_next_handle(domain),
                                                             mp_nvtx_for_next(attributes, &copy));
    return start(domain, attributes, NULL, next_id);
}

static void on_domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
    uint64_t next_id = end(id);
    PASS_ON(core2, NVTX_CBID_CORE2_DomainRangeEnd, nvtxDomainRangeEnd_impl_fntype,
            mp_nvtx_next_handle(domain), next_id);
}

/* ---- names ---- */

static void on_name_category_a(uint32_t category, const char *name) {
    if (name)
        mp_nvtx_name_find(MP_NAME_CATEGORY, 0, category, name);
    PASS_ON(core, NVTX_CBID_CORE_NameCategoryA, nvtxNameCategoryA_impl_fntype, category, name);
}

static void on_name_category_w(uint32_t category, const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    if (name)
        mp_nvtx_name_find(MP_NAME_CATEGORY, 0, category, mp_nvtx_narrow(name, text));
    PASS_ON(core, NVTX_CBID_CORE_NameCategoryW, nvtxNameCategoryW_impl_fntype, category, name);
}

static void on_name_thread_a(uint32_t thread, const char *name) {
    if (name)
        mp_nvtx_name_find(MP_NAME_THREAD, 0, thread, name);
    PASS_ON(core, NVTX_CBID_CORE_NameOsThreadA, nvtxNameOsThreadA_impl_fntype, thread, name);
}

static void on_name_thread_w(uint32_t thread, const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    if (name)
        mp_nvtx_name_find(MP_NAME_THREAD, 0, thread, mp_nvtx_narrow(name, text));
    PASS_ON(core, NVTX_CBID_CORE_NameOsThreadW, nvtxNameOsThreadW_impl_fntype, thread, name);
}

static void on_domain_name_category_a(nvtxDomainHandle_t domain, uint32_t category,
                                      const char *name) {
    if (name)
        mp_nvtx_name_find(MP_NAME_CATEGORY, mp_nvtx_handle_id(domain), category, name);
    PASS_ON(core2, NVTX_CBID_CORE2_DomainNameCategoryA, nvtxDomainNameCategoryA_impl_fntype,
            mp_nvtx_next_handle(domain), category, name);
}

static void on_domain_name_category_w(nvtxDomainHandle_t domain, uint32_t category,
                                      const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    if (name)
        mp_nvtx_name_find(MP_NAME_CATEGORY, mp_nvtx_handle_id(domain), category,
                          mp_nvtx_narrow(name, text));
    PASS_ON(core2, NVTX_CBID_CORE2_DomainNameCategoryW, nvtxDomainNameCategoryW_impl_fntype,
            mp_nvtx_next_handle(domain), category, name);
}

static nvtxStringHandle_t on_register_string_a(nvtxDomainHandle_t domain, const char *string) {
    void *next_handle = NULL;
    NvtxFunctionPointer next =
        mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_DomainRegisterStringA]);
    if (next)
        next_handle =
            ((nvtxDomainRegisterStringA_impl_fntype)next)(mp_nvtx_next_handle(domain), string);
    struct mp_nvtx_name *name = string ? mp_nvtx_name_find(MP_NAME_STRING, 0, 0, string) : NULL;
    return (nvtxStringHandle_t)(uintptr_t)mp_nvtx_name_handle(name, next_handle);
}

static nvtxStringHandle_t on_register_string_w(nvtxDomainHandle_t domain, const wchar_t *string) {
    char text[MP_NVTX_WIDE_BYTES];
    void *next_handle = NULL;
    NvtxFunctionPointer next =
        mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_DomainRegisterStringW]);
    if (next)
        next_handle =
            ((nvtxDomainRegisterStringW_impl_fntype)next)(mp_nvtx_next_handle(domain), string);
    if (!string)
        return NULL;
    struct mp_nvtx_name *name =
        mp_nvtx_name_find(MP_NAME_STRING, 0, 0, mp_nvtx_narrow(string, text));
    return (nvtxStringHandle_t)(uintptr_t)mp_nvtx_name_handle(name, next_handle);
}

static nvtxDomainHandle_t on_domain_create_a(const char *name) {
    NvtxFunctionPointer next = mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_DomainCreateA]);
    void *next_handle = next ? ((nvtxDomainCreateA_impl_fntype)next)(name) : NULL;
    mp_nvtx_prepare();
    struct mp_nvtx_name *domain = name ? mp_nvtx_name_find(MP_NAME_DOMAIN, 0, 0, name) : NULL;
    return (nvtxDomainHandle_t)(uintptr_t)mp_nvtx_name_handle(domain, next_handle);
}

static nvtxDomainHandle_t on_domain_create_w(const wchar_t *name) {
    char text[MP_NVTX_WIDE_BYTES];
    NvtxFunctionPointer next = mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_DomainCreateW]);
    void *next_handle = next ? ((nvtxDomainCreateW_impl_fntype)next)(name) : NULL;
    mp_nvtx_prepare();
    if (!name)
        return NULL;
    struct mp_nvtx_name *domain =
        mp_nvtx_name_find(MP_NAME_DOMAIN, 0, 0, mp_nvtx_narrow(name, text));
    return (nvtxDomainHandle_t)(uintptr_t)mp_nvtx_name_handle(domain, next_handle);
}

/* What has been recorded in a domain stays, and so does its handle, which others may have got. */
static void on_domain_destroy(nvtxDomainHandle_t domain) {
    (void)domain;
}

/* ---- what is left: passed on and not recorded ---- */

static nvtxResourceHandle_t on_resource_create(nvtxDomainHandle_t domain,
                                               nvtxResourceAttributes_t *attributes) {
    NvtxFunctionPointer next =
        mp_nvtx_next(&mp_nvtx_next_core2[NVTX_CBID_CORE2_DomainResourceCreate]);
    if (!next || !attributes)
        return NULL;
    nvtxResourceAttributes_t copy = *attributes;
    if (copy.messageType == NVTX_MESSAGE_TYPE_REGISTERED)
        copy.message.registered = mp_nvtx_next_handle(attributes->message.registered);
    return ((nvtxDomainResourceCreate_impl_fntype)next)(mp_nvtx_next_handle(domain), &copy);
}

static void on_resource_destroy(nvtxResourceHandle_t resource) {
    PASS_ON(core2, NVTX_CBID_CORE2_DomainResourceDestroy, nvtxDomainResourceDestroy_impl_fntype,
            resource);
}

static void on_initialize(const void *reserved) {
    PASS_ON(core2, NVTX_CBID_CORE2_Initialize, nvtxInitialize_impl_fntype, reserved);
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
