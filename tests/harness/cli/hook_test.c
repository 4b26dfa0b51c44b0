/* moeperf_experts.py in a program that is recorded: what its gates choose is in the database, and
 * other systems can be asked about.  PyTorch itself is a double (torch_double), since it is larger
 * than everything else together; python3 and PyPI's nvtx are the real ones. */
#include <sys/stat.h>

#include "tests/harness/cli/annotated.h"

enum { RANKS = 2, ITERATIONS = 6, LAYERS = 4, EXPERTS = 4, TOKENS = 16 };

/* Layer by layer: scores of which the best two count, experts' numbers with some not taken, a map,
 * and counts.  Two micro-batches; backward computes the first once more. */
static const char program[] =
    "import sys, time, nvtx, torch, moeperf_experts\n"
    "from torch.optim import optimizer\n"
    "rank, E = int(sys.argv[1]), 4\n"
    "gates = [torch.Gate() for _ in range(4)]\n"
    "moeperf_experts.watch(gates[:3], experts=E, top_k=2)\n"
    "gates[3].register_forward_hook(\n"
    "    lambda m, i, output: moeperf_experts.count(3, output[1], E))\n"
    "def first(t, i): return (t * t + i + rank) % E\n"
    "def forward(i, m):\n"
    "    chosen = [first(t, i + m) for t in range(16)]\n"
    "    scores = [[0.5 if e == c else 0.4 if e == (c + 1) % E else 0.0 for e in range(E)]\n"
    "              for c in chosen]\n"
    "    gates[0]((torch.Tensor(scores, 'float32'), 'of no interest'))\n"
    "    gates[1](torch.Tensor([c if c else -1 for c in chosen]))\n"
    "    gates[2](torch.Tensor([[e >= c for e in range(E)] for c in chosen], torch.bool))\n"
    "    gates[3]((None, torch.Tensor([chosen.count(e) for e in range(E)])))\n"
    "for i in range(6):\n"
    "    for layer in range(4):\n"
    "        with nvtx.annotate('all_to_all'): time.sleep(1e-4)\n"
    "        with nvtx.annotate('experts'): time.sleep(1e-3)\n"
    "    for m in range(2): forward(i, m)\n"
    "    torch.backward = 7\n"
    "    forward(i, 0)\n"
    "    torch.backward = -1\n"
    "    with nvtx.annotate('optimizer'): optimizer.step()\n";

static const char rules[] =
    "rules:\n"
    "  - {name: all_to_all, phase: dispatch, layer: count, direction: forward, waits: all}\n"
    "  - {name: experts, phase: expert, layer: count, direction: forward}\n"
    "  - {name: optimizer, phase: optimizer}\n"
    "iteration-ends:\n"
    "  - {name: optimizer}\n";

static const char job[] = "system: ep\nlayers: 4\nexperts: 4\nwidth: 16\nexpert-width: 16\n"
                          "heads: 2\nsequence: 16\nbatch: 4\ngate: gshard\n";

#define RECORD                                                                                     \
    "moeperf record -o run.db --rules own.yaml --job job.yaml -- sh -c "                           \
    "'for RANK in 0 1; do export RANK; PYTHONPATH=" PYTHON_PACKAGES ":" TORCH_DOUBLE               \
    " python3 -B train.py $RANK & done; wait'"

static void expect_layer(int iteration, int rank, int layer, const char *database) {
    int counts[EXPERTS] = {0};
    char sql[160];
    for (int m = 0; m < 2; m++)
        for (int t = 0; t < TOKENS; t++) {
            int first = (t * t + iteration + m + rank) % EXPERTS;
            counts[first] += layer == 0 || layer == 3 || (layer == 1 && first > 0);
            counts[(first + 1) % EXPERTS] += layer == 0;
            for (int e = first; e < EXPERTS; e++)
                counts[e] += layer == 2;
        }
    snprintf(sql, sizeof sql,
             "SELECT routes FROM load WHERE iteration = %d AND rank = %d AND layer = %d", iteration,
             rank, layer);
    assert_answer(database, sql,
                  formatted("[%d,%d,%d,%d]", counts[0], counts[1], counts[2], counts[3]));
}

TEST(what_gates_choose_is_recorded) {
    need_collector();
    need_python_nvtx();
    write_file("train.py", program);
    write_file("own.yaml", rules);
    write_file("job.yaml", job);
    assert_runs("moeperf show moeperf_experts.py > moeperf_experts.py");
    assert_says(RECORD, 0, "loads: 6 iterations, 4 layers, 4 experts\n");
    for (int i = 0; i < ITERATIONS; i++)
        for (int rank = 0; rank < RANKS; rank++)
            for (int layer = 0; layer < LAYERS; layer++)
                expect_layer(i, rank, layer, "run.db");
    assert_runs("test -z \"$(ls -d run.db.spools-* 2>/dev/null)\"");
    assert_json("moeperf predict --db run.db --run 1 --system llep --json", 0, "report", "what-if");
    assert_says("moeperf predict --db run.db --run 1 --system llep", 0, "with llep");
}

/* What PyTorch's profiler would write of each rank, with the tables that the hook left elsewhere.
 */
