#include "reference/trainer/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference/base/characters.h"
#include "reference/base/whole_file.h"
#include "reference/base/yaml.h"
#include "reference/trainer/internal.h"

/* A folder is a job's text, perhaps with ".partial" behind it; a file's name follows. */
enum { FORMAT = 2, FOLDER_SIZE = MP_TEXT_SIZE + 16, PATH_SIZE = FOLDER_SIZE + 32 };

static const char DESCRIPTION[] = "checkpoint.yaml";

static void file_path(char path[PATH_SIZE], const char *folder, const char *name) {
    snprintf(path, PATH_SIZE, "%.*s/%.30s", FOLDER_SIZE - 1, folder, name);
}

enum { NAME_SIZE = 32 };
static const char *shard_name(char name[NAME_SIZE], int rank) {
    snprintf(name, NAME_SIZE, "experts-%04d.bin", rank);
    return name;
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
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int code = tree ? MP_OK : mp_fail(error, MP_EIO, "%s: %s", folder, strerror(errno));
    FTSENT *entry;
    while (!code && (entry = fts_read(tree))) {
        if (entry->fts_info != FTS_D && remove(entry->fts_accpath) != 0 && errno != ENOENT)
            code = mp_fail(error, MP_EIO, "%s: %s", entry->fts_path, strerror(errno));
    }
    if (tree)
        fts_close(tree);
    return code;
}

/* ---- writing ---- */

/* Writes a file: `floats` of each buffer [entries][3], which the device has, or the host. */
static int save_shard(const struct mp_trainer *trainer, const char *folder, const char *name,
                      int entries, const int32_t index[], size_t floats, float *const buffer[],
                      bool on_device, struct mp_error *error) {
    struct mp_shard_writer writer;
    char path[PATH_SIZE];
    file_path(path, folder, name);
    MP_AUTO(memory) float *host = NULL;
    MP_TRY(MP_NEW(host, floats, error));
    int code = mp_shard_create(path, entries, index, (uint32_t)floats, &writer, error);
    for (int b = 0; !code && b < 3 * entries; b++) {
        if (on_device)
            trainer->device->operations->copy_to_host(trainer->device, trainer->model.stream, host,
                                                      buffer[b], floats * sizeof *host);
        code = mp_shard_append(&writer, on_device ? host : buffer[b], error);
    }
    return mp_shard_finish(&writer, code, error);
}

/* What this rank owns of the experts, or its slices of them. */
static int save_experts(const struct mp_trainer *trainer, const char *folder,
                        struct mp_error *error) {
    const struct mp_experts *experts = &trainer->model.experts;
    int all = experts->layers * experts->experts, saved = 0;
    MP_AUTO(arena) struct mp_arena memory = {0};
    int32_t *index = mp_arena_take(&memory, (size_t)all * 2, sizeof *index);
    float **buffer = mp_arena_take(&memory, (size_t)all * 3, sizeof *buffer);
    char name[NAME_SIZE];
    MP_TRY(mp_arena_check(&memory, error));
    for (int i = 0; i < all; i++) {
        int layer = i / experts->experts, expert = i % experts->experts;
        if (!experts->slice && trainer->planner.home[layer].owner[expert] != trainer->comm->rank)
            continue;
        if (!mp_experts_state(experts, layer, expert, &buffer[3 * saved]))
            continue;
        index[2 * saved] = layer;
        index[2 * saved++ + 1] = expert;
    }
    return save_shard(trainer, folder, shard_name(name, trainer->comm->rank), saved, index,
                      experts->kept, buffer, !experts->layout.host, error);
}

static int save_dense(const struct mp_trainer *trainer, const char *folder,
                      struct mp_error *error) {
    const struct mp_dense *dense = &trainer->model.dense;
    const int32_t index[2] = {-1, -1};
    float *const buffer[] = {dense->parameter, dense->first, dense->second};
    return save_shard(trainer, folder, "dense.bin", 1, index, dense->count, buffer, true, error);
}

/* Copies a state into `memory` of `size` bytes, if that is enough; the bytes that it takes. */
typedef size_t copy_state(const struct mp_trainer *trainer, void *memory, size_t size);

