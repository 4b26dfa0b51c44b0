#include "reference/trainer/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference/base/whole_file.h"
#include "reference/base/yaml.h"
#include "reference/trainer/internal.h"

/* A folder is a job's text, perhaps with ".partial" behind it; a file's name follows. */
enum { FORMAT = 2, FOLDER_SIZE = MP_TEXT_SIZE + 16, PATH_SIZE = FOLDER_SIZE + 32 };

static const char DESCRIPTION[] = "checkpoint.yaml";

static void file_path(char path[PATH_SIZE], const char *folder, const char *name) {
    snprintf(path, PATH_SIZE, "%.*s/%.30s", FOLDER_SIZE - 1, folder, name);
}

static void shard_path(char path[PATH_SIZE], const char *folder, int rank) {
    char name[32];
    snprintf(name, sizeof name, "experts-%04d.bin", rank);
    file_path(path, folder, name);
}

/* Every rank fails if one did, so that none waits for another: its own sentence on the rank at
 * fault, a pointer to it on the others. */
static int agree(const struct mp_trainer *trainer, int code, struct mp_error *error) {
    double worst = -code;
    int sent = mp_comm_maximum(trainer->comm, &worst, 1, error);
    if (code || sent)
        return code ? code : sent;
    return worst > 0 ? mp_fail(error, -(int)worst, "checkpoint: another rank failed") : MP_OK;
}

static int remove_tree(const char *folder, struct mp_error *error) {
    char *paths[] = {(char *)folder, NULL};
    struct stat status;
    if (stat(folder, &status) != 0)
        return MP_OK;
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int code = tree ? MP_OK : mp_fail(error, MP_EIO, "%s: %s", folder, strerror(errno));
    FTSENT *entry;
    while (!code && (entry = fts_read(tree))) {
        if (entry->fts_info == FTS_D)
            continue;
        if (remove(entry->fts_accpath) != 0)
            code = mp_fail(error, MP_EIO, "%s: %s", entry->fts_path, strerror(errno));
    }
    if (tree)
        fts_close(tree);
    return code;
}

/* ---- writing ---- */

/* Appends device buffers of the writer's size by way of `host`. */
static int append_buffers(const struct mp_trainer *trainer, struct mp_shard_writer *writer,
                          const float *const buffer[3], size_t floats, float *host,
                          struct mp_error *error) {
    int code = MP_OK;
    for (int b = 0; !code && b < 3; b++) {
        trainer->device->operations->copy_to_host(trainer->device, trainer->model.stream, host,
                                                  buffer[b], floats * sizeof *host);
        code = mp_shard_append(writer, host, error);
    }
    return code;
}

/* What this rank writes of an expert: parameters and both moments, whole if it is the owner, or its
 * slices.  NULL: nothing. */
static bool saved_state(const struct mp_trainer *trainer, int index, const float *buffer[3]) {
    const struct mp_experts *experts = &trainer->model.experts;
    int layer = index / experts->experts, expert = index % experts->experts;
    if (experts->slice) {
        buffer[0] = mp_experts_own_slice(experts, experts->slice_parameter, layer, expert);
        buffer[1] = mp_experts_own_slice(experts, experts->slice_first, layer, expert);
        buffer[2] = mp_experts_own_slice(experts, experts->slice_second, layer, expert);
        return true;
    }
    if (trainer->planner.home[layer].owner[expert] != trainer->comm->rank)
        return false;
    size_t moments = (size_t)experts->moments[index] * experts->chunk;
    buffer[0] = experts->parameter + (size_t)experts->slot[index] * experts->chunk;
    buffer[1] = experts->first + moments;
    buffer[2] = experts->second + moments;
    return true;
}

