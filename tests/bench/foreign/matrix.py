#!/usr/bin/env python3
"""Whether moeperf finds what was put into programs of PyTorch, transformers and DeepSpeed.

    python3 -m venv foreign && foreign/bin/pip install torch transformers accelerate deepspeed nvtx
    python3 tests/bench/foreign/matrix.py --bin build/release/bin --python foreign/bin/python3

Each library's toy model (program.py) runs on two ranks with nothing, a slow rank or a hot expert put in,
and is recorded each way: `ranges`, PyPI's nvtx by hand under `moeperf record`, whose proposed rules are
taken as they are; `hook`, moeperf_experts.annotate() under `moeperf record`, without rules; `profiler`,
PyTorch's traces under `moeperf import`.  Of `moeperf report --stragglers` counts the first finding that is
chronic, of whatever cause: it has to be what was put in, and with nothing put in no finding may call a rank
slow or overloaded for good.  `--rounds` repeats every cell, whatever came.  `--under "chrt -r 1"` starts the
programs with it, where others use the machine.  Prints a table; exit status 1 if an answer is wrong.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(__file__).resolve().parent / "program.py"
LIBRARIES, WAYS, FAULTS = ("torch", "transformers", "deepspeed"), ("ranges", "hook", "profiler"), (
    "none", "slow", "hot")


class Recording:
    """One run: its commands, each as a user would type it."""

    def __init__(self, arguments, folder):
        self.bin, self.folder, self.commands = arguments.bin.resolve(), folder, 0
        python = pathlib.Path(arguments.python).absolute()
        self.under = shlex.split(arguments.under)
        self.program = [str(python.parent / "torchrun"), "--nproc-per-node", "2", str(PROGRAM)]
        self.environment = os.environ | {
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "MOEPERF_EXPERTS": "counts",
            "PATH": f"{self.bin}:{python.parent}:{os.environ['PATH']}"}

    def run(self, *command):
        self.commands += 1
        done = subprocess.run(self.under + [str(word) for word in command], cwd=self.folder, text=True,
                              capture_output=True, env=self.environment)
        if done.returncode:
            sys.exit(f"{shlex.join(map(str, command))}: status {done.returncode}\n{done.stderr}")
        return done.stdout + done.stderr

    def record(self, library, way, fault):
        """Leaves run.db; returns the run's report."""
        program = self.program + [library, "--fault", fault, "--record", way]
        (self.folder / "moeperf_experts.py").write_text(
            self.run("moeperf", "show", "moeperf_experts.py"), encoding="utf-8")
        if way == "profiler":
            self.run(*program)
            self.run("moeperf", "import", *sorted(self.folder.glob("rank*.json.gz")),
                     "--db", "run.db", "--loads", "counts")
        else:
            said = self.run("moeperf", "record", "-o", "run.db", "--", *program)
            again = re.search(r"^  (moeperf record .*--from .*)$", said, re.MULTILINE)
            if again:  # what it says is to be typed next
                self.run(*shlex.split(again[1]))
        return json.loads(self.run("moeperf", "report", "--db", "run.db", "--stragglers",
                                   "--json"))["rows"][-1]["analysis"]


def found(analysis, fault):
    """(rank, cause, layer) of the first finding that is chronic, or None; with nothing put in, of the first
    that calls a rank slow or overloaded."""
    for finding in analysis["findings"]:
        calls = finding["rank"] is not None and finding["cause"] in ("slow rank", "routing")
        if finding["chronic"] and (calls or fault != "none"):
            return finding["rank"], finding["cause"], finding["layer"]
    return None


def is_right(library, fault, answer, hottest):
    if fault == "slow":
        return answer == (1, "slow rank", 1)
    if fault == "hot" and library == "deepspeed":  # it pads all experts' inputs to one size
        return hottest == (1, 3) and (answer is None or answer[1] not in ("slow rank", "routing"))
    if fault == "hot":
        return answer == (1, "routing", 1) and hottest == (1, 3)
    return answer is None


def run_cell(arguments, cell, number):
    """One run: (what was found in words, whether it is right, seconds, commands)."""
    library, way, fault = cell
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if arguments.keep:
            folder = arguments.keep.resolve() / "-".join((*cell, str(number)))
            folder.mkdir(parents=True)
        recording, began = Recording(arguments, folder), time.monotonic()
        analysis = recording.record(library, way, fault)
        seconds = time.monotonic() - began
    balance = analysis["balance"] or {}
    hottest = balance.get("hottest_layer"), balance.get("hottest_expert")
    answer = found(analysis, fault)
    text = "nobody" if answer is None else "rank {}, {}, layer {}".format(*answer)
    if fault == "hot":
        text += ", expert {1} of layer {0}".format(*hottest)
    return text, is_right(library, fault, answer, hottest), seconds, recording.commands


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder with moeperf")
    parser.add_argument("--python", default=sys.executable, help="a Python that has the libraries")
    parser.add_argument("--only", default="", help="e.g. torch,slow: cells with all these words")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each cell (3)")
    parser.add_argument("--under", default="", help="a command that starts each command, as chrt")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for what was recorded")
    arguments = parser.parse_args()
    wrong = 0
    print(f"{'library':13}{'recorded':10}{'put in':8}{'round':>6}  {'found':46}{'right':7}{'s':>5}"
          f"{'commands':>10}")
    words = set(filter(None, arguments.only.split(",")))
    for number in range(1, arguments.rounds + 1):
        for cell in itertools.product(LIBRARIES, WAYS, FAULTS):
            if not words <= set(cell):
                continue
            text, right, seconds, commands = run_cell(arguments, cell, number)
            wrong += not right
            library, way, fault = cell
            print(f"{library:13}{way:10}{fault:8}{number:6}  {text:46}{'yes' if right else 'NO':7}"
                  f"{seconds:5.0f}{commands:10}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