/* A file of one entry with the bytes of a state in it. */
static int save_bytes(const struct mp_trainer *trainer, const char *folder, const char *name,
                      copy_state *copy, struct mp_error *error) {
    size_t bytes = copy(trainer, NULL, 0), floats = bytes / sizeof(float) + 1;
    MP_AUTO(memory) float *memory = NULL;
    if (bytes > INT32_MAX)
        return mp_fail(error, MP_ELIMIT, "checkpoint: %zu bytes of state; %d are possible", bytes,
                       INT32_MAX);
    MP_TRY(MP_NEW(memory, floats, error));
    copy(trainer, memory, bytes);
    const int32_t index[2] = {(int32_t)bytes, -1};
    float *const buffer[] = {memory, memory, memory};
    return save_shard(trainer, folder, name, 1, index, floats, buffer, false, error);
}

static size_t copy_system(const struct mp_trainer *trainer, void *memory, size_t size) {
    return trainer->planner.system->save(trainer->planner.self, memory, size);
}

/* Homes as bytes: per layer the owners, then the words of holders.  Copies them to `bytes`, or from
 * there, if it is not NULL; their number. */
static size_t carry_homes(struct mp_placement home[], int layers, char *bytes, bool from_there) {
    size_t at = 0;
    for (int l = 0; l < layers; l++) {
        size_t experts = (size_t)home[l].experts, words = experts * (size_t)home[l].words;
        void *const part[] = {home[l].owner, home[l].holder};
        const size_t size[] = {experts * sizeof *home[l].owner, words * sizeof *home[l].holder};
        for (int i = 0; i < 2; at += size[i++])
            if (bytes)
                memcpy(from_there ? part[i] : bytes + at, from_there ? bytes + at : part[i],
                       size[i]);
    }
    return at;
}

static size_t copy_homes(const struct mp_trainer *trainer, void *memory, size_t size) {
    (void)size;
    return carry_homes(trainer->planner.home, trainer->job.layers, memory, false);
}

/* The numbers of the description; the first ones, SAME of them, are to be what they are here. */
enum {
    VERSION,
    LAYERS,
    WIDTH,
    HEADS,
    EXPERTS,
    EXPERT_WIDTH,
    SEQUENCE,
    SAME,
    ITERATION = SAME,
    UPDATES,
    SEED,
    RANKS,
    SLICES,
    SHARDS,
    NUMBERS
};
static const char *const keys[NUMBERS] = {
    "format",    "layers",  "width", "heads", "experts", "expert-width", "sequence",
    "iteration", "updates", "seed",  "ranks", "slices",  "expert-shards"};

struct description {
    int64_t number[NUMBERS]; /* SLICES: that an expert is kept in; 0: whole */
    bool same_system;        /* with the same options and shards */
};

static struct description describe(const struct mp_trainer *trainer) {
    const struct mp_job *job = &trainer->job;
    const struct mp_experts *experts = &trainer->model.experts;
    return (struct description){.number = {[VERSION] = FORMAT,
                                           [LAYERS] = job->layers,
                                           [WIDTH] = job->width,
                                           [HEADS] = job->heads,
                                           [EXPERTS] = job->experts,
                                           [EXPERT_WIDTH] = job->expert_width,
                                           [SEQUENCE] = mp_job_positions(job),
                                           [ITERATION] = trainer->iteration,
                                           [UPDATES] = trainer->updates,
                                           [SEED] = job->seed,
                                           [RANKS] = trainer->comm->ranks,
                                           [SLICES] = experts->slice ? experts->keepers : 0,
                                           [SHARDS] = mp_job_shards(job)}};
}

static int save_description(const struct mp_trainer *trainer, const char *folder,
                            struct mp_error *error) {
    const struct description here = describe(trainer);
    char path[PATH_SIZE];
    struct mp_whole_file file;
    file_path(path, folder, DESCRIPTION);
    MP_TRY(mp_whole_file_open(&file, path, error));
    for (int i = 0; i < NUMBERS; i++)
        fprintf(file.stream, "%s: %lld\n", keys[i], (long long)here.number[i]);
    fprintf(file.stream, "system: %s\noptions: ", trainer->planner.system->name);
    int code = mp_yaml_write_text(file.stream, trainer->options, error);
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
    char behind[PATH_MAX];
    if (!realpath(folder, behind))
        return mp_fail(error, MP_EINVAL, "checkpoint %s: it leads nowhere: %s", name,
                       strerror(errno));
    strcpy(folder, behind); /* no longer than MP_TEXT_SIZE */
    return MP_OK;
}