static int save_experts(const struct mp_trainer *trainer, const char *folder,
                        struct mp_error *error) {
    const struct mp_experts *experts = &trainer->model.experts;
    int all = experts->layers * experts->experts, saved = 0;
    size_t floats = experts->slice ? experts->slice : experts->chunk;
    const float *buffer[3];
    int32_t *index = malloc((size_t)all * 2 * sizeof *index);
    float *host = malloc(floats * sizeof *host);
    if (!index || !host) {
        free(index);
        free(host);
        return mp_fail(error, MP_ENOMEM, "checkpoint: no memory for %d experts", all);
    }
    for (int i = 0; i < all; i++) {
        if (!saved_state(trainer, i, buffer))
            continue;
        index[2 * saved] = i / experts->experts;
        index[2 * saved++ + 1] = i % experts->experts;
    }
    char path[PATH_SIZE];
    shard_path(path, folder, trainer->comm->rank);
    struct mp_shard_writer *writer = NULL;
    int code = mp_shard_create(path, saved, index, (uint32_t)floats, &writer, error);
    free(index);
    for (int i = 0; !code && i < all; i++)
        if (saved_state(trainer, i, buffer))
            code = append_buffers(trainer, writer, buffer, floats, host, error);
    free(host);
    int finished = writer ? mp_shard_finish(writer, error) : MP_OK;
    return code ? code : finished;
}

static int save_dense(const struct mp_trainer *trainer, const char *folder,
                      struct mp_error *error) {
    const struct mp_dense *dense = &trainer->model.dense;
    const int32_t index[2] = {-1, -1};
    const float *const buffer[] = {dense->parameter, dense->first, dense->second};
    float *host = malloc(dense->count * sizeof *host);
    if (!host)
        return mp_fail(error, MP_ENOMEM, "checkpoint: no memory for %zu parameters", dense->count);
    char path[PATH_SIZE];
    file_path(path, folder, "dense.bin");
    struct mp_shard_writer *writer = NULL;
    int code = mp_shard_create(path, 1, index, (uint32_t)dense->count, &writer, error);
    if (!code)
        code = append_buffers(trainer, writer, buffer, dense->count, host, error);
    free(host);
    int finished = writer ? mp_shard_finish(writer, error) : MP_OK;
    return code ? code : finished;
}

/* A file of one entry with bytes in it; `memory` has room for whole floats. */
static int save_bytes(const char *folder, const char *name, const float *memory, size_t bytes,
                      struct mp_error *error) {
    const int32_t index[2] = {(int32_t)bytes, -1};
    char path[PATH_SIZE];
    file_path(path, folder, name);
    struct mp_shard_writer *writer = NULL;
    int code =
        mp_shard_create(path, 1, index, (uint32_t)(bytes / sizeof(float) + 1), &writer, error);
    if (code)
        return code;
    for (int b = 0; !code && b < 3; b++)
        code = mp_shard_append(writer, memory, error);
    int finished = mp_shard_finish(writer, error);
    return code ? code : finished;
}

/* Room for `bytes` bytes of such a file, NULL with an error. */
static float *bytes_memory(size_t bytes, struct mp_error *error) {
    float *memory = bytes > INT32_MAX ? NULL : calloc(bytes / sizeof(float) + 1, sizeof *memory);
    if (!memory)
        mp_fail(error, bytes > INT32_MAX ? MP_ELIMIT : MP_ENOMEM,
                "checkpoint: no room for %zu bytes of state, at most %d are possible", bytes,
                INT32_MAX);
    return memory;
}

static int save_system(const struct mp_trainer *trainer, const char *folder,
                       struct mp_error *error) {
    if (!trainer->planner.system->save)
        return MP_OK;
    size_t bytes = trainer->planner.system->save(trainer->planner.self, NULL, 0);
    float *memory = bytes_memory(bytes, error);
    if (!memory)
        return error->code;
    trainer->planner.system->save(trainer->planner.self, memory, bytes);
    int code = save_bytes(folder, "system.bin", memory, bytes, error);
    free(memory);
    return code;
}

/* Bytes of one layer's owners, and of its holders. */
static size_t owner_bytes(const struct mp_placement *home) {
    return (size_t)home->experts * sizeof *home->owner;
}

static size_t holder_bytes(const struct mp_placement *home) {
    return (size_t)home->experts * (size_t)home->words * sizeof *home->holder;
}

static size_t homes_bytes(const struct mp_trainer *trainer) {
    return (size_t)trainer->job.layers *
           (owner_bytes(&trainer->planner.home[0]) + holder_bytes(&trainer->planner.home[0]));
}

