#!/usr/bin/env python3
"""Serves many small jobs in one process and follows what memory the supervisor has of its own.

    bench/serve/run.py [--jobs 100000] [--refmill target/release/refmill]

Standard library only. One image of a few bytes under as many names; one small tensor and a report each. Private
anonymous memory from /proc/PID/smaps_rollup, in KiB, as the jobs are done; the warm-up is the first tenth. Prints the
line for bench/RESULTS.md, and ends with 1 where the growth after the warm-up is over the limit.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_KIB = 5 * 1024
RECIPE = """
name = "small"

[[tensor]]
name = "small"
fit = "stretch"
size = 16
filter = "bicubic"
layout = "nchw"
dtype = "u8"
"""


def own_memory(pid):
    """Anonymous memory of a process, in KiB, shared pages by their share."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss_Anon: +(\d+) kB", text, re.M)[1])


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def done(refmill, folder):
    status = subprocess.run([refmill, "status", "--json"], cwd=folder, check=True, capture_output=True)
    return json.loads(status.stdout)["states"]["done"]["jobs"]


def submit(refmill, folder, jobs):
    images = folder / "images"
    images.mkdir()
    for number in range(jobs):
        # A file has so many names at most.
        if number % 10000 == 0:
            first = images / f"i{number}.png"
            first.write_bytes((ROOT / "fixtures/images/rgba.png").read_bytes())
        else:
            os.link(first, images / f"i{number}.png")
    (folder / "small.toml").write_text(RECIPE)
    names = [str(images / f"i{number}.png") for number in range(jobs)]
    for start in range(0, jobs, 1000):
        command = [refmill, "submit", "--recipe", "small.toml", "--no-image", *names[start : start + 1000]]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--refmill", default=str(ROOT / "target/release/refmill"))
    parser.add_argument("--workers", default="2")
    arguments = parser.parse_args()
    refmill, jobs = str(Path(arguments.refmill).resolve()), arguments.jobs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        submit(refmill, folder, jobs)
        began = time.monotonic()
        command = [refmill, "serve", "--drain", "--device", "cpu", "--workers", arguments.workers, "--json"]
        samples = []
        with open(folder / "log", "w") as log:
            server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log)
            while server.poll() is None:
                time.sleep(2)
                try:
                    samples.append((done(refmill, folder), own_memory(server.pid), open_files(server.pid)))
                except (OSError, TypeError):
                    break
        seconds = time.monotonic() - began
        if server.wait() != 0 or done(refmill, folder) != jobs:
            sys.exit((folder / "log").read_text()[-2000:])
    warm = [sample for sample in samples if sample[0] >= jobs / 10]
    step = max(1, len(warm) // 8)
    for count, memory, files in [*warm[::step], warm[-1]]:
        print(f"{count:>8} done {memory:>7} KiB {files:>4} descriptors")
    growth = max(memory for _, memory, _ in warm[-3:]) - warm[0][1]
    print(f"{jobs} jobs in {seconds:.0f} s, {jobs / seconds:.0f} a second; own memory {warm[0][1]} KiB after the first")
    print(f"tenth, {warm[-1][1]} KiB at the end: {growth:+} KiB; the limit is {LIMIT_KIB} KiB")
    return 1 if growth > LIMIT_KIB else 0


if __name__ == "__main__":
    sys.exit(main())
