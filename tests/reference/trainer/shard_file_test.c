/* Binary files of a checkpoint: what is written comes back; nothing damaged does. */
#include "reference/trainer/checkpoint.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

enum {
    ENTRIES = 3,
    FLOATS = 5,
    BUFFERS = 3 * ENTRIES,
    BYTES = 16 + 8 * ENTRIES + 60 * ENTRIES + 4
};
static const int32_t index_of[2 * ENTRIES] = {0, 5, 2, 1, 7, 0};
static uint64_t random_state;
static float content[BUFFERS][FLOATS];

static int write_shard(const char *path, struct mp_error *error) {
    struct mp_shard_writer writer;
    int code = mp_shard_create(path, ENTRIES, index_of, FLOATS, &writer, error);
    for (int b = 0; !code && b < BUFFERS; b++) {
        for (int f = 0; f < FLOATS; f++)
            content[b][f] = (float)(test_random_double(&random_state) - 0.5);
        code = mp_shard_append(&writer, content[b], error);
    }
    return mp_shard_finish(&writer, code, error);
}

static void put_byte(int at, unsigned char byte) {
    FILE *file = fopen("broken", "rb+");
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, file), byte);
    assert_int_equal(fclose(file), 0);
}

/* The bytes of the shard that was written, and a zero byte behind them.  Free them. */
static unsigned char *shard_bytes(void) {
    size_t size;
    char *bytes = read_bytes("shard", &size);
    assert_int_equal(size, BYTES);
    return (unsigned char *)bytes;
}

TEST(shards_come_back) {
    struct mp_shard shard;
    assert_works(write_shard("shard", &error));
    assert_works(mp_shard_open("shard", &shard, &error));
    assert_numbers(shard.entries, ENTRIES, shard.floats, FLOATS);
    assert_memory_equal(shard.layer_expert, index_of, sizeof index_of);
    assert_memory_equal(shard.memory, content, sizeof content);
    for (int i = 0; i < 2; i++) { /* a closed one may be closed */
        mp_shard_close(&shard);
        assert_true(shard.entries == 0 && !shard.memory && !shard.layer_expert && !shard.file);
    }
}

/* A rank may own no expert at all. */
TEST(an_empty_shard_comes_back) {
    struct mp_shard_writer writer;
    struct mp_shard shard;
    assert_works(mp_shard_create("empty", 0, index_of, 1000, &writer, &error));
    assert_works(mp_shard_finish(&writer, MP_OK, &error));
    assert_works(mp_shard_open("empty", &shard, &error));
    assert_numbers(shard.entries, 0, shard.floats, 1000);
    mp_shard_close(&shard);
}

static void assert_refused(const char *what, int where) {
    struct mp_error error = {0};
    struct mp_shard shard;
    int code = mp_shard_open("broken", &shard, &error);
    if (code != MP_EFORMAT || !strstr(error.text, "checkpoint broken: "))
        fail_msg("%s %d: %s: %s", what, where, mp_code_name(code), error.text);
    mp_shard_close(&shard);
}

TEST(cut_off_shards_are_refused) {
    AUTO(allocated) unsigned char *byte = shard_bytes();
    for (int size = 0; size < BYTES; size++) {
        write_bytes("broken", byte, (size_t)size);
        assert_refused("cut off at", size);
    }
    write_bytes("broken", byte, BYTES + 1);
    assert_refused("one byte too many after", BYTES);
}

TEST(damaged_shards_are_refused) {
    AUTO(allocated) unsigned char *byte = shard_bytes();
    write_bytes("broken", byte, BYTES);
    for (int at = 0; at < BYTES; at++) {
        for (int bit = 0; bit < 8; bit++) {
            put_byte(at, byte[at] ^ (unsigned char)(1 << bit));
            assert_refused("flipped bit of byte", at);
        }
        put_byte(at, (unsigned char)~byte[at]);
        assert_refused("flipped byte", at);
        put_byte(at, byte[at]);
    }
}

/* Sizes whose product is beyond 64 bits must not pass for a small file's. */
TEST(huge_sizes_are_refused) {
    AUTO(allocated) unsigned char *byte = shard_bytes();
    memset(byte + 8, 0xff, 8);
    write_bytes("broken", byte, BYTES);
    assert_refused("largest sizes", 0);
}

TEST(a_missing_shard_is_named) {
    struct mp_shard shard;
    assert_sentence(mp_shard_open("nowhere", &shard, &error), MP_ENOTFOUND,
                    "checkpoint nowhere: No such file or directory");
    assert_sentence(write_shard("no/such/folder", &error), MP_EIO,
                    "can't write no/such/folder: No such file or directory");
}

/* A size limit at every byte stands for a disk that is full there. */
TEST(a_full_disk_is_reported) {
    for (int size = 0; size <= BYTES; size++) {
        limit_files((rlim_t)size);
        assert_sentence(write_shard("full", &error), size < BYTES ? MP_ENOSPACE : MP_OK,
                        size < BYTES ? "can't write full: File too large" : "");
        limit_files(RLIM_INFINITY);
    }
    if (access("/dev/full", W_OK) == 0)
        assert_sentence(write_shard("/dev/full", &error), MP_ENOSPACE,
                        "can't write /dev/full: No space left on device");
}

TEST_SEED(random_state);
TEST_GROUP(enter_folder, leave_folder);
