#!/usr/bin/env python3
"""CPU time per image of refmill beside Pillow and sharp, for equal work, in one run of interleaved rounds.

    bench/cpu/run.py --peers DIR --images DIR [--rounds 5] [--classes phone12,adobe,...]

The work, per image: read the file, decode, orient, convert the embedded profile to sRGB, then a 1024 pixel Lanczos
tensor in [-1, 1] and a 224 pixel bicubic CLIP tensor, both f32. Every round runs every tool once for each class.

refmill runs as a user runs it, with one worker process: `refmill run ... --no-image --workers 1`. Its CPU time is user
and system time of the whole process tree; a run over 2N images less a run over N images leaves out the start-up. It
also hashes its input and writes safetensors and report to memory-backed files, which the peers do not.
The peers report their own CPU time, after a warm-up, with one thread, in mode `exact`.

Standard library only here; Pillow and numpy go into a virtual environment, sharp into a folder, both temporary unless
--python and --node name them.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE.parent / "RESULTS.md"
BEGIN, END = "<!-- cpu:begin -->", "<!-- cpu:end -->"
# Images of a class in the shorter of refmill's two runs: about a second of work.
COUNTS = {"phone12": 12, "adobe": 20, "web": 60, "png": 40, "webp": 40}
PEERS = ("pillow", "sharp")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="folder of peer_pillow.py and peer_sharp.mjs")
    parser.add_argument("--images", type=Path, required=True, help="folder with one folder of images a class")
    parser.add_argument("--classes", default=",".join(COUNTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=3.0, help="how long a peer runs in each round")
    parser.add_argument("--refmill", type=Path, default=ROOT / "target/release/refmill")
    parser.add_argument("--python", help="a Python with Pillow and numpy")
    parser.add_argument("--node", type=Path, help="a folder in which sharp is installed")
    parser.add_argument("--peers-only", action="store_true", help="leave refmill out; for trying the peers")
    return parser.parse_args()


def prepare(given, scratch):
    """The Python and the folder of peer_sharp.mjs, installed where none was named."""
    python, node = given.python, given.node
    if python is None:
        environment = scratch / "venv"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        python = str(environment / "bin/python")
        packages = ["numpy==2.4.6", "pillow==13.0.0"]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    if node is None:
        node = scratch / "node"
        node.mkdir()
        subprocess.run(["npm", "install", "--silent", "--no-fund", "sharp@0.35.5"], cwd=node, check=True)
    # A module finds its packages from where it lies.
    shutil.copy(given.peers / "peer_sharp.mjs", node / "peer_sharp.mjs")
    return python, node


def peer_command(peer, given, python, node):
    if peer == "pillow":
        return [python, str(given.peers / "peer_pillow.py")]
    return ["node", str(node / "peer_sharp.mjs")]


def run_peer(command, given, kind, more=()):
    images = ["--images", str(given.images), "--cls", kind, "--threads", "1", "--mode", "exact"]
    done = subprocess.run([*command, *images, *more], check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def copies(folder, sources, count):
    """`count` files with the content of `sources` in turn; refmill would take one name twice for one input."""
    folder.mkdir()
    for index in range(count):
        source = sources[index % len(sources)]
        shutil.copy(source, folder / f"{index:03}{source.suffix}")
    return folder


def run_refmill(given, inputs, out):
    """CPU seconds of the process tree, and the peak RSS in MiB of its largest process, which is the worker."""
    command = [str(given.refmill), "run", str(inputs), "--recipe", str(HERE / "peers.toml"), "--out", str(out)]
    command += ["--no-image", "--workers", "1", "--device", "cpu", "--quiet"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"refmill ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure_refmill(given, scratch, sources, count):
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        folder = Path(folder)
        short = copies(folder / "n", sources, count)
        long = copies(folder / "2n", sources, 2 * count)
        once, _ = run_refmill(given, short, folder / "out-n")
        twice, peak = run_refmill(given, long, folder / "out-2n")
    return {"cpu_ms": 1000 * (twice - once) / count, "rss_mb": peak}


def compare(python, name, reference, tensors):
    command = [python, str(HERE / "compare.py"), name, str(reference), str(tensors)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def check_equal(given, python, node, scratch, kind, sources):
    """PSNR of refmill's and sharp's tensors of the first image against Pillow's."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        folder = Path(folder)
        for peer in PEERS:
            run_peer(peer_command(peer, given, python, node), given, kind, ["--dump", str(folder / peer)])
        found = {"sharp": folder / "sharp.0.{}.f32"}
        if not given.peers_only:
            run_refmill(given, copies(folder / "one", sources, 1), folder / "out")
            found["refmill"] = folder / "out/000.safetensors"
        names = ("hint", "clip")
        reference = {name: folder / f"pillow.0.{name}.npy" for name in names}
        return {
            tool: {name: compare(python, name, reference[name], str(path).format(name)) for name in names}
            for tool, path in found.items()
        }


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(rounds):
    tools = list(rounds[0])
    summary = {tool: {"cpu_ms": spread([r[tool]["cpu_ms"] for r in rounds])} for tool in tools}
    for tool in tools:
        summary[tool]["rss_mb"] = max(r[tool]["rss_mb"] for r in rounds)
        if "refmill" in tools and tool != "refmill":
            summary[tool]["ratio"] = spread([r[tool]["cpu_ms"] / r["refmill"]["cpu_ms"] for r in rounds])
    return summary


