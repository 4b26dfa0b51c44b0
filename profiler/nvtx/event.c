/* What an event's attributes say. */
#include <string.h>

#include "profiler/nvtx/callbacks.h"

const char *mp_nvtx_narrow(const wchar_t *wide, char text[MP_NVTX_WIDE_BYTES]) {
    size_t length = 0;
    if (!wide)
        return NULL;
    for (; *wide && length + 4 < MP_NVTX_WIDE_BYTES; wide++) {
        uint32_t code = (uint32_t)*wide;
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
            code = 0xFFFD; /* not a character */
        int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const uint32_t first[] = {0, 0xC0, 0xE0, 0xF0};
        text[length++] = (char)(first[more] | code >> (6 * more));
        while (more-- > 0)
            text[length++] = (char)(0x80 | (code >> (6 * more) & 0x3F));
    }
    text[length] = '\0';
    return text;
}

uint32_t mp_nvtx_wide_name(struct mp_nvtx_thread *thread, const wchar_t *wide) {
    char text[MP_NVTX_WIDE_BYTES];
    return mp_nvtx_name_of(thread, mp_nvtx_narrow(wide, text));
}

static uint32_t name_of(struct mp_nvtx_thread *thread, const nvtxEventAttributes_t *attributes) {
    switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
        return attributes->message.ascii ? mp_nvtx_name_of(thread, attributes->message.ascii) : 0;
    case NVTX_MESSAGE_TYPE_UNICODE:
        return attributes->message.unicode ? mp_nvtx_wide_name(thread, attributes->message.unicode)
                                           : 0;
    case NVTX_MESSAGE_TYPE_REGISTERED:
        return mp_nvtx_handle_id(attributes->message.registered);
    default:
        return 0;
    }
}

static void fill_payload(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                         const nvtxEventAttributes_t *attributes) {
    struct mp_range *range = &open->range;
    if (attributes->payloadType == NVTX_PAYLOAD_TYPE_EXT) {
        const void *payloads = (const void *)(uintptr_t)attributes->payload.ullValue;
        event_payloads(thread, open, payloads, (size_t)attributes->reserved0);
        return;
    }
    if (attributes->payloadType < 0 || attributes->payloadType > MP_VALUE_FLOAT)
        return;
    range->value_type = (uint8_t)attributes->payloadType;
    range->value = range->value_type <= MP_VALUE_DOUBLE ? attributes->payload.ullValue
                                                        : attributes->payload.uiValue;
}

void mp_nvtx_fill_attributes(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                             const nvtxEventAttributes_t *attributes) {
    nvtxEventAttributes_t whole;
    if (__builtin_expect(attributes->size < sizeof whole, 0)) { /* of an older header */
        memset(&whole, 0, sizeof whole);
        memcpy(&whole, attributes, attributes->size);
        attributes = &whole;
    }
    open->range.name = name_of(thread, attributes);
    open->range.category = attributes->category;
    if (attributes->colorType == NVTX_COLOR_ARGB)
        open->range.color = attributes->color;
    if (attributes->payloadType)
        fill_payload(thread, open, attributes);
}

const nvtxEventAttributes_t *mp_nvtx_for_next(const nvtxEventAttributes_t *attributes,
                                              nvtxEventAttributes_t *copy) {
    if (!attributes || attributes->size < sizeof *copy ||
        attributes->messageType != NVTX_MESSAGE_TYPE_REGISTERED)
        return attributes;
    *copy = *attributes;
    copy->message.registered = mp_nvtx_next_handle(attributes->message.registered);
    return copy;
}