int mp_checkpoint_check(const char *name, struct mp_error *error) {
    struct stat status;
    char folder[FOLDER_SIZE];
    MP_TRY(resolve(name, folder, error));
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
        MP_TRY(remove_tree(old, error));
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
MP_END(partial, int, release_partial(it))

/* What a killed run left is removed; what another one is writing is not. */
static int begin(const char *folder, const char *partial, int *held, struct mp_error *error) {
    MP_TRY(mp_checkpoint_check(folder, error));
    MP_TRY(hold_partial(partial, held, error));
    MP_TRY(remove_tree(partial, error));
    release_partial(held);
    if (mkdir(partial, 0777) != 0)
        return mp_fail(error, MP_EIO, "checkpoint %s: %s", partial, strerror(errno));
    return hold_partial(partial, held, error);
}

/* Every rank's shard, and on rank 0 what is the same on all. */
static int save_parts(const struct mp_trainer *trainer, const char *partial,
                      struct mp_error *error) {
    MP_TRY(save_experts(trainer, partial, error));
    if (trainer->comm->rank != 0)
        return MP_OK;
    MP_TRY(save_dense(trainer, partial, error));
    MP_TRY(save_bytes(trainer, partial, "homes.bin", copy_homes, error));
    if (trainer->planner.system->save)
        MP_TRY(save_bytes(trainer, partial, "system.bin", copy_system, error));
    return save_description(trainer, partial, error);
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
    MP_TRY(agree(trainer, code, error));
    MP_TRY(agree(trainer, save_parts(trainer, partial, error), error));
    return agree(trainer, first ? put_in_place(partial, folder, error) : MP_OK, error);
}

int mp_trainer_save(struct mp_trainer *trainer, const char *name, struct mp_error *error) {
    MP_AUTO(partial) int held = -1;
    trainer->iteration--; /* its spans are part of the iteration just done */
    bool moving = trainer->schedule.moving;
    int code = mp_schedule_settle_moves(&trainer->schedule, error);
    trainer->iteration++;
    if (code)
        return code;
    if (moving) /* no update comes between this and the next forward */
        mp_experts_refresh_all(&trainer->model.experts, trainer->model.stream);
    struct mp_mark mark = mp_spans_mark(&trainer->spans, MP_PHASE_CHECKPOINT);
    MP_TRY(save(trainer, name, &held, error));
    trainer->iteration--;
    mp_spans_spent(&trainer->spans, mark, MP_PHASE_CHECKPOINT, MP_NO_DIRECTION, -1, -1, -1);
    trainer->iteration++;
    return MP_OK;
}

/* ---- reading ---- */

static int number(const struct mp_yaml *document, const char *path, const char *key, int64_t *value,
                  struct mp_error *error) {
    const struct mp_yaml *node = mp_yaml_get(document, key);
    if (!node || node->kind != MP_YAML_SCALAR || !mp_whole_number(node->text, 0, INT64_MAX, value))
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: %s should be a number of at least 0",
                       path, key);
    return MP_OK;
}

