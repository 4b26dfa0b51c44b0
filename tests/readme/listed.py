"""What of the pages' commands is not run as it is written: which, how, and why.

Everything that is not here runs as it stands, in the order of the pages, in a folder like a
checkout whose build/release is an installation.  A command that is listed and no longer on its page
fails the test."""

import pathlib
from typing import NamedTuple

import commands


class Listed(NamedTuple):
    reason: str = ""  # it is not run
    more: str = ""  # words that make the same command quick
    first: str = ""  # what its page takes for granted: files of the reader's own
    needs_ranges: bool = False  # a program that annotates itself, or what it recorded


TINY = "--set width=16 --set expert-width=16 --set sequence=16 --set batch=4 --set heads=2 --quiet"
ONE = f"{TINY} --set layers=1 --set ranks=1"  # without mpirun, which takes the most of a tiny job
FEW = f"{ONE} --set iterations=2"
GPU = "needs a GPU"
OWN = "is a test, or runs all of them"
# The words again, since the last count; the fewest iterations that pairs are judged by.
PAIRS = f"--pairs 1 --slice 0 {ONE} --set iterations=23"

# What SGLang's recorder writes.
COUNTS = """python3 -c "print({'logical_count': [list(range(1, 33))]})" | tr "'" '"' > """

# What torch.profiler exports on two ranks, a step of each.
KINETO = """for rank in 0 1; do gzip > rank$rank.json.gz << END
{"distributedInfo": {"rank": $rank, "world_size": 2}, "host_name": "h", "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "layer 0 combine", "pid": 1, "tid": 1, "ts": 2, "dur": 5},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1, "dur": 9}]}
END
done"""

GRIDS = [command for command in commands.of_page(
    (pathlib.Path(__file__).parents[2] / "baselines/nodewise/README.md").read_text())
    if " --vary " in command]