static int save_homes(const struct mp_trainer *trainer, const char *folder,
                      struct mp_error *error) {
    size_t bytes = homes_bytes(trainer);
    float *memory = bytes_memory(bytes, error);
    if (!memory)
        return error->code;
    char *at = (char *)memory;
    for (int l = 0; l < trainer->job.layers; l++) {
        const struct mp_placement *home = &trainer->planner.home[l];
        memcpy(at, home->owner, owner_bytes(home));
        memcpy(at + owner_bytes(home), home->holder, holder_bytes(home));
        at += owner_bytes(home) + holder_bytes(home);
    }
    int code = save_bytes(folder, "homes.bin", memory, bytes, error);
    free(memory);
    return code;
}

static int save_description(const struct mp_trainer *trainer, const char *folder,
                            struct mp_error *error) {
    char path[PATH_SIZE];
    file_path(path, folder, DESCRIPTION);
    struct mp_whole_file file;
    int code = mp_whole_file_open(&file, path, error);
    if (code)
        return code;
    const struct mp_job *job = &trainer->job;
    fprintf(file.stream,
            "format: %d\niteration: %lld\nupdates: %lld\nlayers: %d\nwidth: %d\nheads: %d\n"
            "experts: %d\nexpert-width: %d\nsequence: %d\nseed: %lld\nsystem: %s\nranks: %d\n"
            "slices: %d\noptions: ",
            FORMAT, (long long)trainer->iteration, (long long)trainer->updates, job->layers,
            job->width, job->heads, job->experts, job->expert_width, job->sequence,
            (long long)job->seed, trainer->planner.system->name, trainer->comm->ranks,
            trainer->model.experts.slice ? trainer->comm->ranks : 0);
    code = mp_yaml_write_text(file.stream, trainer->options, error);
    fputc('\n', file.stream);
    return mp_whole_file_close(&file, code, error);
}

/* Whether a folder is there, and has an entry of this name (NULL: of any). */
static bool has_entry(const char *folder, const char *name) {
    DIR *stream = opendir(folder);
    struct dirent *entry;
    bool found = false;
    while (stream && !found && (entry = readdir(stream)))
        found = name ? strcmp(entry->d_name, name) == 0
                     : strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (stream)
        closedir(stream);
    return found;
}

/* Where a checkpoint of this name is kept: without slashes behind it, so that names can be put
 * there, and behind a link or ".", since a folder can take another's place but not theirs. */
static int resolve(const char *name, char folder[FOLDER_SIZE], struct mp_error *error) {
    struct stat status;
    snprintf(folder, FOLDER_SIZE, "%.*s", MP_TEXT_SIZE, name);
    for (size_t end = strlen(folder); end > 1 && folder[end - 1] == '/'; end--)
        folder[end - 1] = '\0';
    const char *last = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    bool is_dots = strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
    if (!is_dots && (lstat(folder, &status) != 0 || !S_ISLNK(status.st_mode)))
        return MP_OK;
    char *behind = realpath(folder, NULL);
    int code = MP_OK;
    if (!behind)
        code =
            mp_fail(error, MP_EINVAL, "checkpoint %s: it leads nowhere: %s", name, strerror(errno));
    else if (strlen(behind) > MP_TEXT_SIZE)
        code = mp_fail(error, MP_EINVAL, "checkpoint %s: it leads to a path of more than %d bytes",
                       name, MP_TEXT_SIZE);
    else
        strcpy(folder, behind);
    free(behind);
    return code;
}

int mp_checkpoint_check(const char *name, struct mp_error *error) {
    struct stat status;
    char folder[FOLDER_SIZE];
    int code = resolve(name, folder, error);
    if (code)
        return code;
    if (stat(folder, &status) == 0) {
        if (!S_ISDIR(status.st_mode))
            return mp_fail(error, MP_EINVAL, "checkpoint %s: it is a file, not a folder", folder);
        if (has_entry(folder, NULL) && !has_entry(folder, DESCRIPTION))
            return mp_fail(error, MP_EINVAL,
                           "checkpoint %s: the folder holds something else than a checkpoint, "
                           "which would be lost; give another one",
                           folder);
    }
    char above[FOLDER_SIZE];
    strcpy(above, folder);
    const char *parent = dirname(above); /* the new one is written beside the old one */
    if (access(parent, W_OK) != 0)
        return mp_fail(error, MP_EIO, "checkpoint %s: %s: %s", folder, parent, strerror(errno));
    return MP_OK;
}

