/* Parts that hosts recorded, made one run: clocks that lie anywhere are put beside one another by
 * what the hosts did together, and parts that don't belong together are refused. */
#include <sys/wait.h>

#include "harness/record/devices.h"
#include "harness/record/parts.h"
#include "profiler/record/launched.h"
#include "profiler/record/spool_writer.h"
#include "tests/errors.h"
#include "tests/harness/record/kept.h"

enum { HOSTS = 4, RANKS_OF_HOST = 3, STEPS = 160, STEP_NS = 10000000 };
enum name { STEP = 1, WORK, LOCAL, EXCHANGE };

static const char rules_text[] = "rules:\n"
                                 "  - {name: step, phase: iteration}\n"
                                 "  - {name: work, phase: expert, layer: 0}\n"
                                 "  - {name: local, phase: fetch, waits: all}\n"
                                 "  - {name: exchange, phase: combine, layer: 0, waits: all}\n";

/* A host, its clock since it started and its wall clock, against a true time that begins with 0. */
struct host {
    char name[16];
    int64_t started_ns, wall_ns;
    double speed;
    int ranks;
};

struct world {
    struct runs_folder *folder;
    struct host host[HOSTS];
    int hosts, ranks;
    int64_t late_ns; /* most that anyone leaves an exchange after the last has come */
    int64_t work_ns[HOSTS * RANKS_OF_HOST]; /* true start of each rank's work in the last step */
    uint64_t seed;
    const char *run;   /* what the launcher calls it */
    bool has_exchange; /* a range in which all ranks wait for one another */
    bool has_local;    /* one in which those of a host do */
    char said[4000];
    struct mp_error error;
};

static int64_t shown(const struct host *host, int64_t true_ns) {
    return host->started_ns + (int64_t)((double)true_ns * host->speed);
}

static void add(struct world *world, struct spool_writer *writer,
                const struct mp_spool_record *record) {
    runs_ok(spool_writer_add(writer, record, &world->error), &world->error);
}

static void write_header(struct world *world, struct spool_writer *writer, int host, int rank,
                         int world_ranks) {
    struct mp_spool_record header = {.type = MP_SPOOL_HEADER,
                                     .as.header = {.magic = SPOOL_MAGIC,
                                                   .version = MP_SPOOL_VERSION,
                                                   .rank = rank,
                                                   .ranks = world_ranks,
                                                   .pid = 100 + rank,
                                                   .realtime_ns = world->host[host].wall_ns,
                                                   .monotonic_ns = shown(&world->host[host], 0)}};
    snprintf(header.as.header.host, sizeof header.as.header.host, "%s", world->host[host].name);
    add(world, writer, &header);
}

static void add_text(struct world *world, struct spool_writer *writer, const char *name,
                     const char *value) {
    add(world, writer, &(struct mp_spool_record){.type = MP_SPOOL_TEXT, .as.text = {name, value}});
}

static void add_name(struct world *world, struct spool_writer *writer, uint32_t id,
                     const char *text) {
    add(world, writer,
        &(struct mp_spool_record){.type = MP_SPOOL_NAME, .as.name = {.id = id, .text = text}});
}

static void close_writer(struct world *world, struct spool_writer *writer) {
    add(world, writer, &(struct mp_spool_record){.type = MP_SPOOL_END, .as.end.reason = ""});
    runs_ok(spool_writer_close(writer, &world->error), &world->error);
}

static void write_range(struct world *world, struct spool_writer *writer, const struct host *host,
                        enum name name, int64_t start_ns, int64_t end_ns) {
    add(world, writer,
        &(struct mp_spool_record){.type = MP_SPOOL_RANGE,
                                  .as.range.is = {.start_ns = shown(host, start_ns),
                                                  .end_ns = shown(host, end_ns),
                                                  .name = name,
                                                  .thread = 1}});
}

