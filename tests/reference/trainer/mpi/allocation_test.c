/* A step allocates nothing: every allocation of the process during steps 10 to 20 is seen and laid
 * at the door of the object that asked for it.  Ours must be none but memory for rows, and that
 * only where a layer had more of them than there was room for; those of libraries (oneDNN packs
 * matrices into memory of its own, MPI sends eagerly) are reported.
 *
 * The program's own malloc and its kin take the place of the C library's; under the address
 * sanitizer, whose malloc it is then, its hooks do the same. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "profiler/record/record.h"
#include "tests/reference/plan/wanderer.h"
#include "tests/reference/trainer/mpi/trainers.h"
#include "tests/reference/trainer/random_loads.h"

enum { FIRST = 10, LAST = FIRST + TEST_ROUNDS(10), FRAMES = 48, SHOWN = 4, TEXT = 20000 };
static atomic_bool counting;
static atomic_int ours, others;
static void *shown[SHOWN][FRAMES];
static int shown_frames[SHOWN];
static __thread bool inside; /* backtrace may allocate itself */

/* The program and what merely passes its calls on: the C library, cmocka, sanitizers. */
static bool is_ours(const char *object) {
    static const char *const passing[] = {"test_reference_trainer",
                                          "/libc.so",
                                          "/libc-",
                                          "/libm.so",
                                          "/libcmocka",
                                          "/libasan",
                                          "/libubsan",
                                          "/ld-linux",
                                          "/libpthread"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (strstr(object, passing[i]))
            return true;
    return false;
}

static void note_allocation(void) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed) || inside)
        return;
    inside = true;
    void *frame[FRAMES];
    int frames = backtrace(frame, FRAMES);
    bool all_ours = true;
    for (int i = 0; i < frames; i++) {
        Dl_info info;
        if (dladdr(frame[i], &info) && info.dli_fname && !is_ours(info.dli_fname))
            all_ours = false;
    }
    if (!all_ours) {
        atomic_fetch_add(&others, 1);
    } else {
        int count = atomic_fetch_add(&ours, 1);
        if (count < SHOWN) {
            memcpy(shown[count], frame, sizeof frame);
            shown_frames[count] = frames;
        }
    }
    inside = false;
}

#if TEST_SANITIZED
/* Of the sanitizers' interface, whose header is not always installed. */
extern int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *,
                                                                       size_t),
                                                     void (*on_free)(const volatile void *));

static void count_malloc(UNUSED const volatile void *memory, UNUSED size_t size) {
    note_allocation();
}

static void ignore_free(UNUSED const volatile void *memory) {}

static void watch(void) {
    __sanitizer_install_malloc_and_free_hooks(count_malloc, ignore_free);
}
#else
/* The C library's own names for its allocator. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
    note_allocation();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    note_allocation();
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    note_allocation();
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    note_allocation();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    note_allocation();
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

static void watch(void) {}
#endif

/* The counter itself: an allocation of this file is one of ours. */
TEST(the_counter_counts) {
    void *volatile memory[5] = {NULL};
    void *aligned = NULL;
    atomic_store(&counting, true);
    memory[0] = malloc(10);
    memory[1] = calloc(10, 10);
    memory[0] = realloc(memory[0], 100000);
    memory[2] = aligned_alloc(64, 128);
    int code = posix_memalign(&aligned, 64, 100);
    memory[3] = aligned;
    memory[4] = strdup("by way of the C library");
    atomic_store(&counting, false);
    for (int i = 0; i < 5; i++)
        free(memory[i]);
    assert_int_equal(code, 0);
    assert_true(atomic_load(&ours) >= 6);
    assert_int_equal(atomic_load(&others), 0);
}

static unsigned char byte[TEXT];
static const struct mp_text text = {.byte = byte, .size = TEXT, .training = TEXT};

struct recording {
    struct mp_recorder *recorder;
    struct mp_record_thread *compute, *communication;
    char folder[64], path[96];
};

static void record(struct mp_trainer *trainer, struct recording *recording) {
    strcpy(recording->folder, "/tmp/moeperf-test-XXXXXX");
    assert_non_null(mkdtemp(recording->folder));
    snprintf(recording->path, sizeof recording->path, "%s/spool", recording->folder);
    struct mp_recorder_config config = {
        .path = recording->path, .rank = world->rank, .ranks = world->ranks};
    must(mp_recorder_create(&config, &recording->recorder, &error));
    must(mp_recorder_thread(recording->recorder, "compute", &recording->compute, &error));
    must(mp_recorder_thread(recording->recorder, "comm", &recording->communication, &error));
    mp_trainer_record(trainer, recording->compute, recording->communication);
}