/* Takes the description and compares the model's shape with the job's. */
static int take_description(const struct mp_trainer *trainer, const char *path,
                            const struct mp_yaml *document, struct description *there,
                            struct mp_error *error) {
    const struct description here = describe(trainer);
    for (int i = 0; i < NUMBERS; i++) {
        if (i == SHARDS && !mp_yaml_get(document, keys[i]))
            there->number[i] = 1; /* as it was before experts could be cut */
        else
            MP_TRY(number(document, path, keys[i], &there->number[i], error));
        bool longer = mp_job_serves(&trainer->job) && there->number[i] > here.number[i];
        if (i < SAME && there->number[i] != here.number[i] && !(i == SEQUENCE && longer))
            return mp_fail(error, i == VERSION ? MP_EVERSION : MP_EINVAL,
                           "checkpoint %s: %s is %lld there and %lld here", path, keys[i],
                           (long long)there->number[i], (long long)here.number[i]);
    }
    int64_t ranks = there->number[RANKS], slices = there->number[SLICES];
    if (slices > ranks)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: %lld slices by %lld ranks", path,
                       (long long)slices, (long long)ranks);
    if (there->number[SHARDS] < 1 || here.number[EXPERT_WIDTH] % there->number[SHARDS])
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: experts of width %lld in %lld shards",
                       path, (long long)here.number[EXPERT_WIDTH],
                       (long long)there->number[SHARDS]);
    const struct mp_yaml *system = mp_yaml_get(document, "system");
    const struct mp_yaml *options = mp_yaml_get(document, "options");
    if (!system || system->kind != MP_YAML_SCALAR || !options || options->kind != MP_YAML_SCALAR ||
        ranks < 1 || ranks > INT32_MAX)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: system, options or ranks missing", path);
    there->same_system = there->number[SHARDS] == here.number[SHARDS] &&
                         strcmp(system->text, trainer->planner.system->name) == 0 &&
                         strcmp(options->text, trainer->options) == 0;
    return MP_OK;
}

static int read_description(const struct mp_trainer *trainer, const char *folder,
                            struct description *there, struct mp_error *error) {
    char path[PATH_SIZE];
    file_path(path, folder, DESCRIPTION);
    MP_AUTO(yaml) struct mp_yaml *document = NULL;
    MP_TRY(mp_yaml_load(path, &document, error));
    return take_description(trainer, path, document, there, error);
}

/* Reads a file of bytes; they are the shard's memory until mp_shard_close, in any case. */
static int open_bytes(const char *folder, const char *name, struct mp_shard *shard, size_t *bytes,
                      struct mp_error *error) {
    char path[PATH_SIZE];
    file_path(path, folder, name);
    MP_TRY(mp_shard_open(path, shard, error));
    size_t room = (size_t)shard->floats * sizeof(float);
    if (shard->entries != 1 || shard->layer_expert[0] < 0 || (size_t)shard->layer_expert[0] > room)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: it holds no state", path);
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
    MP_AUTO(shard) struct mp_shard shard = {0};
    size_t bytes = 0, wanted = copy_homes(trainer, NULL, 0);
    MP_TRY(open_bytes(folder, "homes.bin", &shard, &bytes, error));
    if (bytes != wanted)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: homes.bin has %zu bytes, %zu are right",
                       folder, bytes, wanted);
    carry_homes(trainer->planner.change.next, trainer->job.layers, (char *)shard.memory, true);
    const struct mp_rehome change = {.next = trainer->planner.change.next, .changed = true};
    MP_TRY(mp_rehome_check(trainer->planner.home, &change, trainer->job.layers,
                           trainer->planner.policy.optimizer, trainer->planner.homes_limit, error));
    adopt_homes(trainer);
    return MP_OK;
}

/* Experts of a layer as a checkpoint has them, each whole or a shard of one, and floats of one. */
static int experts_of(const struct description *description) {
    return (int)(description->number[EXPERTS] * description->number[SHARDS]);
}
static size_t chunk_of(const struct mp_trainer *trainer, const struct description *description) {
    size_t whole = trainer->model.experts.chunk * (size_t)mp_job_shards(&trainer->job);
    return whole / (size_t)description->number[SHARDS];
}

/* Counts what a file has: times[layer][expert]. */
static int count_entries(const struct mp_trainer *trainer, const char *path,
                         const struct mp_shard *shard, const struct description *description,
                         int times[], struct mp_error *error) {
    size_t slices = (size_t)description->number[SLICES], chunk = chunk_of(trainer, description);
    size_t floats = slices ? (chunk + slices - 1) / slices : chunk;
    int experts = experts_of(description);
    for (int i = 0; i < shard->entries; i++) {
        int layer = shard->layer_expert[2 * i], expert = shard->layer_expert[2 * i + 1];
        if (layer < 0 || layer >= trainer->job.layers || expert < 0 || expert >= experts ||
            shard->floats != floats)
            return mp_fail(error, MP_EFORMAT, "checkpoint %s: expert %d of layer %d, %u floats",
                           path, expert, layer, shard->floats);
        times[layer * experts + expert]++;
    }
    return MP_OK;
}

