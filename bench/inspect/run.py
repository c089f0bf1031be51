#!/usr/bin/env python3
"""Times the verdict on many files: `refmill inspect --json` against `exiftool -json` and `exiv2 -pa`.

Each tool gets the same list of files in one process and writes to a pipe that is drained. Rounds are interleaved;
what counts is the ratio within a round. Every file is in the page cache. refmill runs twice: with one worker, and
with one worker a core. Its time includes starting the confined workers and reading every byte, which the peers do not.

    bench/inspect/run.py [--rounds 5] [--copies 40] [--refmill target/release/refmill]

Needs exiftool and exiv2 on the path; Python's standard library alone.
"""

import argparse
import datetime
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CLASSES = ["web", "phone12", "adobe", "webp", "png"]
BEGIN, END = "<!-- inspect:begin -->", "<!-- inspect:end -->"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=40, help="of each file of the image set")
    parser.add_argument("--refmill", type=Path, default=ROOT / "target/release/refmill")
    parser.add_argument("--images", type=Path, default=SHARED / "bench/images/set")
    parser.add_argument("--corpus", type=Path, default=SHARED / "corpus/files")
    parser.add_argument("--no-write", action="store_true", help="leave bench/RESULTS.md alone")
    return parser.parse_args()


def gather(arguments, folder):
    """Copies of each class, and the corpus as it is."""
    lists = {}
    for name in CLASSES:
        sources = sorted((arguments.images / name).iterdir())
        files = []
        for copy in range(arguments.copies):
            for source in sources:
                target = folder / f"{name}-{copy:03}-{source.name}"
                shutil.copyfile(source, target)
                files.append(target)
        lists[name] = files
    if arguments.corpus.is_dir():
        lists["corpus"] = sorted(path for path in arguments.corpus.iterdir() if path.stat().st_size > 0)
    return lists


def tools(arguments):
    refmill = [str(arguments.refmill), "inspect", "--json"]
    return {
        "refmill, 1 worker": refmill + ["--workers", "1"],
        "refmill": refmill + ["--workers", str(os.cpu_count())],
        "exiv2": ["exiv2", "-q", "-pa"],
        "exiftool": ["exiftool", "-json"],
    }


def measure(command, files):
    """Wall and CPU time in ms a file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command + [str(file) for file in files], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    printed = 0
    while chunk := process.stdout.read(1 << 16):
        printed += len(chunk)
    process.wait()
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # exiv2 prints nothing of files without EXIF, XMP or IPTC.
    if printed == 0 and command[0] != "exiv2":
        sys.exit(f"{command[0]} printed nothing")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000 / len(files), cpu * 1000 / len(files)


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def version(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()


def table(times, lists, index, base):
    names = list(next(iter(times.values())))
    head = ["files", "count", "mean KiB"] + [f"{name}, ms" for name in names]
    head += [f"{peer} / {base}" for peer in ("exiv2", "exiftool")]
    rows = [head, ["---"] * len(head)]
    for kind, measured in times.items():
        size = sum(file.stat().st_size for file in lists[kind]) / len(lists[kind]) / 1024
        cells = [kind, str(len(lists[kind])), f"{size:.0f}"]
        cells += [spread([run[index] for run in measured[name]], 3) for name in names]
        for peer in ("exiv2", "exiftool"):
            ratios = [a[index] / b[index] for a, b in zip(measured[peer], measured[base])]
            cells.append(spread(ratios, 1))
        rows.append(cells)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def write(text):
    path = ROOT / "bench/RESULTS.md"
    whole = path.read_text() if path.exists() else "# Results\n"
    if BEGIN not in whole:
        whole = whole.rstrip("\n") + f"\n\n## Inspection\n\n{BEGIN}\n{END}\n"
    front, rest = whole.split(BEGIN, 1)
    path.write_text(f"{front}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="refmill-bench-") as folder:
        lists = gather(arguments, Path(folder))
        commands = tools(arguments)
        times = {kind: {name: [] for name in commands} for kind in lists}
        for number in range(arguments.rounds + 1):
            for kind, files in lists.items():
                for name, command in commands.items():
                    measured = measure(command, files)
                    # The first round fills the page cache and is not counted.
                    if number > 0:
                        times[kind][name].append(measured)
        text = "\n".join([
            f"{datetime.date.today()}, {model()}, {os.cpu_count()} threads visible, {arguments.rounds} interleaved rounds,"
            f" exiftool {version(['exiftool', '-ver'])}, {version(['exiv2', '--version'])}.",
            "Median (least to most over the rounds) a file, process start included; ratios within a round.",
            "",
            "Wall time, refmill with one worker a core (the peers use one core):",
            "",
            table(times, lists, 0, "refmill"),
            "",
            "CPU time of all processes, user and system:",
            "",
            table(times, lists, 1, "refmill, 1 worker"),
        ])
    print(text)
    if not arguments.no_write:
        write(text)


main()
