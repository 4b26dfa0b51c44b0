#include "profiler/nvtx/names.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 18 }; /* more than twice NVTX_NAMES: a search meets a free slot soon */

static _Atomic(struct nvtx_name *) slots[SLOTS]; /* strings and domains by their text */
static _Atomic(struct nvtx_name *) by_id[NVTX_NAMES];
static _Atomic uint32_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t nvtx_names_count(void) {
    return atomic_load_explicit(&count, memory_order_acquire);
}

const struct nvtx_name *nvtx_names_get(uint32_t id) {
    return atomic_load_explicit(&by_id[id - 1], memory_order_acquire);
}

void nvtx_names_lock(void) {
    pthread_mutex_lock(&lock);
}

void nvtx_names_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* FNV-1a, eight bytes apart from the end. */
static uint32_t hash_of(enum mp_name_kind kind, const char *text, size_t length) {
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)kind;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Bytes to keep, without cutting a UTF-8 character in two. */
static size_t kept_length(const char *text) {
    size_t length = strnlen(text, NVTX_NAME_BYTES + 1);
    if (length <= NVTX_NAME_BYTES)
        return length;
    length = NVTX_NAME_BYTES;
    while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
        length--;
    return length;
}

/* The name, or NULL; *slot becomes where it is or would be. */
static struct nvtx_name *search(enum mp_name_kind kind, const char *text, size_t length,
                                uint32_t hash, uint32_t *slot) {
    for (*slot = hash % SLOTS;; *slot = (*slot + 1) % SLOTS) {
        struct nvtx_name *name = atomic_load_explicit(&slots[*slot], memory_order_acquire);
        if (!name)
            return NULL;
        if (name->hash == hash && name->kind == kind && !strncmp(name->text, text, length) &&
            !name->text[length])
            return name;
    }
}

/* The lock is held. */
static struct nvtx_name *add(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                             const char *text, size_t length, uint32_t hash) {
    uint32_t id = atomic_load_explicit(&count, memory_order_relaxed);
    struct nvtx_name *name = id < NVTX_NAMES ? malloc(sizeof *name + length + 1) : NULL;
    if (!name)
        return NULL;
    *name = (struct nvtx_name){
        .id = id + 1, .kind = kind, .domain = domain, .number = number, .hash = hash};
    memcpy(name->text, text, length);
    name->text[length] = '\0';
    atomic_store_explicit(&by_id[id], name, memory_order_release);
    atomic_store_explicit(&count, id + 1, memory_order_release);
    return name;
}

struct nvtx_name *nvtx_name_find(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                                 const char *text) {
    size_t length = kept_length(text);
    uint32_t slot, hash = hash_of(kind, text, length);
    const bool shared = kind == MP_NAME_STRING || kind == MP_NAME_DOMAIN;
    struct nvtx_name *name = shared ? search(kind, text, length, hash, &slot) : NULL;
    if (name)
        return name;
    int error_number = errno;
    pthread_mutex_lock(&lock);
    if (shared)
        name = search(kind, text, length, hash, &slot); /* another thread may have been faster */
    if (!name) {
        name = add(kind, domain, number, text, length, hash);
        if (name && shared)
            atomic_store_explicit(&slots[slot], name, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    errno = error_number;
    return name;
}
