"""The commands that a page of documentation shows: those of its indented and fenced blocks, and those
in `single quotes` in its tables."""

import re
import shlex
import subprocess

# What a command begins with; anything else in a block or in quotes is output, a file or a name.
PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S* +)*"  # variables for it
    r"(?:moeperf(?:-train|-bench|-text)?|(?:build|ci|\.ci)/\S+|mpirun|torchrun|sqlite3|python3?|pip"
    r"|cmake|ctest|mkdir|cp|name|bin|for|PATH|[A-Z_]+=\S+)(?:[ =]|$)")

# Named in a table, and nothing that is typed.
NAME = re.compile(r"ci/perf-baseline|\S+\.yaml|\S+/|name|moeperf (?:run|record|show)")


def is_whole(text):
    """Whether a shell needs no further line."""
    return not text.endswith("\\") and not subprocess.run(
        ["bash", "-n"], input=text, text=True, capture_output=True).returncode


def of_block(lines):
    """The commands of a block without blank lines.  Where one is behind a `$`, all are, and the rest
    is what they print."""
    marked = [line[2:] for line in lines if line.startswith("$ ")]
    lines = marked or lines
    if lines[0].startswith("SELECT "):
        return ["sqlite3 out/results.db " + shlex.quote("\n".join(lines))]
    if not PROGRAMS.match(lines[0]):
        return []
    commands, text = [], ""
    for line in lines:
        text = f"{text}\n{line}" if text else line
        if is_whole(text):
            commands.append(text)
            text = ""
    return commands + [text] if text else commands


def without_comment(command):
    """As it is listed: a comment behind a command says what it is for."""
    return re.sub(r"(^|\s+)#.*$", "", command) if "\n" not in command else command


def parts(text):
    """The page's blocks without blank lines, as lists of lines, and its lines of tables, as texts."""
    block, fenced, before = [], False, ""
    for line in text.splitlines() + [""]:
        is_code = fenced or (line.startswith("    ") and (block or not before.strip()))
        if line.startswith("```"):
            fenced = not fenced
            is_code = False
        if is_code and line.strip():
            block.append(line if fenced else line[4:])
        elif block:
            yield block
            block = []
        if line.startswith("|"):
            yield line
        if not is_code or not line.strip():
            before = line


def of_page(text):
    """All commands of a page in their order; some may be there twice."""
    commands = []
    for part in parts(text):
        if isinstance(part, list):
            commands += of_block(part)
        else:
            commands += [quoted for quoted in re.findall(r"`([^`]+)`", part)
                         if PROGRAMS.match(quoted + " ") and not NAME.fullmatch(quoted)]
    return list(filter(None, map(without_comment, commands)))


def file_of_page(text, begins):
    """The block that begins so, as a file."""
    return next("\n".join(part) + "\n" for part in parts(text)
                if isinstance(part, list) and part[0].startswith(begins))
