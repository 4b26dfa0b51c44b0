/* Experts of a block's tokens as they stand in the native format; trace.h describes it. */
#include <stdlib.h>

#include "harness/workload/native.h"
#include "reference/plan/routes.h"

/* Bytes of a choice: numbers of experts, and -1 less them. */
static size_t width_of(int experts) {
    return experts <= INT16_MAX ? 2 : 4;
}

static size_t head_of(int ranks) {
    return ((size_t)ranks + 1) * 4;
}

size_t native_routes_bytes(const struct mp_load *load) {
    const struct mp_routes *routes = load->routes;
    return head_of(load->ranks) +
           (size_t)routes->begin[load->ranks] * (size_t)routes->top_k * width_of(load->experts);
}

void native_put_routes(unsigned char *at, const struct mp_load *load) {
    const struct mp_routes *routes = load->routes;
    size_t width = width_of(load->experts);
    size_t choices = (size_t)routes->begin[load->ranks] * (size_t)routes->top_k;
    native_put32(at, (uint32_t)routes->top_k);
    for (int rank = 0; rank < load->ranks; rank++)
        native_put32(at + ((size_t)rank + 1) * 4,
                     (uint32_t)(routes->begin[rank + 1] - routes->begin[rank]));
    at += head_of(load->ranks);
    for (size_t i = 0; i < choices; i++, at += width) {
        uint32_t choice = (uint32_t)routes->expert[i];
        for (size_t byte = 0; byte < width; byte++)
            at[byte] = (unsigned char)(choice >> 8 * byte);
    }
}

static int32_t get_choice(const unsigned char *at, size_t width) {
    return width == 2 ? (int16_t)(at[0] | at[1] << 8) : (int32_t)native_get32(at);
}

int native_get_routes(const unsigned char *at, size_t left, struct mp_load *load, size_t *used,
                      struct mp_error *error) {
    size_t head = head_of(load->ranks), width = width_of(load->experts);
    int32_t *tokens = left < head ? NULL : calloc((size_t)load->ranks, sizeof *tokens);
    *used = 0;
    if (left < head)
        return MP_OK;
    if (!tokens)
        return mp_no_memory(error);
    uint32_t top_k = native_get32(at);
    uint64_t choices = 0;
    for (int rank = 0; rank < load->ranks; rank++) {
        uint32_t own = native_get32(at + ((size_t)rank + 1) * 4);
        tokens[rank] = own <= INT32_MAX ? (int32_t)own : -1;
        choices += own;
    }
    bool possible = top_k >= 1 && top_k <= (uint32_t)load->experts &&
                    choices <= INT32_MAX / top_k && choices * top_k * width <= left - head;
    int code = possible ? mp_load_give_routes(load, (int)top_k, tokens, error) : MP_OK;
    free(tokens);
    if (!possible || code)
        return code;
    choices *= top_k;
    at += head;
    for (uint64_t i = 0; i < choices; i++, at += width)
        load->routes->expert[i] = get_choice(at, width);
    *used = head + (size_t)choices * width;
    return MP_OK;
}