/* Memory for rows in its pieces, by layer and, behind the layers, the workspace. */
enum { MOST_PIECES = 64 };
struct piece {
    const struct mp_rows *rows;
    int layer;
    bool sent, transit;
    bool distinct; /* as many as tokens' rows and their ways need: not counted again here */
    int allocations;
    int64_t room;
};

static int list_pieces(const struct mp_trainer *trainer, struct piece piece[MOST_PIECES]) {
    const struct mp_model *model = &trainer->model;
    int layers = model->shape.layers, count = 0;
    assert_true(4 * layers + 9 <= MOST_PIECES);
    for (int l = 0; l < layers; l++) {
        const struct mp_block_state *block = &model->state[l];
        int whose = model->shape.serves ? layers : l; /* serving layers share the first one's */
        piece[count++] = (struct piece){&block->distinct.rows, .layer = l, .distinct = true};
        if (l > 0 && model->shape.serves)
            continue;
        piece[count++] =
            (struct piece){&block->sent, .layer = whose, .sent = !block->routing.deduplicated};
        piece[count++] = (struct piece){&block->index, .layer = whose};
        piece[count++] = (struct piece){&block->worked, .layer = whose};
    }
    piece[count++] = (struct piece){&model->sent, .layer = layers, .sent = true};
    piece[count++] = (struct piece){&model->worked, .layer = layers};
    for (int i = 0; trainer->paths.path && i < 2; i++)
        piece[count++] =
            (struct piece){&trainer->paths.transit[i], .layer = layers, .transit = true};
    for (int i = 0; i < 2; i++) {
        piece[count++] =
            (struct piece){&trainer->distinct.beside[i], .layer = layers, .distinct = true};
        piece[count++] =
            (struct piece){&trainer->distinct.host_beside[i], .layer = layers, .distinct = true};
    }
    piece[count++] =
        (struct piece){&trainer->distinct.host_fans, .layer = layers, .distinct = true};
    for (int i = 0; i < count; i++) {
        piece[i].allocations = piece[i].rows->allocations;
        piece[i].room = piece[i].rows->room;
    }
    return count;
}

/* Allocations of memory for rows since the pieces were listed.  Each has grown once at most but the
 * workspace, which may once a layer, and because there were more rows than room. */
static int count_growth(const struct mp_trainer *trainer, const struct piece piece[], int pieces) {
    const struct mp_model *model = &trainer->model;
    int growth = 0, layers = model->shape.layers;
    for (int i = 0; i < pieces; i++) {
        const struct piece *before = &piece[i];
        int more = before->rows->allocations - before->allocations, rows = 0;
        bool all = before->layer == layers;
        for (int l = all ? 0 : before->layer; l < (all ? layers : before->layer + 1); l++) {
            const struct mp_routing *routing = &model->state[l].routing;
            int here = before->sent ? routing->send_total : routing->receive_total;
            if (before->transit)
                here = (int)trainer->paths.path[l].transit_rows;
            rows = here > rows ? here : rows;
        }
        assert_in_range(more, 0, all ? layers : 1);
        if (!before->distinct)
            assert_int_equal(more > 0, rows > before->room);
        growth += more;
    }
    return growth;
}

static const struct settings {
    const char *name, *settings;
} steps[] = {
    {"ep", "system=ep"},
    {"fssdp", "system=fssdp options.reshard-interval=2"},
    {"fssdp, re-materialising", "system=fssdp options.reshard-interval=2 options.overlap=2 "
                                "options.memory=2 options.rematerialise=yes"},
    {"fssdp, replayed", "system=fssdp routing=skewed skew-experts=2 skew-share=0.5"},
    /* Homes change, replicas come and go, slices travel, routes are sorted, padded and dropped. */
    {"fastermoe", "system=fastermoe"},
    {"deepep", "system=deepep record-routes=yes"},
    {"fastermoe", "system=fastermoe options.group-size=1"},
    {"deepspeed", "system=deepspeed"},
    {"deepspeed", "system=deepspeed options.dispatch=one-hot"},
    {"deepspeed", "system=deepspeed options.expert-parallel=1 options.policy=probability"},
    {"smartmoe", "system=smartmoe options.interval=2"},
    {"flexmoe", "system=flexmoe options.interval=2"},
    {"swiftmoe", "system=swiftmoe options.offload-optimizer=yes"},
    {"deepspeed", "system=deepspeed options.expert-parallel=1 options.zero=1 "
                  "options.multi-rank-bucket-allreduce=no"},
    {"laer", "system=laer exchange=leader"},
    {"laer", "system=laer options.rematerialise=yes"},
    {"eplb", "system=eplb options.interval=2"},
    {"eplb", "system=eplb options.interval=2 options.moves=asynchronous"},
    {"llep", "system=llep options.smallest-gemm=1 options.threshold=1"},
    {"lp", "system=lp options.interval=2"},
    {"moonep", "system=moonep exchange=two-level"},
    {"nodewise", "system=nodewise options.cover=all options.ahead=1 ranks-per-node=2"},
    {"nodewise", "system=nodewise options.cover=all options.rematerialise=yes ranks-per-node=2"},
    {"harmoeny", "system=harmoeny options.least=1"},
    {"ultraep", "system=ultraep"},
    {"hetumoe", "system=hetumoe ranks-per-node=2"},
    {"tutel", "system=tutel ranks-per-node=2"},
    {"free-balance", "system=free-balance"},
    {"deepep", "system=deepep"},
    {"hiermoe", "system=hiermoe"},
    {"fssdp", "system=fssdp mode=decode context=9"},
    {"eplb", "system=eplb options.interval=2 mode=prefill"},
    {"swiftmoe", "system=swiftmoe mode=decode"},
    {"flexmoe", "system=flexmoe options.interval=2 mode=prefill context=3"},
    {"moetuner", "system=moetuner options.interval=1 options.window=1 options.solver=search"},
};