/* The new checkpoint takes the old one's place: both change places at once, so that there is one
 * at any moment; file systems that can't do that get two steps. */
static int put_in_place(const char *partial, const char *folder, struct mp_error *error) {
    char old[FOLDER_SIZE];
    if (rename(partial, folder) == 0)
        return MP_OK;
    if (errno == ENOTEMPTY || errno == EEXIST) {
        if (renameat2(AT_FDCWD, partial, AT_FDCWD, folder, RENAME_EXCHANGE) == 0)
            return remove_tree(partial, error);
        snprintf(old, sizeof old, "%.*s.old", MP_TEXT_SIZE, folder);
        int code = remove_tree(old, error);
        if (code)
            return code;
        if (rename(folder, old) == 0 && rename(partial, folder) == 0)
            return remove_tree(old, error);
    }
    return mp_fail(error, MP_EIO, "checkpoint %s: %s", folder, strerror(errno));
}

/* Opens and locks a folder that is written to: a descriptor; -1 where there is none.  MP_EIO: it is
 * another run's, which holds the lock or has put its own in this one's place.  File systems without
 * locks tell nothing. */
static int hold_partial(const char *partial, int *held, struct mp_error *error) {
    struct stat own, there;
    *held = open(partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_other =
        *held >= 0 && ((flock(*held, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) ||
                       fstat(*held, &own) || lstat(partial, &there) || own.st_ino != there.st_ino);
    return is_other ? mp_fail(error, MP_EIO, "checkpoint %s: another run is writing it", partial)
                    : MP_OK;
}

static void release_partial(int *held) {
    if (*held >= 0)
        close(*held);
    *held = -1;
}

/* What a killed run left is removed; what another one is writing is not. */
static int begin(const char *folder, const char *partial, int *held, struct mp_error *error) {
    int code = mp_checkpoint_check(folder, error);
    if (!code)
        code = hold_partial(partial, held, error);
    if (!code)
        code = remove_tree(partial, error);
    release_partial(held);
    if (!code && mkdir(partial, 0777) != 0)
        code = mp_fail(error, MP_EIO, "checkpoint %s: %s", partial, strerror(errno));
    return code ? code : hold_partial(partial, held, error);
}

/* Every rank's shard, and on rank 0 what is the same on all. */
static int save_parts(const struct mp_trainer *trainer, const char *partial,
                      struct mp_error *error) {
    int code = save_experts(trainer, partial, error);
    if (trainer->comm->rank != 0)
        return code;
    if (!code)
        code = save_dense(trainer, partial, error);
    if (!code)
        code = save_homes(trainer, partial, error);
    if (!code)
        code = save_system(trainer, partial, error);
    if (!code)
        code = save_description(trainer, partial, error);
    return code;
}

/* held: rank 0's lock of the folder while it is written. */
static int save(const struct mp_trainer *trainer, const char *name, int *held,
                struct mp_error *error) {
    char folder[FOLDER_SIZE], partial[FOLDER_SIZE];
    bool first = trainer->comm->rank == 0;
    int code = resolve(name, folder, error);
    snprintf(partial, sizeof partial, "%.*s.partial", MP_TEXT_SIZE, folder);
    if (!code && first)
        code = begin(folder, partial, held, error);
    code = agree(trainer, code, error);
    if (!code)
        code = agree(trainer, save_parts(trainer, partial, error), error);
    if (code)
        return code;
    if (first)
        code = put_in_place(partial, folder, error);
    return agree(trainer, code, error);
}

int mp_trainer_save(struct mp_trainer *trainer, const char *name, struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_CHECKPOINT);
    int held = -1;
    int code = save(trainer, name, &held, error);
    release_partial(&held);
    if (code)
        return code;
    trainer->iteration--; /* its span is part of the iteration just done */
    mp_trainer_spent(trainer, mark, MP_PHASE_CHECKPOINT, MP_NO_DIRECTION, -1, -1, -1);
    trainer->iteration++;
    return code;
}

/* ---- reading ---- */

struct description {
    int64_t iteration, updates;
    bool same_system; /* with the same options */
    int ranks;
    int slices; /* that an expert was kept in; 0: whole */
};

static int number(const struct mp_yaml *document, const char *path, const char *key, int64_t *value,
                  struct mp_error *error) {
    const struct mp_yaml *node = mp_yaml_get(document, key);
    char *end = NULL;
    errno = 0;
    if (node && node->kind == MP_YAML_SCALAR)
        *value = strtoll(node->text, &end, 10);
    if (!end || *end || end == node->text || errno || *value < 0)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: %s should be a number of at least 0",
                       path, key);
    return MP_OK;
}