/* What a file has of an expert, or of a shard of one: three times `floats`, of which the first is
 * number `first` of its own. */
struct stored {
    const float *from;
    size_t first, floats;
};

/* Takes `count` floats that lie together, from number `there` on in what is stored, into this
 * rank's expert from number `here` on, as far as the file and this rank have them. */
static void take_floats(struct mp_trainer *trainer, int layer, int expert, int64_t here,
                        const struct stored *stored, int64_t there, int64_t count) {
    struct mp_experts *experts = &trainer->model.experts;
    float *to[3];
    if (!mp_experts_state(experts, layer, expert, to))
        return;
    int64_t own =
        (int64_t)experts->piece[layer * experts->experts + expert] * (int64_t)experts->kept;
    int64_t first = (int64_t)stored->first, floats = (int64_t)stored->floats, begin = 0;
    int64_t own_end = own + (int64_t)experts->kept - here, end = first + floats - there;
    begin = first - there > begin ? first - there : begin;
    begin = own - here > begin ? own - here : begin;
    end = own_end < end ? own_end : end;
    end = count < end ? count : end;
    for (int b = 0; begin < end && b < 3 && to[b]; b++)
        mp_experts_write(experts, to[b] + (here + begin - own),
                         stored->from + b * floats + (there + begin - first),
                         (size_t)(end - begin));
}

/* Takes what this rank keeps of the hidden elements that two shards of an expert share: columns of
 * the first matrix, rows of the second.  Of both: number, and elements of one. */
static void take_shard(struct mp_trainer *trainer, int layer, int expert, const int64_t here[2],
                       const struct stored *stored, const int64_t there[2]) {
    int64_t d = trainer->job.width, first = here[0] * here[1], other = there[0] * there[1];
    int64_t begin = first > other ? first : other, end = first + here[1];
    end = other + there[1] < end ? other + there[1] : end;
    if (begin >= end)
        return;
    int64_t count = end - begin;
    bool same = count == here[1] && count == there[1];
    int64_t rows = same ? 1 : d; /* stretches of the first matrix */
    for (int64_t row = 0; row < rows; row++)
        take_floats(trainer, layer, expert, row * here[1] + begin - first, stored,
                    row * there[1] + begin - other, same ? d * count : count);
    take_floats(trainer, layer, expert, d * (here[1] + begin - first), stored,
                d * (there[1] + begin - other), d * count);
}

/* Slices of an expert lie in ascending order of ranks: `times` says how many came before. */
static void take_experts(struct mp_trainer *trainer, const struct mp_shard *shard,
                         const struct description *description, const int times[]) {
    const struct mp_job *job = &trainer->job;
    int shards = mp_job_shards(job), all = experts_of(description);
    for (int i = 0; i < shard->entries; i++) {
        int layer = shard->layer_expert[2 * i], expert = shard->layer_expert[2 * i + 1];
        size_t piece = (size_t)times[layer * all + expert];
        const struct stored stored = {shard->memory + (size_t)i * 3 * shard->floats,
                                      piece * shard->floats, shard->floats};
        const int64_t there[2] = {expert / job->experts,
                                  job->expert_width / description->number[SHARDS]};
        for (int s = 0; s < shards; s++)
            take_shard(trainer, layer, s * job->experts + expert % job->experts,
                       (const int64_t[]){s, job->expert_width / shards}, &stored, there);
    }
}

/* Reads all shards and counts what they have, times [layers][experts], or also takes it. */
static int read_shards(struct mp_trainer *trainer, const char *folder,
                       const struct description *description, bool take, int *times,
                       struct mp_error *error) {
    size_t all = (size_t)trainer->job.layers * (size_t)experts_of(description);
    char path[PATH_SIZE], name[NAME_SIZE];
    memset(times, 0, all * sizeof *times);
    for (int r = 0; r < description->number[RANKS]; r++) {
        MP_AUTO(shard) struct mp_shard shard = {0};
        file_path(path, folder, shard_name(name, r));
        MP_TRY(mp_shard_open(path, &shard, error));
        if (take)
            take_experts(trainer, &shard, description, times);
        MP_TRY(count_entries(trainer, path, &shard, description, times, error));
    }
    return MP_OK;
}

