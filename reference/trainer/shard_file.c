/* The binary files of a checkpoint. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/check.h"
#include "reference/trainer/checkpoint.h"

static const char MAGIC[8] = "mpckpt01";
enum { HEADER_BYTES = 16 };

static int put(struct mp_shard_writer *writer, const void *memory, size_t bytes,
               struct mp_error *error) {
    writer->check = spool_crc32_on(writer->check, memory, bytes);
    return fwrite(memory, 1, bytes, writer->file.stream) == bytes
               ? MP_OK
               : mp_whole_file_fail(&writer->file, error);
}

int mp_shard_create(const char *path, int entries, const int32_t *layer_expert, uint32_t floats,
                    struct mp_shard_writer *writer, struct mp_error *error) {
    const uint32_t sizes[2] = {(uint32_t)entries, floats};
    *writer = (struct mp_shard_writer){.floats = floats};
    MP_TRY(mp_whole_file_open(&writer->file, path, error));
    MP_TRY(put(writer, MAGIC, sizeof MAGIC, error));
    MP_TRY(put(writer, sizes, sizeof sizes, error));
    return put(writer, layer_expert, (size_t)entries * 2 * sizeof *layer_expert, error);
}

int mp_shard_append(struct mp_shard_writer *writer, const float *buffer, struct mp_error *error) {
    return put(writer, buffer, writer->floats * sizeof *buffer, error);
}

int mp_shard_finish(struct mp_shard_writer *writer, int code, struct mp_error *error) {
    const uint32_t check = writer->check;
    if (!code)
        code = put(writer, &check, sizeof check, error);
    return mp_whole_file_close(&writer->file, code, error);
}

static int read_file(FILE *file, const char *path, struct mp_shard *shard, size_t *size,
                     struct mp_error *error) {
    long length = -1;
    if (fseek(file, 0, SEEK_END) || (length = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
        return mp_fail_errno(error, "checkpoint %s", path);
    *size = (size_t)length;
    MP_TRY(mp_make(&shard->file, *size + 1, 1, error));
    if (fread(shard->file, 1, *size, file) != *size)
        return mp_fail(error, MP_EIO, "checkpoint %s: could not be read whole", path);
    return MP_OK;
}

int mp_shard_open(const char *path, struct mp_shard *shard, struct mp_error *error) {
    *shard = (struct mp_shard){0};
    size_t size = 0;
    MP_AUTO(file) FILE *file = fopen(path, "rb");
    if (!file)
        return mp_fail_errno(error, "checkpoint %s", path);
    MP_TRY(read_file(file, path, shard, &size, error));
    unsigned char *memory = shard->file;
    uint32_t sizes[2] = {0}, check = 0;
    bool magic = size >= HEADER_BYTES && memcmp(memory, MAGIC, sizeof MAGIC) == 0;
    if (magic)
        memcpy(sizes, memory + sizeof MAGIC, sizeof sizes);
    unsigned __int128 wanted =
        HEADER_BYTES + sizeof check +
        (unsigned __int128)sizes[0] * (2 * sizeof(int32_t) + 3 * sizeof(float) * sizes[1]);
    if (!magic || wanted != size)
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: %s", path,
                       magic ? "it is cut off or has bytes too many" : "it is no checkpoint file");
    memcpy(&check, memory + size - sizeof check, sizeof check);
    if (check != spool_crc32(memory, size - sizeof check))
        return mp_fail(error, MP_EFORMAT, "checkpoint %s: its checksum is wrong; it is damaged",
                       path);
    shard->entries = (int)sizes[0];
    shard->floats = sizes[1];
    shard->layer_expert = (int32_t *)(void *)(memory + HEADER_BYTES);
    shard->memory = (float *)(void *)(memory + HEADER_BYTES + (size_t)sizes[0] * 8);
    return MP_OK;
}

void mp_shard_close(struct mp_shard *shard) {
    if (!shard)
        return;
    free(shard->file);
    *shard = (struct mp_shard){0};
}