/* Each step: ranks work for as long as they like and leave the exchange together, nearly; those
 * that were not the last of their host to come may take their time.  Before, those of one host do
 * something of their own, at another time on every host. */
static void write_steps(struct world *world, struct spool_writer *writer, int host, int rank) {
    const struct host *own = &world->host[host];
    uint64_t steps = 77; /* the same on all ranks */
    for (int step = 0; step < STEPS; step++) {
        const int64_t start_ns = (int64_t)(step + 1) * STEP_NS;
        const int64_t met_ns = start_ns + 4000000 + test_random_int(&steps, 0, 3000000);
        const int64_t work_ns = start_ns + test_random_int(&world->seed, 0, 2000000);
        const int64_t local_ns =
            start_ns + 500000 +
            (int64_t)((uint32_t)(step * HOSTS + host + 1) * 2654435761u % 300000);
        const bool is_last = step % own->ranks == rank % own->ranks; /* of its host */
        const int64_t left_ns = met_ns + test_random_int(&world->seed, 0, (int)world->late_ns) +
                                (is_last ? 0 : test_random_int(&world->seed, 0, 300000));
        const int64_t came_ns = met_ns - (is_last ? 1000 + 2000 * ((step + host) % world->hosts)
                                                  : test_random_int(&world->seed, 100000, 1000000));
        write_range(world, writer, own, STEP, start_ns - 10, met_ns + 2000000);
        if (world->has_local)
            write_range(world, writer, own, LOCAL, start_ns, local_ns);
        write_range(world, writer, own, WORK, work_ns + 900000, came_ns);
        if (world->has_exchange)
            write_range(world, writer, own, EXCHANGE, came_ns, left_ns);
        world->work_ns[rank] = work_ns + 900000;
    }
}

static void write_rank(struct world *world, int host, int rank) {
    static const char *const names[] = {"step", "work", "local", "exchange"};
    struct spool_writer writer;
    char path[160];
    snprintf(path, sizeof path, "%s/parts/%d/%d.spool", world->folder->path, host, rank);
    runs_ok(spool_writer_create(&writer, path, &world->error), &world->error);
    write_header(world, &writer, host, rank, world->ranks);
    if (world->run)
        add_text(world, &writer, MP_LAUNCHED_RUN, world->run);
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        add_name(world, &writer, i + 1, names[i]);
    write_steps(world, &writer, host, rank);
    close_writer(world, &writer);
}

static void make_folder(const char *format, const char *path, int number) {
    assert_int_equal(mkdir(formatted(format, path, number), 0700), 0);
}

/* Every rank, in its host's part. */
static void record_all(struct world *world) {
    int rank = 0;
    make_folder("%s/parts", world->folder->path, 0);
    for (int h = 0; h < world->hosts; h++) {
        make_folder("%s/parts/%d", world->folder->path, h);
        for (int i = 0; i < world->host[h].ranks; i++)
            write_rank(world, h, rank++);
    }
}

/* What `moeperf record --from` does with these folders. */
static int merge(struct world *world, const char *const folder[], int folders, bool some_ranks) {
    char links[MP_PATH_SIZE];
    world->error = (struct mp_error){0};
    runs_ok(mp_parts_create_folder(world->folder->database, "parts", links, &world->error),
            &world->error);
    int code = mp_parts_link(folder, folders, links, &world->error);
    const struct mp_record_run run = {.spools = links,
                                      .keep_spools = true,
                                      .is_merged = true,
                                      .some_ranks = some_ranks,
                                      .is_earlier = true};
    if (!code)
        code = keep_run(world->folder, run, rules_text, world->said, sizeof world->said,
                        &world->error);
    mp_parts_remove_folder(links);
    assert_int_equal(access(links, F_OK), -1);
    return code;
}

static int merge_all(struct world *world) {
    char parts[100];
    const char *const folder[] = {parts};
    snprintf(parts, sizeof parts, "%s/parts", world->folder->path);
    return merge(world, folder, 1, false);
}

