#!/usr/bin/env python3
"""Predicted iterations on this machine, calibrated, beside measured ones; prints a table or JSON.

    python3 tests/bench/calibrated.py --bin build/release/bin --text out/text/corpus

Calibrates with two ranks (or takes --cluster FILE), trains expert parallelism and FSSDP with skewed
and with balanced routes, in --rounds interleaved rounds, and predicts the same jobs.  --mode prefill
and decode serve instead, behind --context cached tokens of each of --batch sequences.  Nothing is
fitted to the runs.  Let nothing else run meanwhile: `measured` is the clock on the wall, `processor`
the processor's time of the rank that waited least, which others on the machine hardly change; where
the two are far apart the machine was busy and the measured ratio says little.  `--at-most X` makes
the exit status 1 if a predicted time is further than that share from the measured one.
"""

import argparse
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile

SUITE = """\
suite: calibrated
repeat: {rounds}
common:
  ranks: 2
  layers: 2
  width: 256
  heads: 4
  experts: 32
  expert-width: 1024
  sequence: 128
  batch: {batch}
  mode: {mode}
  context: {context}
  iterations: {iterations}
  text: default
  skew-share: 0.7
  skew-experts: 4
jobs:
  - {{name: ep skewed, system: ep, routing: skewed}}
  - name: frugal skewed
    system: frugal
    routing: skewed
    options: {{reshard-interval: 2}}
  - {{name: ep balanced, system: ep, routing: balanced}}
  - name: frugal balanced
    system: frugal
    routing: balanced
    options: {{reshard-interval: 2}}
"""

# What the trainer is: 32-bit floats, AdamW without a master copy, bytes as tokens, attention whose
# scores stay in the cache.
TRAINER = {"precision": "fp32", "gradient-bytes": 4, "optimizer-bytes": 8, "vocabulary": 256,
           "attention": "flash"}

# Per run and steady iteration: the wall's time, and the processor's of the rank that waited least.
MEASURED = """
SELECT v_run.job, i.ms, (SELECT cpu_ns / 1e6 FROM v_span AS s
                         WHERE s.run_id = i.run_id AND s.iteration = i.iteration
                           AND s.phase = 'iteration' ORDER BY s.wait_ns LIMIT 1)
FROM v_iteration AS i JOIN v_run USING (run_id) WHERE i.steady
"""


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of moeperf")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="file or folder")
    parser.add_argument("--cluster", type=pathlib.Path, help="calibrated before, for two ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=16, help="per round (16)")
    parser.add_argument("--mode", choices=("train", "prefill", "decode"), default="train")
    parser.add_argument("--context", type=int, default=0, help="tokens in a cache (0)")
    parser.add_argument("--batch", type=int, default=32, help="sequences (32)")
    parser.add_argument("--at-most", type=float, help="exit status 1 beyond this share, as 0.1")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def run(words, folder):
    words = [str(word) for word in words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def calibrate(arguments, moeperf, folder):
    if arguments.cluster:
        return arguments.cluster.resolve()
    run([moeperf, "calibrate", "-o", "here.yaml", "--ranks", 2, "--quiet"], folder)
    return pathlib.Path(folder) / "here.yaml"


def measure(arguments, moeperf, folder):
    """Milliseconds of an iteration by job: on the wall, and of the processor."""
    run([moeperf, "run", "suite.yaml", "--db", "results.db", "--work", "work", "--quiet",
         "--text", arguments.text.resolve()], folder)
    jobs = {}
    with sqlite3.connect(pathlib.Path(folder) / "results.db") as database:
        for job, wall, processor in database.execute(MEASURED):
            jobs.setdefault(job, []).append((wall, processor))
    return {job: tuple(statistics.median(column) for column in zip(*rows))
            for job, rows in jobs.items()}


def predict(moeperf, cluster, folder):
    settings = [word for name, value in TRAINER.items()
                for word in ("--set", f"predict.{name}={value}")]
    text = run([moeperf, "predict", "--cluster", cluster, "--suite", "suite.yaml", "--json",
                "--quiet", *settings], folder)
    return {row["job"]: row["ms_per_iteration"] for row in json.loads(text)["systems"]}


def compare(arguments):
    moeperf = arguments.bin.resolve() / "moeperf"
    with tempfile.TemporaryDirectory() as folder:
        suite = SUITE.format(rounds=arguments.rounds, iterations=arguments.iterations,
                             mode=arguments.mode, context=arguments.context,
                             batch=arguments.batch)
        (pathlib.Path(folder) / "suite.yaml").write_text(suite)
        before = os.getloadavg()[0]
        cluster = calibrate(arguments, moeperf, folder)
        measured = measure(arguments, moeperf, folder)
        predicted = predict(moeperf, cluster, folder)
    cases = [{"case": job, "measured_ms": wall, "processor_ms": processor,
              "predicted_ms": predicted[job], "ratio": predicted[job] / wall,
              "ratio_to_processor": predicted[job] / processor}
             for job, (wall, processor) in measured.items()]
    return {"load_before": before, "load_after": os.getloadavg()[0], "cases": cases,
            "worst": max(abs(case["ratio"] - 1) for case in cases)}


def print_table(result):
    print(f"{'case':16} {'measured ms':>12} {'processor':>10} {'predicted':>10} {'ratio':>7} "
          f"{'to processor':>13}")
    for case in result["cases"]:
        print(f"{case['case']:16} {case['measured_ms']:12.1f} {case['processor_ms']:10.1f} "
              f"{case['predicted_ms']:10.1f} {case['ratio']:7.3f} "
              f"{case['ratio_to_processor']:13.3f}")
    print(f"worst: {100 * result['worst']:.1f} % from measured; "
          f"load of the machine {result['load_before']:.1f} before, {result['load_after']:.1f} after")


def main():
    arguments = parse_arguments()
    result = compare(arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        print_table(result)
    if arguments.at_most is not None and result["worst"] > arguments.at_most:
        sys.exit(1)


if __name__ == "__main__":
    main()
