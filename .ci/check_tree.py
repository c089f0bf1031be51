#!/usr/bin/env python3
"""Checks the rules of CONTRIBUTING.md that a compiler cannot: file length, forbidden words, where unsafe code may be,
and that deny.toml gives a reason for each direct dependency.

Standard library only. Prints every fault as FILE: what, and exits with 1 if there is one.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400
COUNTED = {".rs", ".py", ".cu", ".sh", ".mjs"}
BINARY = {".jpg", ".png", ".webp", ".gif", ".tif", ".bmp", ".avif", ".heic", ".icc", ".bin"}
# What must not stand in the tree, and why. This file is the one that may name it.
FORBIDDEN = [
    (re.compile(r"(?<![\w.])/(work|root|home|mnt|Users)/\w"), "a path of one machine"),
    (re.compile(r"index\.crates\.io|registry\.npmjs|files\.pythonhosted|\.cargo/registry"), "the host of a registry"),
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "work left undone"),
    (re.compile(r"\b(issue|pull request|PR) #?\d+\b", re.I), "an issue number"),
    (re.compile(r"\b(ChatGPT|Copilot|LLM|Anthropic|Claude)\b", re.I), "a tool that has no part in the project"),
]
# The fences around unsafe code, with what they hold.
UNSAFE = [
    "worker/src/gpu/",
    "worker/src/channel.rs",
    "worker/src/sandbox/attempt.rs",
    "worker/examples/rogue_worker/",
    "supervisor/src/pool/spawn",
]
# The module names that say nothing.
NAMELESS = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def tracked():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [Path(name) for name in sorted(names) if (ROOT / name).is_file()]


def is_test(path):
    return "tests" in path.parts or "benches" in path.parts or path.stem == "tests"


def check_length(path, text):
    if path.suffix not in COUNTED or is_test(path):
        return
    lines = text.split("\n#[cfg(test)]\nmod tests {")[0].count("\n")
    if lines > MAX_LINES:
        yield f"has {lines} lines without tests, the limit is {MAX_LINES}"


def check_words(path, text):
    if path == Path(".ci/check_tree.py") or path.name == "Cargo.lock" or path == Path("LICENSE-APACHE"):
        return
    for pattern, what in FORBIDDEN:
        found = pattern.search(text)
        if found:
            line = text.count("\n", 0, found.start()) + 1
            yield f"line {line} has `{found[0]}`, {what}"


def check_unsafe(path, text):
    if path.suffix != ".rs" or is_test(path) or path.parts[0] == "fuzz":
        return
    fenced = any(str(path).startswith(fence) for fence in UNSAFE)
    code = re.sub(r"//.*", "", text.split("\n#[cfg(test)]\nmod tests {")[0])
    if not fenced and re.search(r"\bunsafe\b\s*(\{|fn|impl|extern)", code):
        yield "has unsafe code, which is fenced in " + ", ".join(UNSAFE)


def check_name(path, _):
    if path.suffix == ".rs" and NAMELESS & {path.stem, *path.parts}:
        yield "has a name that says nothing"


def check_reasons():
    """Each direct dependency of the workspace stands in deny.toml with a reason."""
    reasons = dict(re.findall(r"^#   (\S+) +(\S.*)$", (ROOT / "deny.toml").read_text(), re.M))
    used = set()
    for manifest in ("Cargo.toml", "worker/Cargo.toml", "supervisor/Cargo.toml"):
        tables = tomllib.loads((ROOT / manifest).read_text())
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            used |= set(tables.get(kind, {}))
    for name in sorted(used - set(reasons)):
        yield f"deny.toml: gives no reason for the dependency {name}"
    for name in sorted(set(reasons) - used):
        yield f"deny.toml: gives a reason for {name}, which is no dependency"


def main():
    faults, paths = [], tracked()
    for path in paths:
        if path.suffix in BINARY or path.name.endswith("-APACHE"):
            continue
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            faults.append(f"{path}: is not text, and its ending is not one of {', '.join(sorted(BINARY))}")
            continue
        for check in (check_length, check_words, check_unsafe, check_name):
            faults += [f"{path}: {what}" for what in check(path, text)]
    faults += check_reasons()
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(paths)} files checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