/* Recorded by all, and made one run. */
static void record_and_merge(struct world *world) {
    record_all(world);
    runs_ok(merge_all(world), &world->error);
}

/* hosts 0: any number. */
static struct world world_of(struct runs_folder *folder, int hosts, int ranks_of_host) {
    struct world world = {.folder = folder,
                          .late_ns = 20000,
                          .seed = test_seed(),
                          .has_exchange = true,
                          .has_local = true};
    world.hosts = hosts > 0 ? hosts : test_random_int(&world.seed, 2, HOSTS);
    world.ranks = world.hosts * ranks_of_host;
    for (int h = 0; h < world.hosts; h++) {
        struct host *host = &world.host[h];
        *host = (struct host){
            .started_ns = test_random_int(&world.seed, 1, 1000000) * INT64_C(1000000007),
            .wall_ns = INT64_C(1700000000000000000) +
                       test_random_int(&world.seed, -600, 600) * INT64_C(1000000000),
            .speed = 1 + 1e-6 * test_random_int(&world.seed, -40, 40),
            .ranks = ranks_of_host};
        snprintf(host->name, sizeof host->name, "node%d", h);
    }
    return world;
}

static double number(struct runs_folder *folder, const char *sql) {
    return strtod(runs_query(folder->store, sql), NULL);
}

/* Every rank's work begins, on the first host's clock, when it did, to within what is stated. */
static void assert_aligned(const struct world *world) {
    char sql[300];
    const int64_t origin_ns =
        strtoll(runs_query(world->folder->store, "SELECT origin_ns FROM run"), NULL, 10);
    for (int rank = 0; rank < world->ranks; rank++) {
        snprintf(sql, sizeof sql,
                 "SELECT max(start_ns) FROM v_span WHERE rank = %d AND phase = 'expert'", rank);
        const int64_t start_ns =
            origin_ns + strtoll(runs_query(world->folder->store, sql), NULL, 10);
        snprintf(sql, sizeof sql,
                 "SELECT coalesce(clock_error_us, 0.001) * 1000 FROM v_rank WHERE rank = %d", rank);
        const int64_t stated_ns = (int64_t)number(world->folder, sql);
        const int64_t off_ns = start_ns - shown(&world->host[0], world->work_ns[rank]);
        if (llabs(off_ns) > stated_ns + 1)
            fail_msg("rank %d: %lld ns off, stated are %lld", rank, (long long)off_ns,
                     (long long)stated_ns);
        assert_true(stated_ns <= 2 * world->late_ns);
    }
}

RUNS_TEST(clocks_are_aligned_to_within_what_is_stated) {
    struct world world = world_of(folder, 0, RANKS_OF_HOST);
    record_and_merge(&world);
    assert_aligned(&world);
    assert_contains(
        world.said, " ranges \"exchange\": known to within ",
        formatted("clocks: %d hosts, put beside one another by %d ", world.hosts, STEPS));
    assert_rows(world.folder->store, "SELECT ranks, nodes, status FROM run",
                formatted("%d|%d|complete", world.ranks, world.hosts));
    assert_rows(
        world.folder->store,
        "SELECT count(*) FROM v_rank WHERE host <> 'node' || node OR clock <> CASE rank WHEN 0 "
        "THEN 'reference' WHEN 1 THEN 'same host' WHEN 2 THEN 'same host' ELSE 'samples' END",
        "0");
    /* Once more: the same run. */
    runs_ok(merge_all(&world), &world.error);
    assert_rows(world.folder->store, "SELECT count(*) FROM run", "1");
}