/* Reads the description and compares the model's shape with the job's. */
static int read_description(const struct mp_trainer *trainer, const char *folder,
                            struct description *description, struct mp_error *error) {
    const struct mp_job *job = &trainer->job;
    const struct {
        const char *key;
        int64_t wanted;
    } shape[] = {{"format", FORMAT},         {"layers", job->layers},
                 {"width", job->width},      {"heads", job->heads},
                 {"experts", job->experts},  {"expert-width", job->expert_width},
                 {"sequence", job->sequence}};
    char path[PATH_SIZE];
    file_path(path, folder, DESCRIPTION);
    struct mp_yaml *document = NULL;
    int64_t value = 0;
    int code = mp_yaml_load(path, &document, error);
    for (size_t i = 0; !code && i < sizeof shape / sizeof *shape; i++) {
        code = number(document, path, shape[i].key, &value, error);
        if (!code && value != shape[i].wanted)
            code = mp_fail(error, i == 0 ? MP_EVERSION : MP_EINVAL,
                           "checkpoint %s: %s is %lld there and %lld here", path, shape[i].key,
                           (long long)value, (long long)shape[i].wanted);
    }
    if (!code)
        code = number(document, path, "iteration", &description->iteration, error);
    if (!code)
        code = number(document, path, "updates", &description->updates, error);
    if (!code)
        code = number(document, path, "slices", &value, error);
    description->slices = (int)value;
    if (!code)
        code = number(document, path, "ranks", &value, error);
    description->ranks = (int)value;
    if (!code && description->slices != 0 && description->slices != value)
        code = mp_fail(error, MP_EFORMAT, "checkpoint %s: %d slices by %lld ranks", path,
                       description->slices, (long long)value);
    const struct mp_yaml *system = code ? NULL : mp_yaml_get(document, "system");
    const struct mp_yaml *options = code ? NULL : mp_yaml_get(document, "options");
    if (!code && (!system || system->kind != MP_YAML_SCALAR || !options ||
                  options->kind != MP_YAML_SCALAR || value < 1 || value > INT32_MAX))
        code = mp_fail(error, MP_EFORMAT, "checkpoint %s: system, options or ranks missing", path);
    if (!code)
        description->same_system = strcmp(system->text, trainer->planner.system->name) == 0 &&
                                   strcmp(options->text, trainer->options) == 0;
    mp_yaml_destroy(document);
    return code;
}

/* Reads a file of bytes; they are `*memory` until mp_shard_close. */
static int open_bytes(const char *folder, const char *name, struct mp_shard *shard, size_t *bytes,
                      struct mp_error *error) {
    char path[PATH_SIZE];
    file_path(path, folder, name);
    int code = mp_shard_open(path, shard, error);
    if (code)
        return code;
    size_t room = (size_t)shard->floats * sizeof(float);
    if (shard->entries != 1 || shard->layer_expert[0] < 0 ||
        (size_t)shard->layer_expert[0] > room) {
        mp_shard_close(shard);
        *shard = (struct mp_shard){0};
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: it holds no state", path);
    }
    *bytes = (size_t)shard->layer_expert[0];
    return MP_OK;
}

/* Slots follow the homes in trainer->planner.change.next; contents come later. */
static void adopt_homes(struct mp_trainer *trainer) {
    struct mp_experts *experts = &trainer->model.experts;
    int rank = trainer->comm->rank;
    for (int pass = 0; pass < 2 && !experts->slice; pass++) /* make room first */
        for (int i = 0; i < experts->layers * experts->experts; i++) {
            int layer = i / experts->experts, expert = i % experts->experts;
            bool keeps = mp_placement_holds(&trainer->planner.change.next[layer], expert, rank);
            if (pass == 0 && experts->slot[i] >= 0 && !keeps)
                mp_experts_give(experts, layer, expert);
            if (pass == 1 && experts->slot[i] < 0 && keeps)
                mp_experts_take(experts, layer, expert);
        }
    for (int l = 0; l < experts->layers; l++)
        mp_placement_copy(&trainer->planner.home[l], &trainer->planner.change.next[l]);
}