TEST(traces_of_others_have_loads_beside_them) {
    mkdir("counted", 0700);
    write_file("job.yaml", job);
    for (int rank = 0; rank < RANKS; rank++) {
        FILE *spans = fopen(formatted("rank%d.csv", rank), "w");
        fputs("rank,name,start,end,phase,layer,iteration,direction,tokens\n", spans);
        for (int i = 0; i < ITERATIONS; i++)
            for (int layer = 0; layer < LAYERS; layer++)
                for (int meets = 0; meets < 2; meets++)
                    fprintf(spans, "%d,x,%d.%03d,%d.%03d,%s,%d,%d,forward,%d\n", rank, i,
                            100 * layer + 50 * meets, i, 100 * layer + 50 * meets + 40,
                            meets ? "combine" : "expert", layer, i, meets ? 0 : 40);
        fclose(spans);
        FILE *counts = fopen(formatted("counted/experts-%d.csv", rank), "w");
        fputs("iteration,layer,rank,e0,e1,e2,e3\n", counts);
        for (int i = 0; i < ITERATIONS; i++)
            for (int layer = 0; layer < LAYERS; layer++)
                fprintf(counts, "%d,%d,%d,%d,20,10,%d\n", i, layer, rank, i, 10 + layer);
        fclose(counts);
    }
    assert_says("moeperf import rank0.csv rank1.csv --db t.db --loads counted --job job.yaml", 0,
                "loads: 6 iterations, 4 layers, 4 experts\n");
    assert_answer("t.db",
                  "SELECT group_concat(routes, ' ') FROM load WHERE iteration = 3 AND layer = 2",
                  "[3,20,10,12] [3,20,10,12]");
    assert_says("moeperf import rank0.csv --db t.db --loads counted --experts 4", 2,
                "experts-0.csv:1: long and wide files say themselves how many experts there are");
    assert_says("moeperf import counted/experts-0.csv -o x.mptrace --job job.yaml", 2,
                "--loads and --job are for recordings");
}

/* A gate whose output is no choice says so where it is watched wrongly. */
TEST(scores_without_a_number_of_choices_are_refused) {
    need_python_nvtx();
    assert_runs("moeperf show moeperf_experts.py > moeperf_experts.py");
    assert_says("PYTHONPATH=" TORCH_DOUBLE " python3 -B -c \"import torch, moeperf_experts\n"
                "moeperf_experts.count(0, torch.Tensor([[0.5, 0.5]], 'float32'), 2)\"",
                1, "top_k isn't given");
}

/* Two layers: attention, an exchange of counts and one of rows, experts and one back; backward
 * computes experts once more and exchanges twice a layer; gradients are summed by a functional
 * collective.  At last NCCL, whose works are not waited for on the host. */
static const char annotated[] =
    "import sys, torch, moeperf_experts\n"
    "from torch.optim import optimizer\n"
    "torch.backend, rank = 'gloo', int(sys.argv[1])\n"
    "class CausalAttention(torch.Module):\n"
    "    def forward(self, rows): return rows\n"
    "class SparseExperts(torch.Module):\n"
    "    def forward(self, rows): return torch.linear(torch.linear(torch.linear(rows, 8), 4), 4)\n"
    "layers = [(CausalAttention(), SparseExperts()) for _ in range(2)]\n"
    "moeperf_experts.annotate()\n"
    "for i in range(6):\n"
    "    for number, (attention, experts) in enumerate(layers):\n"
    "        attention(rows := torch.Tensor([[0] * 4 for _ in range(5 + 3 * rank + number)]))\n"
    "        for _ in range(2): torch.Work().wait()\n"
    "        torch.linear(rows, 4)\n"
    "        assert not torch.TorchFunctionMode.entered\n"
    "        experts(rows)\n"
    "        torch.Work().wait()\n"
    "    torch.backward = 7\n"
    "    for number in range(4):\n"
    "        torch.Work().wait()\n"
    "        layers[0][1](rows)\n"
    "    torch.backward = -1\n"
    "    summed = torch.ops._c10d_functional.all_reduce(rows)\n"
    "    for _ in range(2): torch.ops._c10d_functional.wait_tensor(summed)\n"
    "    optimizer.step()\n"
    "torch.backend = 'nccl'\n"
    "torch.Work().wait()\n";

/* No rules are named: PyTorch's ready-made ones know it all. */
TEST(annotated_programs_need_no_rules) {
    need_collector();
    need_python_nvtx();
    write_file("train.py", annotated);
    assert_runs("moeperf show moeperf_experts.py > moeperf_experts.py");
    assert_says("moeperf record -o named.db -- sh -c 'for RANK in 0 1; do export RANK; "
                "PYTHONPATH=" PYTHON_PACKAGES ":" TORCH_DOUBLE
                " python3 -B train.py $RANK & done; wait'",
                0, "2 processes, 216 ranges, 204 became spans, 24 lie in one");
    assert_spans("named.db",
                 "phase || layer || coalesce(substr(direction, 1, 1), '-') || coalesce(tokens, '')",
                 "rank = 1 AND iteration = 4 AND phase <> 'iteration'",
                 "attention0f dispatch0f dispatch0f expert0f16 combine0f attention1f dispatch1f "
                 "dispatch1f expert1f18 "
                 "combine1f combine1b dispatch1b combine0b dispatch0b allreduce-1f optimizer-1-");
    assert_answer("named.db",
                  "SELECT count(*) || ' ' || min(wait_ns = end_ns - start_ns) FROM v_span WHERE "
                  "phase IN ('dispatch', 'combine', 'allreduce')",
                  "132 1");
}

TEST(what_goes_together) {
    write_file("empty.yaml", "layers: 2\n");
    assert_says("moeperf record --experts 4 -- true", 2, "--experts goes with --loads PATH");
    assert_says("moeperf record --loads-as csv -- true", 2, "--loads-as goes with --loads PATH");
    assert_says("moeperf record --job empty.yaml -- true", 2, "empty.yaml: names no system");
    assert_says("moeperf record --job missing.yaml -- true", 2, "missing.yaml");
}

TEST_GROUP(enter_shell, leave_folder);