/* Wall clocks are minutes apart, and the ranks are still of one time. */
RUNS_TEST(wall_clocks_say_nothing) {
    struct world world = world_of(folder, 2, 1);
    world.host[1].wall_ns = world.host[0].wall_ns + INT64_C(3600000000000);
    record_and_merge(&world);
    const char *apart = strstr(world.said, "their wall clocks are up to ");
    assert_non_null(apart);
    assert_close(strtod(apart + strlen("their wall clocks are up to "), NULL), 3600, 1e-5);
    assert_rows(world.folder->store, "SELECT count(*) FROM v_rank WHERE reason IS NOT NULL", "0");
}

RUNS_TEST(without_anything_in_common_wall_clocks_count) {
    struct world world = world_of(folder, 3, 1);
    for (int h = 0; h < world.hosts; h++)
        world.host[h].wall_ns = INT64_C(1700000000000000000) + h * 1000000;
    world.has_exchange = world.has_local = false;
    record_and_merge(&world);
    assert_contains(world.said, "put beside it by their wall clocks");
    assert_rows(world.folder->store,
                "SELECT group_concat(clock) FROM (SELECT * FROM v_rank ORDER BY rank)",
                "reference,wall clock,wall clock");
}

/* NCCL's operations of one rank: the same ends as on the others, by the timer of its GPU. */
static void write_collectives(struct world *world, int host, int rank, int64_t timer_ns) {
    const struct host *own = &world->host[host];
    struct spool_writer writer;
    char path[160];
    snprintf(path, sizeof path, "%s/parts/%d/%d%s", world->folder->path, host, rank,
             MP_DEVICE_ENDING);
    runs_ok(spool_writer_create(&writer, path, &world->error), &world->error);
    write_header(world, &writer, host, rank, world->ranks);
    add(world, &writer,
        &(struct mp_spool_record){.type = MP_SPOOL_STREAM, .as.stream.name = "nccl"});
    add_text(world, &writer, "nccl.status", "on");
    add_name(world, &writer, 1, "AllToAll");
    for (int i = 0; i < STEPS; i++) {
        const int64_t end_ns =
            (int64_t)(i + 1) * STEP_NS + test_random_int(&world->seed, 0, (int)world->late_ns);
        const uint64_t end = (uint64_t)(timer_ns + shown(own, end_ns) - shown(own, 0));
        add(world, &writer,
            &(struct mp_spool_record){.type = MP_SPOOL_COLLECTIVE,
                                      .as.collective = {.start_ns = shown(own, end_ns - 500000),
                                                        .queued_ns = shown(own, end_ns - 400000),
                                                        .timer_start = end - 200000,
                                                        .timer_end = end,
                                                        .communicator = 99,
                                                        .sequence = (uint64_t)i + 1,
                                                        .function = 1,
                                                        .rank = rank,
                                                        .ranks = world->ranks}});
    }
    add(world, &writer,
        &(struct mp_spool_record){.type = MP_SPOOL_TIMER,
                                  .as.timer = {.at_ns = shown(own, 0),
                                               .offset_ns = shown(own, 0) - timer_ns,
                                               .samples = 1}});
    close_writer(world, &writer);
}

RUNS_TEST(collectives_of_nccl_count) {
    struct world world = world_of(folder, 3, 2);
    world.has_exchange = false;
    record_all(&world);
    for (int rank = 0; rank < world.ranks; rank++)
        write_collectives(&world, rank / 2, rank, (rank + 1) * INT64_C(123456789012));
    runs_ok(merge_all(&world), &world.error);
    assert_aligned(&world);
    assert_contains(world.said, " collectives: known to within ");
    /* On the common clock each operation ends on all ranks together. */
    assert_true(number(world.folder,
                       "SELECT max(a.end_ns - b.end_ns) FROM collective a JOIN "
                       "collective b USING (run_id, sequence)") < 3 * (double)world.late_ns);
}

/* Hosts of one name that started at different times are several. */
RUNS_TEST(hosts_of_one_name_are_several) {
    struct world world = world_of(folder, 2, 1);
    strcpy(world.host[1].name, world.host[0].name);
    record_and_merge(&world);
    assert_aligned(&world);
    assert_rows(
        world.folder->store,
        "SELECT group_concat(host || ' ' || clock) FROM (SELECT * FROM v_rank ORDER BY rank)",
        "node0 reference,node0 (2) samples");
}