/* Whether all shards are there and together have every expert once, or every slice of it. */
static int check_shards(struct mp_trainer *trainer, const char *folder,
                        const struct description *description, int *times, struct mp_error *error) {
    int experts = experts_of(description), all = trainer->job.layers * experts;
    int wanted = description->number[SLICES] ? (int)description->number[SLICES] : 1;
    MP_TRY(read_shards(trainer, folder, description, false, times, error));
    for (int i = 0; i < all; i++)
        if (times[i] != wanted)
            return mp_fail(error, MP_EFORMAT,
                           "checkpoint %s: expert %d of layer %d is there %d times, not %d", folder,
                           i % experts, i / experts, times[i], wanted);
    return MP_OK;
}

/* All shards are read twice: nothing of the model changes before they are known to be whole. */
static int restore_experts(struct mp_trainer *trainer, const char *folder,
                           const struct description *description, struct mp_error *error) {
    int all = trainer->job.layers * experts_of(description);
    MP_AUTO(memory) int *times = NULL;
    MP_TRY(MP_NEW(times, all, error));
    MP_TRY(check_shards(trainer, folder, description, times, error));
    if (description->number[RANKS] == trainer->comm->ranks && description->same_system)
        MP_TRY(restore_homes(trainer, folder, error));
    MP_TRY(read_shards(trainer, folder, description, true, times, error));
    mp_experts_refresh_all(&trainer->model.experts, NULL);
    return MP_OK;
}

static int restore_dense(struct mp_trainer *trainer, const char *folder, struct mp_error *error) {
    struct mp_dense *dense = &trainer->model.dense;
    char path[PATH_SIZE];
    MP_AUTO(shard) struct mp_shard shard = {0};
    file_path(path, folder, "dense.bin");
    MP_TRY(mp_shard_open(path, &shard, error));
    /* A checkpoint may have more positions than are served: the table of tokens comes behind. */
    size_t tail = dense->count - mp_dense_find(dense, "token_table")->offset;
    size_t head = dense->count - tail, there = shard.floats;
    bool fits = trainer->model.shape.serves ? there >= dense->count : there == dense->count;
    if (shard.entries != 1 || !fits)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: %u parameters, the model has %zu", path,
                       shard.floats, dense->count);
    float *to[] = {dense->parameter, dense->first, dense->second};
    for (size_t b = 0; b < 3 && to[b]; b++) {
        const float *from = shard.memory + b * there;
        trainer->device->operations->copy_from_host(trainer->device, NULL, to[b], from,
                                                    head * sizeof *from);
        trainer->device->operations->copy_from_host(trainer->device, NULL, to[b] + head,
                                                    from + there - tail, tail * sizeof *from);
    }
    mp_dense_refresh(dense, NULL);
    return MP_OK;
}

static int restore_system(struct mp_trainer *trainer, const char *folder,
                          const struct description *description, struct mp_error *error) {
    if (!trainer->planner.system->load || !description->same_system)
        return MP_OK;
    MP_AUTO(shard) struct mp_shard shard = {0};
    size_t bytes = 0;
    MP_TRY(open_bytes(folder, "system.bin", &shard, &bytes, error));
    return trainer->planner.system->load(trainer->planner.self, shard.memory, bytes, error);
}

static int restore_parts(struct mp_trainer *trainer, const char *folder,
                         struct description *description, struct mp_error *error) {
    MP_TRY(read_description(trainer, folder, description, error));
    MP_TRY(restore_experts(trainer, folder, description, error));
    MP_TRY(restore_dense(trainer, folder, error));
    return restore_system(trainer, folder, description, error);
}

int mp_trainer_restore(struct mp_trainer *trainer, const char *folder, struct mp_error *error) {
    struct description description = {0};
    MP_TRY(agree(trainer, restore_parts(trainer, folder, &description, error), error));
    MP_TRY(mp_schedule_gather_homes(&trainer->schedule, error));
    if (mp_job_serves(&trainer->job)) /* its steps are counted from 0 */
        return MP_OK;
    trainer->iteration = description.number[ITERATION];
    trainer->updates = description.number[UPDATES];
    return MP_OK;
}