static int restore_homes(struct mp_trainer *trainer, const char *folder, struct mp_error *error) {
    struct mp_shard shard;
    size_t bytes = 0;
    int code = open_bytes(folder, "homes.bin", &shard, &bytes, error);
    if (!code && bytes != homes_bytes(trainer))
        code = mp_fail(error, MP_EFORMAT, "checkpoint %s: homes.bin has %zu bytes, %zu are right",
                       folder, bytes, homes_bytes(trainer));
    const char *at = (const char *)shard.memory;
    for (int l = 0; !code && l < trainer->job.layers; l++) {
        struct mp_placement *next = &trainer->planner.change.next[l];
        memcpy(next->owner, at, owner_bytes(next));
        memcpy(next->holder, at + owner_bytes(next), holder_bytes(next));
        at += owner_bytes(next) + holder_bytes(next);
    }
    const struct mp_rehome change = {.next = trainer->planner.change.next, .changed = true};
    if (!code)
        code = mp_rehome_check(trainer->planner.home, &change, trainer->job.layers,
                               trainer->planner.optimizer, trainer->planner.homes_limit, error);
    mp_shard_close(&shard);
    if (!code)
        adopt_homes(trainer);
    return code;
}

/* Counts what a shard has: times[layer][expert]. */
static int count_entries(const struct mp_trainer *trainer, const char *path,
                         const struct mp_shard *shard, const struct description *description,
                         int times[], struct mp_error *error) {
    const struct mp_experts *experts = &trainer->model.experts;
    size_t slices = (size_t)description->slices;
    size_t floats = slices ? (experts->chunk + slices - 1) / slices : experts->chunk;
    for (int i = 0; i < shard->entries; i++) {
        int layer = shard->layer_expert[2 * i], expert = shard->layer_expert[2 * i + 1];
        if (layer < 0 || layer >= experts->layers || expert < 0 || expert >= experts->experts ||
            shard->floats != floats)
            return mp_fail(error, MP_EFORMAT, "checkpoint %s: expert %d of layer %d, %u floats",
                           path, expert, layer, shard->floats);
        times[layer * experts->experts + expert]++;
    }
    return MP_OK;
}

/* Whether all shards are there and together have every expert once, or every slice of it. */
static int check_shards(const struct mp_trainer *trainer, const char *folder,
                        const struct description *description, struct mp_error *error) {
    int experts = trainer->job.experts, all = trainer->job.layers * experts, code = MP_OK;
    int wanted = description->slices ? description->slices : 1;
    int *times = calloc((size_t)all, sizeof *times);
    char path[PATH_SIZE];
    if (!times)
        return mp_fail(error, MP_ENOMEM, "checkpoint: no memory for %d experts", all);
    for (int r = 0; !code && r < description->ranks; r++) {
        struct mp_shard shard;
        shard_path(path, folder, r);
        code = mp_shard_open(path, &shard, error);
        if (!code)
            code = count_entries(trainer, path, &shard, description, times, error);
        mp_shard_close(&shard);
    }
    for (int i = 0; !code && i < all; i++)
        if (times[i] != wanted)
            code = mp_fail(error, MP_EFORMAT,
                           "checkpoint %s: expert %d of layer %d is there %d times, not %d", folder,
                           i % experts, i / experts, times[i], wanted);
    free(times);
    return code;
}

/* A stretch of an expert's floats. */
struct stretch {
    size_t begin, end;
};

/* Copies what two stretches share. */
static void copy_shared(struct mp_trainer *trainer, float *to, struct stretch there,
                        const float *host, struct stretch here) {
    size_t begin = there.begin > here.begin ? there.begin : here.begin;
    size_t end = there.end < here.end ? there.end : here.end;
    if (begin < end)
        trainer->device->operations->copy_from_host(
            trainer->device, NULL, to + (begin - there.begin), host + (begin - here.begin),
            (end - begin) * sizeof *host);
}