static void assert_refused(struct world *world, const char *const folder[], int folders,
                           const char *sentence) {
    assert_int_equal(merge(world, folder, folders, false), MP_EINVAL);
    assert_contains(world->error.text, sentence);
    assert_rows(world->folder->store, "SELECT count(*) FROM run", "0");
}

RUNS_TEST(what_is_not_one_run_is_refused) {
    struct world world = world_of(folder, 3, 1);
    char part[4][100];
    const char *const all[] = {part[0], part[1], part[2]}, *const two[] = {part[0], part[2]},
                      *const again[] = {part[0], part[1], part[2], part[1]},
                      *const twice[] = {part[0], part[1], part[2], part[3]};
    for (int i = 0; i < 4; i++)
        snprintf(part[i], sizeof part[i], "%s/parts/%d", world.folder->path, i);
    world.run = "job 17";
    record_all(&world);
    assert_refused(&world, two, 2,
                   "of 3 ranks 1 recorded no range or their part is not here, the first is rank 1");
    assert_refused(&world, again, 4, "are one recording");
    make_folder("%s/parts/%d", world.folder->path, 3); /* rank 1 once more, by host 0 */
    world.host[3] = world.host[2];
    strcpy(world.host[3].name, "other");
    write_rank(&world, 3, 1);
    assert_refused(&world, twice, 4, "rank 1 is there twice, on host ");
    unlink(formatted("%s/1.spool", part[3]));
    world.ranks = 5;
    write_rank(&world, 3, 4);
    assert_refused(&world, twice, 4, "is of a run of 3 ranks and ");
    unlink(formatted("%s/4.spool", part[3]));
    world.run = "job 18"; /* of another launch */
    write_rank(&world, 3, 4);
    assert_refused(&world, twice, 4, "is of run job 17 and ");
    unlink(formatted("%s/4.spool", part[3]));
    rmdir(part[3]);
    assert_int_equal(merge(&world, two, 2, true), MP_OK);
    assert_rows(world.folder->store,
                "SELECT ranks || ' ' || group_concat(v_rank.status) FROM v_run JOIN (SELECT * FROM "
                "v_rank ORDER BY rank) v_rank USING (run_id)",
                "3 complete,missing,complete");
    assert_int_equal(merge(&world, all, 3, false), MP_OK);
}

RUNS_TEST(folders_without_spools_are_named) {
    struct world world = world_of(folder, 2, 1);
    const char *const nowhere[] = {"/nowhere/at/all"}, *const empty[] = {world.folder->path};
    assert_int_equal(merge(&world, nowhere, 1, false), MP_ENOTFOUND);
    assert_contains(world.error.text, "/nowhere/at/all: No such file");
    assert_int_equal(merge(&world, empty, 1, false), MP_ENOTFOUND);
    assert_contains(world.error.text, "neither it nor a folder in it has a spool");
}

/* What a killed program left beside the database goes, a living one's stays. */
RUNS_TEST(what_dead_programs_left_is_removed) {
    char host[64] = "", dead[200], alive[200], made[MP_PATH_SIZE], file[220];
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    gethostname(host, sizeof host - 1);
    snprintf(dead, sizeof dead, "%s.%s-%d.import", folder->database, host, (int)child);
    snprintf(alive, sizeof alive, "%s.%s-%d.import", folder->database, host, (int)getppid());
    snprintf(file, sizeof file, "%s/0.spool", dead);
    assert_int_equal(mkdir(dead, 0700) + mkdir(alive, 0700), 0);
    fclose(fopen(file, "w"));
    assert_works(mp_parts_create_folder(folder->database, "import", made, &error));
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(alive, F_OK), 0);
    assert_int_equal(access(made, W_OK), 0);
}
