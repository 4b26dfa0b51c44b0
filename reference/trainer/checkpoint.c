#include "reference/trainer/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference/base/yaml.h"
#include "reference/trainer/internal.h"

/* A folder is a job's text, perhaps with ".partial" behind it; a file's name follows. */
enum { FORMAT = 1, FOLDER_SIZE = MP_TEXT_SIZE + 16, PATH_SIZE = FOLDER_SIZE + 32 };

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
static int agree(struct mp_trainer *trainer, int code, struct mp_error *error) {
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

static int save_experts(const struct mp_trainer *trainer, const char *folder,
                        struct mp_error *error) {
    const struct mp_experts *experts = &trainer->model.experts;
    int all = experts->layers * experts->experts, owned = 0;
    int32_t *index = malloc((size_t)(experts->held + 1) * 2 * sizeof *index);
    float *host = malloc(experts->chunk * sizeof *host);
    if (!index || !host) {
        free(index);
        free(host);
        return mp_fail(error, MP_ENOMEM, "checkpoint: no memory for %d experts", experts->held);
    }
    for (int i = 0; i < all; i++) {
        if (experts->slot[i] < 0)
            continue;
        index[2 * owned] = i / experts->experts;
        index[2 * owned++ + 1] = i % experts->experts;
    }
    char path[PATH_SIZE];
    shard_path(path, folder, trainer->comm->rank);
    struct mp_shard_writer *writer = NULL;
    int code = mp_shard_create(path, owned, index, (uint32_t)experts->chunk, &writer, error);
    free(index);
    for (int i = 0; !code && i < all; i++) {
        if (experts->slot[i] < 0)
            continue;
        size_t at = (size_t)experts->slot[i] * experts->chunk;
        const float *const buffer[] = {experts->parameter + at, experts->first + at,
                                       experts->second + at};
        code = append_buffers(trainer, writer, buffer, experts->chunk, host, error);
    }
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

static int save_system(const struct mp_trainer *trainer, const char *folder,
                       struct mp_error *error) {
    if (!trainer->system->save)
        return MP_OK;
    size_t bytes = trainer->system->save(trainer->self, NULL, 0);
    if (bytes > INT32_MAX)
        return mp_fail(error, MP_ELIMIT, "checkpoint: system %s has %zu bytes of state, at most %d",
                       trainer->system->name, bytes, INT32_MAX);
    size_t floats = bytes / sizeof(float) + 1;
    float *buffer = calloc(floats, sizeof *buffer);
    if (!buffer)
        return mp_fail(error, MP_ENOMEM, "checkpoint: no memory for %zu bytes of state", bytes);
    trainer->system->save(trainer->self, buffer, bytes);
    const int32_t index[2] = {(int32_t)bytes, -1};
    char path[PATH_SIZE];
    file_path(path, folder, "system.bin");
    struct mp_shard_writer *writer = NULL;
    int code = mp_shard_create(path, 1, index, (uint32_t)floats, &writer, error);
    if (!code) {
        for (int b = 0; !code && b < 3; b++)
            code = mp_shard_append(writer, buffer, error);
        int finished = mp_shard_finish(writer, error);
        code = code ? code : finished;
    }
    free(buffer);
    return code;
}

static int save_description(const struct mp_trainer *trainer, const char *folder,
                            struct mp_error *error) {
    char path[PATH_SIZE];
    file_path(path, folder, DESCRIPTION);
    FILE *file = fopen(path, "w");
    if (!file)
        return mp_fail(error, MP_EIO, "checkpoint %s: %s", path, strerror(errno));
    const struct mp_job *job = &trainer->job;
    fprintf(file,
            "format: %d\niteration: %lld\nupdates: %lld\nlayers: %d\nwidth: %d\nheads: %d\n"
            "experts: %d\nexpert-width: %d\nsequence: %d\nseed: %lld\nsystem: %s\nranks: %d\n",
            FORMAT, (long long)trainer->iteration, (long long)trainer->updates, job->layers,
            job->width, job->heads, job->experts, job->expert_width, job->sequence,
            (long long)job->seed, trainer->system->name, trainer->comm->ranks);
    int failed = fflush(file) || fsync(fileno(file)) || ferror(file);
    if (fclose(file) || failed)
        return mp_fail(error, errno == ENOSPC ? MP_ENOSPACE : MP_EIO, "checkpoint %s: %s", path,
                       strerror(errno));
    return MP_OK;
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

static int begin(const char *folder, const char *partial, struct mp_error *error) {
    int code = mp_checkpoint_check(folder, error);
    if (!code)
        code = remove_tree(partial, error);
    if (!code && mkdir(partial, 0777) != 0)
        code = mp_fail(error, MP_EIO, "checkpoint %s: %s", partial, strerror(errno));
    return code;
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
        code = save_system(trainer, partial, error);
    if (!code)
        code = save_description(trainer, partial, error);
    return code;
}

int mp_trainer_save(struct mp_trainer *trainer, const char *name, struct mp_error *error) {
    char folder[FOLDER_SIZE], partial[FOLDER_SIZE];
    struct mp_mark mark = mp_trainer_mark(trainer);
    bool first = trainer->comm->rank == 0;
    int code = resolve(name, folder, error);
    snprintf(partial, sizeof partial, "%.*s.partial", MP_TEXT_SIZE, folder);
    if (!code && first)
        code = begin(folder, partial, error);
    code = agree(trainer, code, error);
    if (!code)
        code = agree(trainer, save_parts(trainer, partial, error), error);
    if (code)
        return code;
    if (first)
        code = put_in_place(partial, folder, error);
    code = agree(trainer, code, error);
    trainer->iteration--; /* its span is part of the iteration just done */
    mp_trainer_spent(trainer, mark, MP_PHASE_CHECKPOINT, MP_NO_DIRECTION, -1, -1, -1);
    trainer->iteration++;
    return code;
}

/* ---- reading ---- */

struct description {
    int64_t iteration, updates;
    char system[64];
    int ranks;
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
        code = number(document, path, "ranks", &value, error);
    description->ranks = (int)value;
    const struct mp_yaml *system = code ? NULL : mp_yaml_get(document, "system");
    if (!code && (!system || system->kind != MP_YAML_SCALAR || value < 1 || value > INT32_MAX))
        code = mp_fail(error, MP_EFORMAT, "checkpoint %s: system or ranks missing", path);
    if (!code)
        snprintf(description->system, sizeof description->system, "%s", system->text);
    mp_yaml_destroy(document);
    return code;
}

/* Gives this rank the owners that `owner` says: slots follow, contents come later. */
static int adopt_owners(struct mp_trainer *trainer, const char *folder, const int32_t owner[],
                        struct mp_error *error) {
    struct mp_experts *experts = &trainer->model.experts;
    int all = experts->layers * experts->experts, owned = 0;
    for (int i = 0; i < all; i++)
        owned += owner[i] == experts->rank;
    if (owned > trainer->slots)
        return mp_fail(error, MP_EFORMAT,
                       "checkpoint %s: rank %d has %d experts there and room for %d here", folder,
                       experts->rank, owned, trainer->slots);
    for (int i = 0; i < all; i++)
        if (experts->slot[i] >= 0 && owner[i] != experts->rank)
            mp_experts_give(experts, i / experts->experts, i % experts->experts);
    for (int i = 0; i < all; i++) {
        if (owner[i] == experts->rank && experts->slot[i] < 0)
            mp_experts_take(experts, i / experts->experts, i % experts->experts);
        trainer->owner[i] = owner[i];
    }
    return MP_OK;
}

/* Notes rank `r` as the owner of what its shard has. */
static int note_owners(const struct mp_trainer *trainer, const char *path,
                       const struct mp_shard *shard, int r, int32_t owner[],
                       struct mp_error *error) {
    const struct mp_experts *experts = &trainer->model.experts;
    for (int i = 0; i < shard->entries; i++) {
        int layer = shard->layer_expert[2 * i], expert = shard->layer_expert[2 * i + 1];
        if (layer < 0 || layer >= experts->layers || expert < 0 || expert >= experts->experts ||
            shard->floats != experts->chunk)
            return mp_fail(error, MP_EFORMAT, "checkpoint %s: expert %d of layer %d, %u floats",
                           path, expert, layer, shard->floats);
        int32_t *place = &owner[layer * experts->experts + expert];
        if (*place >= 0)
            return mp_fail(error, MP_EFORMAT,
                           "checkpoint %s: expert %d of layer %d is in the shard of rank %d, too",
                           path, expert, layer, *place);
        *place = r;
    }
    return MP_OK;
}

/* owner [layers][experts] as it was when the checkpoint was written. */
static int read_owners(const struct mp_trainer *trainer, const char *folder, int ranks,
                       int32_t owner[], struct mp_error *error) {
    int experts = trainer->job.experts, all = trainer->job.layers * experts, code = MP_OK;
    char path[PATH_SIZE];
    for (int i = 0; i < all; i++)
        owner[i] = -1;
    for (int r = 0; !code && r < ranks; r++) {
        struct mp_shard shard;
        shard_path(path, folder, r);
        code = mp_shard_open(path, &shard, error);
        if (!code)
            code = note_owners(trainer, path, &shard, r, owner, error);
        mp_shard_close(&shard);
    }
    for (int i = 0; !code && i < all; i++)
        if (owner[i] < 0)
            code = mp_fail(error, MP_EFORMAT, "checkpoint %s: expert %d of layer %d is in no shard",
                           folder, i % experts, i / experts);
    return code;
}

/* Takes what this rank owns out of one shard. */
static void take_experts(struct mp_trainer *trainer, const struct mp_shard *shard) {
    struct mp_experts *experts = &trainer->model.experts;
    size_t bytes = experts->chunk * sizeof(float);
    for (int i = 0; i < shard->entries; i++) {
        const int32_t *index = &shard->layer_expert[2 * i];
        int slot = experts->slot[index[0] * experts->experts + index[1]];
        if (slot < 0)
            continue;
        size_t at = (size_t)slot * experts->chunk;
        float *to[] = {experts->parameter + at, experts->first + at, experts->second + at};
        const float *from = shard->memory + (size_t)i * 3 * experts->chunk;
        for (int b = 0; b < 3; b++)
            trainer->device->operations->copy_from_host(trainer->device, NULL, to[b],
                                                        from + (size_t)b * experts->chunk, bytes);
    }
}

/* All shards are read twice: nothing of the model changes before they are known to be whole. */
static int restore_experts(struct mp_trainer *trainer, const char *folder,
                           const struct description *description, struct mp_error *error) {
    size_t all = (size_t)trainer->job.layers * (size_t)trainer->job.experts;
    int32_t *owner = calloc(all, sizeof *owner);
    if (!owner)
        return mp_fail(error, MP_ENOMEM, "checkpoint: no memory for %zu experts", all);
    int code = read_owners(trainer, folder, description->ranks, owner, error);
    if (!code && description->ranks == trainer->comm->ranks &&
        strcmp(description->system, trainer->system->name) == 0)
        code = adopt_owners(trainer, folder, owner, error);
    free(owner);
    char path[PATH_SIZE];
    for (int r = 0; !code && r < description->ranks; r++) {
        struct mp_shard shard;
        shard_path(path, folder, r);
        code = mp_shard_open(path, &shard, error);
        if (!code)
            take_experts(trainer, &shard);
        mp_shard_close(&shard);
    }
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
    }
    mp_shard_close(&shard);
    return code;
}

static int restore_system(struct mp_trainer *trainer, const char *folder,
                          const struct description *description, struct mp_error *error) {
    if (!trainer->system->load || strcmp(description->system, trainer->system->name) != 0)
        return MP_OK;
    char path[PATH_SIZE];
    struct mp_shard shard;
    file_path(path, folder, "system.bin");
    int code = mp_shard_open(path, &shard, error);
    if (code)
        return code;
    size_t room = (size_t)shard.floats * sizeof(float);
    if (shard.entries != 1 || shard.layer_expert[0] < 0 || (size_t)shard.layer_expert[0] > room)
        code = mp_fail(error, MP_EFORMAT, "checkpoint %s: it holds no system state", path);
    if (!code)
        code = trainer->system->load(trainer->self, shard.memory, (size_t)shard.layer_expert[0],
                                     error);
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
    if (code)
        return code;
    trainer->iteration = description.iteration;
    trainer->updates = description.updates;
    return MP_OK;
}