def cpu_model():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {len(names)} threads visible"


def between(values, digits):
    return f"{values['median']:.{digits}f} ({values['min']:.{digits}f} to {values['max']:.{digits}f})"


def table(classes):
    lines = [
        "| class | refmill, ms | sharp, ms | Pillow, ms | sharp / refmill | Pillow / refmill | peak RSS of the worker, MiB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, result in classes.items():
        tools = result["summary"]
        cells = [between(tools[tool]["cpu_ms"], 1) if tool in tools else "-" for tool in ("refmill", "sharp", "pillow")]
        cells += [between(tools[tool]["ratio"], 2) if "ratio" in tools[tool] else "-" for tool in ("sharp", "pillow")]
        cells.append(f"{tools['refmill']['rss_mb']:.0f}" if "refmill" in tools else "-")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return lines


def equality(classes):
    lines = ["| class | refmill hint | refmill clip | sharp hint | sharp clip |", "| --- | --- | --- | --- | --- |"]
    for kind, result in classes.items():
        equal = result["equal"]
        cells = [equal.get(tool, {}).get(name) for tool in ("refmill", "sharp") for name in ("hint", "clip")]
        lines.append(f"| {kind} | " + " | ".join(f"{c['psnr']} dB" if c else "-" for c in cells) + " |")
    return lines


def section(result):
    about = f"{result['date']}, {result['cpu']}, {result['rounds']} interleaved rounds. CPU time (user and system) per "
    about += "image: median (least to most over the rounds)."
    equal = "Equal work: PSNR of each tool's tensors of the first image against Pillow's."
    return "\n".join([about, "", *table(result["classes"]), "", equal, "", *equality(result["classes"]), ""])


def write(result):
    (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    text = RESULTS.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    RESULTS.write_text(f"{head}{BEGIN}\n{section(result)}{END}{tail}")


def main():
    given = arguments()
    kinds = given.classes.split(",")
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="refmill-bench-", dir=shared) as scratch:
        scratch = Path(scratch)
        python, node = prepare(given, scratch)
        sources = {kind: sorted((given.images / kind).iterdir()) for kind in kinds}
        equal = {kind: check_equal(given, python, node, scratch, kind, sources[kind]) for kind in kinds}
        rounds = {kind: [] for kind in kinds}
        for number in range(given.rounds):
            for kind in kinds:
                found = {}
                if not given.peers_only:
                    found["refmill"] = measure_refmill(given, scratch, sources[kind], COUNTS.get(kind, 20))
                for peer in PEERS:
                    command = peer_command(peer, given, python, node)
                    told = run_peer(command, given, kind, ["--secs", str(given.secs)])
                    found[peer] = {"cpu_ms": told["cpu_ms"], "rss_mb": told["rss_mb"]}
                rounds[kind].append(found)
                print(number + 1, kind, {tool: round(one["cpu_ms"], 1) for tool, one in found.items()}, flush=True)
    classes = {
        kind: {"summary": summarise(rounds[kind]), "equal": equal[kind], "rounds": rounds[kind]} for kind in kinds
    }
    date = datetime.date.today().isoformat()
    result = {"date": date, "cpu": cpu_model(), "rounds": given.rounds, "classes": classes}
    print("\n" + section(result))
    if not given.peers_only:
        write(result)


if __name__ == "__main__":
    main()