LISTED = {
    "README.md": {
        "ci/quickstart": Listed(more=f"{TINY} --set iterations=12"),
        "ci/test": Listed(OWN),
        "ci/package": Listed("takes minutes; harness/cli/completion tests what is not of Debian's"),
        "moeperf run all-systems": Listed(more=f"{ONE} --set experts=8 --set iterations=13"),
        "moeperf run skewed": Listed(more=f"--set repeat=1 --set experts=16 {FEW}"),
        "moeperf run quickstart --pairs 12 --against before/bin/moeperf-train": Listed(
            first="mkdir -p before; cp -r build/release/bin before", more=PAIRS),
        "moeperf history nightly.db --append history.jsonl": Listed(
            first="cp out/quickstart/results.db nightly.db"),
        "moeperf record -o run.db -- torchrun train.py": Listed(needs_ranges=True),
        "moeperf import rank*.json.gz --db run.db": Listed(first=KINETO),
        "moeperf place --trace counts.json --cluster b200 --decide": Listed(
            first=COUNTS + "counts.json"),
    },
    "harness/README.md": {
        "moeperf run serving": Listed(more=f"{TINY} --set layers=1 --set iterations=6"),
        "moeperf run convergence": Listed(
            more=f"{FEW} --set target-loss=6 --set target-window=2 --set iterations=4"),
        "ci/quickstart --text PATH": Listed(first="cp -r out/text/corpus PATH", more=FEW),
        "moeperf run quickstart --set device=cuda --set precision=bf16": Listed(GPU),
        "moeperf run mine.yaml": Listed(more=FEW),
        "moeperf run predicted": Listed(more="--set iterations=2 --set layers=2 --quiet"),
        "moeperf run quickstart --set iterations=200 --set options.memory=2": Listed(more=FEW),
        "moeperf calibrate -o here.yaml --ranks 2": Listed(more="--quick --quiet"),
        "moeperf compare before.db after.db": Listed(
            first="cp out/quickstart/results.db before.db; cp before.db after.db"),
        "ci/perf-gate": Listed(OWN),
        "ci/mutate reference/plan 100": Listed(OWN),
        "ci/attack 30": Listed(OWN),
        ".ci/run": Listed(OWN),
        "mpirun -n 2 moeperf-train JOB.yaml --progress": Listed(
            first="cp $(grep -l '^ranks: 2' out/runs/*/*/job.yaml | head -n 1) JOB.yaml"),
        "moeperf generate dynamics -o run.mptrace --first-iteration 500": Listed(
            more="--iterations 10"),
        "moeperf run --from out/runs/RUN": Listed(
            "needs a killed run, as harness/cli/killed_run has"),
        "ctest --test-dir build/release -L exact": Listed(OWN),
        "python3 tests/bench/calibrated.py --bin build/release/bin --text out/text/corpus": Listed(
            "takes minutes, on a quiet machine"),
        "moeperf-bench compute": Listed("takes minutes; bench/program starts it"),
        "mpirun -n 2 … comm": Listed("stands for the command before it"),
        "moeperf place --trace counts.json --cluster b200 --system eplb:replicas=288 --as sglang "
        "-o placement.json": Listed(first=COUNTS + "counts.json"),
        "moeperf reproduce laer --infer": Listed(more="--budget 56 --set layers=2"),
        'moeperf predict --cluster h100 --nodes 1 --loads "zipf exponent=0.6" --vary batch=8,32,64':
            Listed(more="--set layers=2"),
    },
    "harness/suite/README.md": {
        "moeperf run quickstart --set ranks=16 --set ranks-per-node=8 --hosts hosts": Listed(
            first="echo localhost slots=2 > hosts",
            more=f"{TINY} --set iterations=2 --set ranks=2 --set ranks-per-node=1"),
        """moeperf run quickstart --set ranks=16 --launcher "srun -n {ranks} {program} {arguments}\"""":
            Listed("needs Slurm"),
        """moeperf run quickstart --set ranks=16 --hosts hosts --work /local/runs --copy "scp -qr {from} {to}\"""":
            Listed("needs another host; harness/cli/hosts has disks of one's own"),
    },
    "reference/trainer/README.md": {
        "mpirun -n 2 moeperf-train JOB.yaml --set mode=decode --set context=100": Listed(
            first="cp $(grep -l '^ranks: 2' out/runs/*/*/job.yaml | head -n 1) JOB.yaml",
            more="--set context=4"),
        "mpirun -n 8 moeperf-train job.yaml --set device=cuda --set precision=bf16 --rate":
            Listed(GPU),
        "torchrun --nproc-per-node 8 --no-python moeperf-train job.yaml --set device=cuda":
            Listed(GPU),
        "ci/gpu-check --double": Listed("is a test of its own, gpu/check_on_double"),
        'moeperf predict --cluster h100 --nodes 1 --loads "zipf exponent=0.6" --set mode=decode \\\n'
        "    --set context=4096 --set batch=512 --vary batch=64,512,4096": Listed(
            more="--set layers=2"),
    },
    "reference/schedule/README.md": {},
    "harness/workload/README.md": {
        "moeperf import loads.csv --as csv-wide -o loads.mptrace": Listed(
            first="printf 'iteration,rank,layer,e0,e1\\n0,0,0,3,1\\n0,1,0,2,2\\n' > loads.csv"),
    },
    "harness/predict/README.md": {
        """moeperf predict --vary cluster=hecate-a,h100 --vary "loads=zipf exponent=0.3,zipf exponent=1" \\
    --vary nodes=1,4 --bound --html cells.html""": Listed(more="--set layers=2"),
    },
    "harness/place/README.md": {
        "moeperf place --trace prefill.json --cluster b200 --nodes 4 --system eplb:replicas=288":
            Listed(first=COUNTS + "prefill.json"),
        "moeperf predict --trace decode.json --fit --cluster b200 --nodes 4 --system deepep \\\n"
        "    --system llep --system lp --system moonep --system harmoeny --system ultraep \\\n"
        "    --set mode=decode --set context=2048 --set sequence=1 --set batch=4096 \\\n"
        "    --set predict.cache-width=576 --set predict.precision=bf16 \\\n"
        "    --set predict.vocabulary=129280 --set predict.attention=flash":
            Listed(first=COUNTS + "decode.json", more="--set top-k=2"),
    },
    "harness/reproduce/README.md": {
        'moeperf reproduce fastermoe --loads "zipf exponent=1 iterations=60"': Listed(
            more="--loads 'zipf exponent=1 iterations=6'"),
        "moeperf reproduce hecate --details": Listed("takes a minute"),
        "moeperf reproduce laer --infer --html laer.html": Listed(more="--budget 56 --set layers=2"),
    },
    "results/report/README.md": {},
    "reference/device/cuda/README.md": {
        "ci/gpu-check": Listed(GPU),
        "ci/gpu-check --packed FILE": Listed(GPU),
        "moeperf-bench-gpu": Listed(GPU),
        "moeperf-bench-gpu --only adamw": Listed(GPU),
        "python3 tests/bench/pytorch_step.py --device cuda --trainer build/release/bin/moeperf-train": Listed(GPU),
    },
    "baselines/nodewise/README.md": {
        **dict.fromkeys(GRIDS, Listed("takes long; harness/cli/vary has small ones")),
        "moeperf run borders --db out/borders.db": Listed("twelve jobs of 4 and 8 ranks"),
        """sqlite3 -box out/borders.db \\
  "SELECT job, sum(value) / 4e6 AS MB FROM v_number JOIN v_run USING (run_id)
   WHERE name = 'sent-between-nodes' AND iteration >= 4 GROUP BY run_id\"""": Listed(
            "what that leaves"),
    },
    "baselines/README.md": {
        "cmake --preset release && cmake --build build/release": Listed(
            "builds everything; baselines/new_system does it"),
        "build/release/bin/moeperf show mine": Listed("what baselines/new_system builds"),
        "ctest --test-dir build/release -R baselines/mine": Listed(
            "what baselines/new_system builds"),
        "ctest --test-dir build/release -R baselines/random_plans": Listed(OWN),
        "ctest --test-dir build/release -L exact": Listed(OWN),
        "build/release/bin/moeperf-bench plan": Listed("takes minutes; bench/program starts it"),
        "build/release/bin/moeperf run mine.yaml --db out/mine.db --set repeat=3": Listed(
            "what baselines/new_system builds, which runs it"),
    },
    "reference/gate/README.md": {
        "cmake --preset release && cmake --build build/release": Listed(
            "builds everything; baselines/new_system does it"),
        "build/release/bin/moeperf show mine": Listed("what baselines/new_system builds"),
        "ctest --test-dir build/release -R reference/gate": Listed(OWN),
        "ctest --test-dir build/release -L golden": Listed(OWN),
        "ctest --test-dir build/release -L exact": Listed(OWN),
        "ctest --test-dir build/release -R finite_difference": Listed(OWN),
        "python3 tests/golden/make_golden.py --gate mine": Listed("needs PyTorch"),
    },
    "tests/README.md": {
        "ci/gpu-check": Listed(GPU),
        "ci/fuzz": Listed(OWN),
        "ci/perf-gate": Listed(OWN),
    },
    "results/compare/README.md": {
        "moeperf run quickstart --pairs 12 --against ../before/bin/moeperf-train": Listed(
            first="mkdir -p ../before; cp -r build/release/bin ../before", more=PAIRS),
        "moeperf run ci --db nightly.db": Listed(more=FEW),
        "ci/perf-gate --accept 'predicted/fssdp/*'": Listed(OWN),
    },
    "CONTRIBUTING.md": {
        "ctest --test-dir build/release -j2 -L '^harness/workload$'": Listed(OWN),
    },
    "harness/recordings/README.md": {
        "moeperf import rank*.json.gz --db run.db": Listed(first=KINETO),
        "moeperf import rank*.json.gz --db run.db --loads counts --job job.yaml": Listed(
            "needs PyTorch; harness/cli/hook has tables of spans in its place"),
        "moeperf import report.sqlite --db run.db": Listed(
            first="""sqlite3 report.sqlite 'CREATE TABLE NVTX_EVENTS (start, end, eventType,
    text, globalTid); INSERT INTO NVTX_EVENTS VALUES (1, 9, 59, "experts", 67108865)'"""),
    },
    "harness/record/README.md": {
        "moeperf record -o run.db -- python train.py": Listed(needs_ranges=True),
        "moeperf report --db run.db --run 1": Listed(needs_ranges=True),
        "moeperf record -o run.db -- torchrun --nproc-per-node 8 train.py": Listed(
            needs_ranges=True, first="rm -r run.db*"),
        "moeperf record -o run.db --system torchrun --from run.db.spools-1234 "
        "--rules run.db.rules.yaml": Listed(
            needs_ranges=True, first="mv run.db.spools-* run.db.spools-1234"),
        "moeperf report --db run.db --run 2 --stragglers": Listed(needs_ranges=True),
        "pip install torch nvtx megatron-core": Listed("downloads gigabytes"),
        """moeperf record -o run.db -- torchrun --nproc-per-node 8 pretrain_gpt.py ARGUMENTS \\
    --profile --nvtx-ranges --record-shapes --profile-step-start 10 --profile-step-end 20 \\
    --profile-ranks 0 1 2 3 4 5 6 7""": Listed(needs_ranges=True),
        """sqlite3 -box run.db 'SELECT rank, function, sum(wait_ms), sum(transfer_ms)
    FROM v_collective WHERE run_id = 1 GROUP BY rank, function'""": Listed(needs_ranges=True),
        "moeperf record -o run.db --rules my.yaml -- torchrun --nproc-per-node 8 train.py": Listed(
            needs_ranges=True, first="rm -r run.db*"),
        "moeperf report --db run.db --run 1 --stragglers": Listed(needs_ranges=True),
        "moeperf report --db run.db --run 1 --html run.html": Listed(needs_ranges=True),
        "moeperf record -o run.db --loads router_traces --experts 64 -- torchrun pretrain_gpt.py": Listed(
            "needs a router's counts, as harness/record/recorded_loads has"),
        "moeperf record -o run.db --rules my.yaml --job job.yaml -- torchrun --nproc-per-node 2 train.py":
            Listed("needs PyTorch; harness/cli/hook has a double of it"),
        "moeperf predict --db run.db --run 1 --system all": Listed(
            "needs PyTorch; harness/cli/hook has a double of it"),
        "moeperf record --part parts -- torchrun --nnodes 2 --node-rank N --nproc-per-node 8 train.py":
            Listed(needs_ranges=True,
                   first="moeperf record --part parts -- "
                         "torchrun --nnodes 2 --node-rank 1 --nproc-per-node 8 train.py"),
        "mpirun --hostfile hosts -n 16 moeperf record --part parts -- python train.py":
            Listed("needs hosts; harness/cli/hosts has several launchers"),
        "moeperf record -o run.db --rules my.yaml --from parts": Listed(
            needs_ranges=True, first="rm -r run.db*",
            more='&& test "$(sqlite3 run.db "SELECT count(*) FROM v_rank")" = 4'),
        """moeperf record -o run.db --rules my.yaml --from /local/parts --hosts hosts --copy "scp -qr {from} {to}\"""":
            Listed("needs another host; harness/cli/hosts has disks of one's own"),
        "moeperf run quickstart --pairs 12 --trainer ./with-collector --against $bin/moeperf-train":
            Listed(more=PAIRS),
    },
    "profiler/README.md": {
        """MOEPERF_DEVICE_SPOOLS=$PWD/spools CUDA_INJECTION64_PATH=/path/to/libmoeperf-cupti.so \\
NCCL_PROFILER_PLUGIN=/path/to/libmoeperf-nccl.so torchrun train.py""": Listed(needs_ranges=True),
    },
    "results/store/README.md": {
        'sqlite3 results.db "SELECT system, ms_per_iteration, speedup_vs_ep FROM v_speedup"': Listed(
            first="cp out/quickstart/results.db ."),
    },
}

# Files that a page shows, and how each begins.
FILES = {"harness/record/README.md": {"my.yaml": "rules:"}}