static void check_step(const char *settings) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, &text, settings);
    struct piece piece[MOST_PIECES];
    int growth = 0;
    struct recording recording;
    uint64_t random = seed;
    for (int i = 0; i < TEXT; i++)
        byte[i] = (unsigned char)test_random_int(&random, 'a', 'z');
    trainer->planner.check_plans = false; /* the law may allocate; it is off in measured runs */
    record(trainer, &recording);
    atomic_store(&ours, 0);
    atomic_store(&others, 0);
    for (int i = 0; i < LAST; i++) {
        struct mp_trainer_result result;
        int pieces = list_pieces(trainer, piece);
        atomic_store(&counting, i >= FIRST);
        must(mp_trainer_step(trainer, &result, &error));
        must(mp_recorder_flush(recording.recorder, &error));
        atomic_store(&counting, false);
        if (i >= FIRST)
            growth += count_growth(trainer, piece, pieces);
    }
    if (world->rank == 0)
        print_message("  %d allocations by libraries in %d steps, %d for more rows than before\n",
                      atomic_load(&others), LAST - FIRST, growth);
    for (int i = 0; atomic_load(&ours) != growth && i < atomic_load(&ours) && i < SHOWN; i++) {
        print_error("rank %d allocated here:\n", world->rank);
        backtrace_symbols_fd(shown[i], shown_frames[i], STDERR_FILENO);
    }
    assert_int_equal(atomic_load(&ours), growth);
    if (!trainer->planner.system->before_gate &&
        trainer->forced.loads.count) /* the same rows again and again */
        assert_int_equal(growth, 0);
    must(mp_recorder_finish(&recording.recorder, MP_OK, NULL, &error));
    unlink(recording.path);
    rmdir(recording.folder);
}

/* On one rank only: threads of several would fight for the cores. */
TEST_EACH(a_step_allocates_nothing, steps, c) {
    check_step(c->settings);
}

TEST(a_step_allocates_nothing_with_threads) {
    if (world->ranks == 1)
        check_step("system=fssdp threads=2");
}

TEST(a_step_allocates_nothing_with_a_trace) {
    const struct mp_loads_shape shape = {world->ranks, 8, 2, 2, 8 * 16 / world->ranks, false};
    uint64_t random = seed;
    char path[] = "/tmp/moeperf-loads-XXXXXX";
    close(mkstemp(path));
    AUTO(allocated) uint32_t *count = random_loads(&random, &shape, 3);
    write_loads(path, &shape, 3, count, 0);
    for (int i = 0; i < 2; i++)
        check_step(formatted("system=%s routing=trace trace-loads=%s", i ? "ep" : "fssdp", path));
    unlink(path);
}

TEST(a_step_with_any_plans_allocates_nothing) {
    char system[1024];
    uint64_t random = seed;
    further_system = &wanderer;
    for (int i = 0; i < 4; i++)
        check_step(formatted("%s layers=3", draw_wanderer(&random, system)));
}

TEST(a_step_over_levels_allocates_nothing) {
    if (world->ranks >= 4)
        check_step("system=hiermoe gate=softmax top-k=4 options.hierarchy=4:2 exchange-degree=2");
}

TEST_STEP(begin) {
    void *frame[FRAMES];
    backtrace(frame, FRAMES); /* its first call loads a library */
    watch();
    return 0;
}

TEST_GROUP(begin, NULL);
