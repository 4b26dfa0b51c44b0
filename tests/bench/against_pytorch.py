#!/usr/bin/env python3
"""Our training step beside PyTorch's, in turns on the same machine; prints a table or JSON.

    python3 tests/bench/against_pytorch.py --trainer build/release/bin/moeperf-train \\
        --python python-with-torch --text out/text/corpus --threads 1

Both train the same model on the same text with the same number of threads; PyTorch's side is
pytorch_step.py, first checked against the golden files.  A round is one run of each, so that both
meet the same moods of the machine; the ratio is the median of the rounds' ratios.  `--at-least X`
makes the exit status 1 if the ratio is below X.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
SIZES = {
    "layers": 4, "width": 128, "heads": 4, "experts": 16, "expert-width": 512, "sequence": 128,
    "batch": 16,
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trainer", type=pathlib.Path, required=True, help="moeperf-train")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="file or folder")
    parser.add_argument("--gate", choices=["gshard", "switch"], default="gshard")
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=20, help="timed, per round (20)")
    parser.add_argument("--warm-up", type=int, default=5, help="iterations before (5)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="PyTorch's side with torch.compile")
    parser.add_argument("--at-least", type=float, help="exit status 1 below this ratio")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def sizes_of(arguments):
    return {name: getattr(arguments, name.replace("-", "_")) for name in SIZES}


def write_job(arguments, folder):
    """One rank, experts where they are: the plain step, without communication."""
    job = sizes_of(arguments) | {
        "name": "step", "system": "ep", "ranks": 1, "gate": arguments.gate,
        "text": arguments.text.resolve(), "threads": arguments.threads,
        "iterations": arguments.warm_up + arguments.iterations,
    }
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text("".join(f"{name}: {value}\n" for name, value in job.items()))
    return path


def ours(arguments, job):
    """Milliseconds of each timed step, and the last loss."""
    steps = [line.split() for line in run([arguments.trainer, job, "--progress"]).splitlines()
             if line.startswith("progress ")]
    expected = arguments.warm_up + arguments.iterations
    if len(steps) != expected:
        sys.exit(f"{arguments.trainer}: {len(steps)} progress lines, expected {expected}")
    return [float(step[4]) for step in steps[arguments.warm_up:]], float(steps[-1][3])


def theirs(arguments):
    """What pytorch_step.py reports."""
    command = [arguments.python, FOLDER / "pytorch_step.py", "--text", arguments.text,
               "--gate", arguments.gate, "--threads", arguments.threads,
               "--iterations", arguments.iterations, "--warm-up", arguments.warm_up]
    for name, value in sizes_of(arguments).items():
        command += [f"--{name}", value]
    return json.loads(run(command + (["--compile"] if arguments.compile else [])))


def check_their_model(arguments):
    golden = FOLDER.parent / "golden" / f"{arguments.gate}.bin"
    run([arguments.python, FOLDER / "pytorch_step.py", "--check", golden])


def compare(arguments):
    check_their_model(arguments)
    tokens = arguments.batch * arguments.sequence
    rounds, report = [], {}
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(arguments, folder)
        for _ in range(arguments.rounds):
            times, loss = ours(arguments, job)
            report = theirs(arguments)
            milliseconds = statistics.median(times)
            rounds.append({
                "moeperf_ms": round(milliseconds, 3), "moeperf_loss": loss,
                "pytorch_ms": report["ms_per_iteration"], "pytorch_loss": report["last_loss"],
                "ratio": round(report["ms_per_iteration"] / milliseconds, 3),
                "ratio_of_fastest": round(report["fastest_ms"] / min(times), 3),
            })
    middle = {key: statistics.median(of_round[key] for of_round in rounds)
              for key in ("moeperf_ms", "pytorch_ms", "ratio", "ratio_of_fastest")}
    return {
        "model": sizes_of(arguments) | {"gate": arguments.gate}, "threads": arguments.threads,
        "torch": report["torch"], "compiled": report["compiled"], "rounds": rounds,
        "moeperf_tokens_per_s": round(tokens / middle["moeperf_ms"] * 1e3, 1),
        "pytorch_tokens_per_s": round(tokens / middle["pytorch_ms"] * 1e3, 1),
        "ratio": middle["ratio"], "ratio_of_fastest": middle["ratio_of_fastest"],
    }


def print_table(result):
    print(f"{'round':>8} {'moeperf ms':>12} {'PyTorch ms':>12} {'ratio':>8} {'of fastest steps':>17}")
    for number, of_round in enumerate(result["rounds"], start=1):
        print(f"{number:8} {of_round['moeperf_ms']:12.2f} {of_round['pytorch_ms']:12.2f} "
              f"{of_round['ratio']:8.2f} {of_round['ratio_of_fastest']:17.2f}")
    print(f"moeperf {result['moeperf_tokens_per_s']:.0f} tokens/s, PyTorch {result['torch']} "
          f"{result['pytorch_tokens_per_s']:.0f} tokens/s, {result['threads']} threads: "
          f"{result['ratio']:.2f} times as fast")


def main():
    arguments = parse_arguments()
    result = compare(arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        print_table(result)
    if arguments.at_least is not None and result["ratio"] < arguments.at_least:
        sys.exit(1)


if __name__ == "__main__":
    main()