/* Takes what this rank keeps out of the shard of rank `r`. */
static void take_experts(struct mp_trainer *trainer, const struct mp_shard *shard, int r,
                         const struct description *description) {
    struct mp_experts *experts = &trainer->model.experts;
    size_t own = (size_t)trainer->comm->rank * experts->slice;
    struct stretch kept = {own, experts->slice ? own + experts->slice : experts->chunk};
    struct stretch given = {0, experts->chunk};
    if (description->slices) {
        given.begin = (size_t)r * shard->floats;
        given.end = given.begin + shard->floats < experts->chunk ? given.begin + shard->floats
                                                                 : experts->chunk;
    }
    for (int i = 0; i < shard->entries; i++) {
        int layer = shard->layer_expert[2 * i], expert = shard->layer_expert[2 * i + 1];
        int at = layer * experts->experts + expert;
        float *to[3] = {experts->slice_parameter, experts->slice_first, experts->slice_second};
        if (!experts->slice && experts->slot[at] < 0)
            continue;
        for (int b = 0; b < 3; b++) {
            float *memory[3] = {experts->parameter, experts->first, experts->second};
            int place = b == 0 ? experts->slot[at] : experts->moments[at];
            to[b] = experts->slice ? mp_experts_own_slice(experts, to[b], layer, expert)
                                   : memory[b] + (size_t)place * experts->chunk;
            copy_shared(trainer, to[b], kept,
                        shard->memory + ((size_t)i * 3 + (size_t)b) * shard->floats, given);
        }
    }
}

/* All shards are read twice: nothing of the model changes before they are known to be whole. */
static int restore_experts(struct mp_trainer *trainer, const char *folder,
                           const struct description *description, struct mp_error *error) {
    int code = check_shards(trainer, folder, description, error);
    if (!code && description->ranks == trainer->comm->ranks && description->same_system)
        code = restore_homes(trainer, folder, error);
    char path[PATH_SIZE];
    for (int r = 0; !code && r < description->ranks; r++) {
        struct mp_shard shard;
        shard_path(path, folder, r);
        code = mp_shard_open(path, &shard, error);
        if (!code)
            take_experts(trainer, &shard, r, description);
        mp_shard_close(&shard);
    }
    if (!code)
        mp_experts_refresh_all(&trainer->model.experts, NULL);
    return code;
}

static int restore_dense(struct mp_trainer *trainer, const char *folder, struct mp_error *error) {
    struct mp_dense *dense = &trainer->model.dense;
    char path[PATH_SIZE];
    struct mp_shard shard;
    file_path(path, folder, "dense.bin");
    int code = mp_shard_open(path, &shard, error);
    if (code)
        return code;
    if (shard.entries != 1 || shard.floats != dense->count) {
        code = mp_fail(error, MP_EFORMAT, "checkpoint %s: %u parameters, the model has %zu", path,
                       shard.floats, dense->count);
    } else {
        float *to[] = {dense->parameter, dense->first, dense->second};
        for (int b = 0; b < 3; b++)
            trainer->device->operations->copy_from_host(trainer->device, NULL, to[b],
                                                        shard.memory + (size_t)b * dense->count,
                                                        dense->count * sizeof(float));
        mp_dense_refresh(dense, NULL);
    }
    mp_shard_close(&shard);
    return code;
}

static int restore_system(struct mp_trainer *trainer, const char *folder,
                          const struct description *description, struct mp_error *error) {
    if (!trainer->planner.system->load || !description->same_system)
        return MP_OK;
    struct mp_shard shard;
    size_t bytes = 0;
    int code = open_bytes(folder, "system.bin", &shard, &bytes, error);
    if (!code)
        code = trainer->planner.system->load(trainer->planner.self, shard.memory, bytes, error);
    mp_shard_close(&shard);
    return code;
}

int mp_trainer_restore(struct mp_trainer *trainer, const char *folder, struct mp_error *error) {
    struct description description;
    int code = read_description(trainer, folder, &description, error);
    if (!code)
        code = restore_experts(trainer, folder, &description, error);
    if (!code)
        code = restore_dense(trainer, folder, error);
    if (!code)
        code = restore_system(trainer, folder, &description, error);
    code = agree(trainer, code, error);
    if (!code)
        code = mp_schedule_gather_homes(&trainer->schedule, error);
    if (code)
        return code;
    trainer->iteration = description.iteration;
    trainer->updates = description.updates;
    return MP_OK;
}
