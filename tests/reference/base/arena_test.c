/* Tables that end together, and lists that grow. */
#include "reference/base/arena.h"

#include "tests/errors.h"

TEST(tables_are_zeroed_apart_and_aligned) {
    struct mp_arena memory = {0};
    int64_t *table[8];
    long double *wide;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            assert_non_null(MP_TAKE(&memory, table[i], i));
            for (int j = 0; j < i; j++) {
                assert_int_equal(table[i][j], 0);
                table[i][j] = 8 * i + j;
            }
        }
        assert_string_equal(mp_arena_text(&memory, "a text"), "a text");
        assert_non_null(MP_TAKE(&memory, wide, 3));
        assert_int_equal((uintptr_t)wide % _Alignof(max_align_t), 0);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < i; j++)
                assert_int_equal(table[i][j], 8 * i + j);
        assert_int_equal(mp_arena_check(&memory, NULL), MP_OK);
        mp_arena_release(&memory);
        assert_null(memory.block);
    }
}

TEST(what_there_is_no_room_for_is_remembered) {
    struct mp_arena memory = {0};
    int64_t *huge, *small;
    for (size_t count = SIZE_MAX; count > SIZE_MAX / 16; count /= 2) {
        assert_null(MP_TAKE(&memory, huge, count));
        assert_int_equal(memory.lacking, SIZE_MAX);
    }
    assert_non_null(MP_TAKE(&memory, small, 1));
    assert_sentence(mp_arena_check(&memory, &error), MP_ENOMEM,
                    "no memory for a table of 18446744073709551615 bytes");
    mp_arena_release(&memory);
    assert_int_equal(mp_arena_check(&memory, NULL), MP_OK);
    assert_null(MP_TAKE(&memory, huge, (size_t)1 << 50));
    assert_true(memory.lacking >= (size_t)8 << 50 && memory.lacking < (size_t)9 << 50);
    mp_arena_release(&memory);
}

TEST(lists_keep_their_items) {
    struct item {
        int32_t number;
        char letter;
    } *list = NULL;
    for (int count = 0; count < 1000; count++) {
        assert_true(MP_ROOM(list, count));
        list[count] = (struct item){count, (char)(count % 7)};
        for (int i = 0; i <= count; i += 1 + count / 16)
            assert_true(list[i].number == i && list[i].letter == i % 7);
    }
    struct item *before = list;
    assert_false(mp_list_room(&list, (size_t)1 << 62, sizeof *list));
    assert_ptr_equal(list, before);
    free(list);
}

TEST(what_was_made_is_zeroed_or_has_a_sentence) {
    struct mp_error error = {0};
    int64_t *table;
    assert_int_equal(MP_NEW(table, 100, &error), MP_OK);
    for (int i = 0; i < 100; i++)
        assert_true(table[i] == 0);
    int64_t *before = table;
    assert_int_equal(MP_NEW(table, (size_t)1 << 60, &error), MP_ENOMEM);
    assert_string_equal(error.text, "no memory for 1152921504606846976 x 8 bytes");
    assert_ptr_equal(table, before);
    free(table);
}

TEST(tables_reach_to_an_id_and_not_beyond_their_limit) {
    enum { LIMIT = 2000 };
    int *table = NULL;
    uint32_t count = 0;
    for (uint32_t id = 3; id < LIMIT; id += id / 2) {
        assert_int_equal(MP_REACH(table, count, id, LIMIT, NULL), MP_OK);
        assert_true(count > id && count <= LIMIT && table[count - 1] == 0);
        assert_true(table[id] == 0 && (id == 3 || table[3] == 1));
        table[id] = 1;
    }
    struct mp_error error = {0};
    int *before = table;
    count = 0;
    assert_int_equal(mp_table_reach(&table, &count, 1 << 30, UINT32_MAX, (size_t)1 << 31, &error),
                     MP_ENOMEM);
    assert_string_equal(error.text, "no memory");
    assert_ptr_equal(table, before);
    free(table);
}
