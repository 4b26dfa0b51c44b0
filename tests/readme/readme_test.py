#!/usr/bin/env python3
"""Follows README and the pages it leads to, with what is installed and nothing else.

    readme_test.py SOURCES BUILD CMAKE [ANNOTATED]

Installs BUILD into a folder like a checkout, as its build/release, and runs every command of the pages
there, as it is written or as listed.py says.  What is installed must not know SOURCES or BUILD.
ANNOTATED is a program that makes NVTX ranges, in the place of python's and torchrun's; without it
commands that need some are left out."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import commands
from listed import FEW, FILES, LISTED, Listed

LIMIT = 120  # seconds of a command that hangs

# One iteration, as the program of the pages would annotate it; it tells its own ranges.
RANGES = """\
+all_to_all
=200
-
+experts
=200
-
+optimizer
-
+Optimizer.step#Adam.step
-
"""


# Two ranks of each host.
TORCHRUN = """\
first=0
case "$*" in *--node-rank\\ 1*) first=2 ;; esac
for RANK in $first $((first + 1)); do
    export RANK
    TELL &
done
wait
"""


def anchors(text):
    """Of headings, as they are linked to."""
    return {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in text.splitlines() if line.startswith("#")}


def write_script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


class Checkout:
    """A folder like a checkout: sources, and an installation as its build."""

    def __init__(self, work, sources, build, cmake, annotated=""):
        self.root, self.stand_ins = work / "moeperf", work / "stand-ins"
        self.sources, self.build, self.annotated = sources, build, annotated
        self.failures, self.ran, self.left_out = [], 0, 0
        shutil.copytree(sources, self.root, symlinks=True,
                        ignore=shutil.ignore_patterns(".git", "build", "out"))
        subprocess.run([cmake, "--install", build, "--prefix", self.root / "build/release"],
                       check=True, stdout=subprocess.DEVNULL)
        for library in (self.root / "build/release/lib").iterdir():
            library.chmod(0o644)  # as some distributions' CMake installs it, and some not
        self.make_stand_ins()
        self.environment = dict(os.environ)
        self.environment.pop("MOEPERF_TEXT", None)
        self.environment["PATH"] = ":".join(
            [str(self.stand_ins), str(self.root / "build/release/bin"), os.environ["PATH"]])

    def make_stand_ins(self):
        """Programs of others that a test can't have: nothing is built, downloaded or installed."""
        self.stand_ins.mkdir()
        write_script(self.stand_ins / "cmake", f'echo "$*" >>{self.stand_ins}/cmake.log\n')
        write_script(self.stand_ins / "dpkg-query", "echo installed\n")
        (self.stand_ins / "ranges").write_text(RANGES * 3)
        if self.annotated:
            tell = f"{self.annotated} told <{self.stand_ins}/ranges"
            write_script(self.stand_ins / "python", f"exec {tell}\n")
            write_script(self.stand_ins / "torchrun", TORCHRUN.replace("TELL", tell))

    def shell(self, text):
        """Exit status and everything that was said."""
        done = subprocess.run(["timeout", str(LIMIT), "bash", "-e", "-c", text], cwd=self.root,
                              env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
        return done.returncode, done.stdout

    def fail(self, name, why):
        self.failures.append(name)
        print(f"FAILED  {name}\n{why}", flush=True)

    def run(self, page, command, listed, values):
        if listed.reason or (listed.needs_ranges and not self.annotated):
            print(f"not run {command}: {listed.reason or 'there are no NVTX headers'}", flush=True)
            self.left_out += 1
            return
        start = time.monotonic()
        text = "\n".join([*values, listed.first, f"{command} {listed.more}".rstrip()])
        status, said = self.shell(text)
        if status:
            self.fail(f"{page}: {command}", f"exit status {status}\n{said[-3000:]}")
        else:
            print(f"{time.monotonic() - start:6.2f} s {command} {listed.more}".rstrip(), flush=True)
        self.ran += 1

    def follow(self, page, seen):
        known = LISTED[page]
        text = (self.root / page).read_text()
        for name, begins in FILES.get(page, {}).items():
            (self.root / name).write_text(commands.file_of_page(text, begins))
        found = commands.of_page(text)
        values = []  # variables that later commands of the page use
        for command in [*known, *found]:
            if command not in found:
                self.fail(f"{page}: {command}", "is listed, and the page has no such command")
        for command in found:
            if re.fullmatch(r"\w+=\S+", command):
                values.append(command)
            elif (command not in seen) or command in known and (page, command) not in seen:
                seen |= {command, (page, command)}
                self.run(page, command, known.get(command, Listed()), values)

    def check_installed(self):
        """What is installed works wherever it is put."""
        for path in (self.root / "build/release").rglob("*"):
            for folder in (self.sources, self.build):
                if path.is_file() and str(folder).encode() in path.read_bytes():
                    self.fail(str(path), f"knows {folder}, where it was built")

    def check_advice(self):
        """In an empty folder a suite lacks its text, and the sentence says a command that works."""
        status, said = self.shell("mkdir -p empty && cd empty && moeperf run ci")
        advice = re.search(r"(\S+) prepares it", said)
        if status != 2 or not advice:
            self.fail("moeperf run ci", f"exit status {status} without a text\n{said}")
            return
        status, said = self.shell(f"cd empty && {advice[1]} && moeperf run ci {FEW}")
        if status:
            self.fail(f"{advice[1]} && moeperf run ci", said)

    def check_papers(self):
        """One version, and what strangers look for."""
        _, said = self.shell("moeperf --version")
        release = said.split()[1] if said.count(" ") > 1 else "none"
        for name, words in (("CITATION.cff", f"\nversion: {release}\n"), ("CHANGELOG.md", release),
                            ("LICENSE", "Apache License"), ("CONTRIBUTING.md", "Commits"),
                            ("build/release/share/doc/moeperf/LICENSE", "Apache License"),
                            ("build/release/share/man/man1/moeperf-run.1", "moeperf run SUITE")):
            path = self.root / name
            if not path.exists() or words not in path.read_text():
                self.fail(name, f"lacks {words!r}")

    def check_pages(self):
        """Pages lead to what is there, and those with commands are followed."""
        for page in sorted(self.sources.rglob("*.md")):
            name = str(page.relative_to(self.sources))
            if name.startswith(("build/", "out/")):
                continue
            text = page.read_text()
            if name not in LISTED and commands.of_page(text):
                self.fail(name, "has commands, and listed.py does not have the page")
            for to, place in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
                target = page.parent / to if to else page
                if not target.exists():
                    self.fail(name, f"leads to {to}, which is not there")
                elif place and place not in anchors(target.read_text()):
                    self.fail(name, f"leads to {to}#{place}, a heading that is not there")

    def check_quickstart(self):
        """README's first command builds all that its others need: the stand-in saw what was asked."""
        calls = (self.stand_ins / "cmake.log").read_text()
        if "--target programs" not in calls:
            self.fail("ci/quickstart", f"builds something else than the target programs: {calls}")


def main():
    sources, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="moeperf-readme-") as work:
        checkout = Checkout(pathlib.Path(work), sources, build, *sys.argv[3:])
        checkout.check_installed()
        checkout.check_papers()
        checkout.check_pages()
        checkout.check_advice()
        seen = set()
        for page in LISTED:
            checkout.follow(page, seen)
        checkout.check_quickstart()
        print(f"{checkout.ran} commands ran, {checkout.left_out} did not, "
              f"{len(checkout.failures)} failures")
        return 1 if checkout.failures else 0


sys.exit(main())
