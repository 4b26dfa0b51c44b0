#include "profiler/nvtx/names.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "profiler/nvtx/threads.h"
#include "profiler/record/format.h"
#include "reference/base/digest.h"

enum { SLOTS = 1 << 18 }; /* more than twice MP_NVTX_NAMES: a search meets a free slot soon */

const char mp_nvtx_handles[MP_NVTX_NAMES + 1];
_Atomic uint32_t mp_nvtx_count;

static _Atomic(struct mp_nvtx_name *) slots[SLOTS]; /* strings and domains by their text */
static _Atomic(struct mp_nvtx_name *) by_id[MP_NVTX_NAMES];
static char *memory; /* [MP_NVTX_NAMES_MEMORY], with the first name */
static size_t used;
static _Atomic bool full;
static _Atomic int64_t refused;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t mp_nvtx_names_count(void) {
    return atomic_load_explicit(&mp_nvtx_count, memory_order_acquire);
}

struct mp_nvtx_name *mp_nvtx_names_get(uint32_t id) {
    return atomic_load_explicit(&by_id[id - 1], memory_order_acquire);
}

int64_t mp_nvtx_names_refused(void) {
    return atomic_load_explicit(&refused, memory_order_relaxed);
}

void mp_nvtx_names_count_anew(void) {
    atomic_store_explicit(&refused, 0, memory_order_relaxed);
}

void mp_nvtx_names_lock(void) {
    pthread_mutex_lock(&lock);
}

void mp_nvtx_names_unlock(void) {
    pthread_mutex_unlock(&lock);
}

static uint32_t hash_of(enum mp_name_kind kind, const char *text, size_t length) {
    uint64_t hash = mp_digest_byte(MP_DIGEST, (unsigned char)kind);
    for (size_t i = 0; i < length; i++)
        hash = mp_digest_byte(hash, (unsigned char)text[i]);
    return (uint32_t)(hash ^ hash >> 32);
}

/* The name, or NULL; *slot becomes where it is or would be. */
static struct mp_nvtx_name *search(enum mp_name_kind kind, const char *text, size_t length,
                                   uint32_t hash, uint32_t *slot) {
    for (*slot = hash % SLOTS;; *slot = (*slot + 1) % SLOTS) {
        struct mp_nvtx_name *name = atomic_load_explicit(&slots[*slot], memory_order_acquire);
        if (!name)
            return NULL;
        if (name->hash == hash && name->kind == kind && !strncmp(name->text, text, length) &&
            !name->text[length])
            return name;
    }
}

/* The lock is held.  NULL: there is no room for so many bytes. */
static void *take_memory(size_t bytes) {
    if (!memory) {
        void *mapped = mmap(NULL, MP_NVTX_NAMES_MEMORY, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED)
            return NULL;
        memory = mapped;
    }
    bytes = (bytes + _Alignof(struct mp_nvtx_name) - 1) / _Alignof(struct mp_nvtx_name) *
            _Alignof(struct mp_nvtx_name);
    if (bytes > MP_NVTX_NAMES_MEMORY - used)
        return NULL;
    used += bytes;
    return memory + used - bytes;
}

/* The lock is held. */
static struct mp_nvtx_name *add(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                                const char *text, size_t length, uint32_t hash) {
    uint32_t id = atomic_load_explicit(&mp_nvtx_count, memory_order_relaxed);
    struct mp_nvtx_name *name = id < MP_NVTX_NAMES ? take_memory(sizeof *name + length + 1) : NULL;
    if (!name) {
        atomic_store_explicit(&full, true, memory_order_relaxed);
        return NULL;
    }
    *name = (struct mp_nvtx_name){
        .id = id + 1, .kind = kind, .domain = domain, .number = number, .hash = hash};
    memcpy(name->text, text, length);
    name->text[length] = '\0';
    atomic_store_explicit(&by_id[id], name, memory_order_release);
    atomic_store_explicit(&mp_nvtx_count, id + 1, memory_order_release);
    return name;
}

static struct mp_nvtx_name *find_or_add(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                                        const char *text, bool shared) {
    size_t length = spool_cut(text, MP_NVTX_NAME_BYTES);
    uint32_t slot = 0, hash = hash_of(kind, text, length);
    struct mp_nvtx_name *name = shared ? search(kind, text, length, hash, &slot) : NULL;
    if (name)
        return name;
    if (!atomic_load_explicit(&full, memory_order_relaxed)) {
        struct mp_nvtx_section section;
        section_enter(&section);
        pthread_mutex_lock(&lock);
        if (shared)
            name =
                search(kind, text, length, hash, &slot); /* another thread may have been faster */
        if (!name) {
            name = add(kind, domain, number, text, length, hash);
            if (name && shared)
                atomic_store_explicit(&slots[slot], name, memory_order_release);
        }
        pthread_mutex_unlock(&lock);
        section_leave(&section);
    }
    if (!name)
        atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    return name;
}

struct mp_nvtx_name *mp_nvtx_name_find(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                                       const char *text) {
    return find_or_add(kind, domain, number, text,
                       kind == MP_NAME_STRING || kind == MP_NAME_DOMAIN);
}

/* Two domains of one name are one domain, and the next tool's handle is the first's.  Where its
 * handle of a string depends on the domain, each has a name of its own, while there is room. */
const void *mp_nvtx_name_handle(struct mp_nvtx_name *name, void *next_handle) {
    void *none = NULL;
    if (!name)
        return NULL;
    if (next_handle && !atomic_compare_exchange_strong(&name->next_handle, &none, next_handle) &&
        none != next_handle && name->kind == MP_NAME_STRING) {
        struct mp_nvtx_name *other = find_or_add(name->kind, 0, 0, name->text, false);
        if (other)
            atomic_store(&other->next_handle, next_handle);
        name = other ? other : name;
    }
    return mp_nvtx_handles + name->id;
}
