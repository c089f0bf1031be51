#!/usr/bin/env python3
"""One day of a queue and its autoscaler, second by second: how long jobs wait, and what it costs in pods.

    bench/scale/simulate.py            prints the table
    bench/scale/simulate.py --write    also writes it into docs/scale.md, and docs/scale.svg beside it
    bench/scale/simulate.py --check    fails where the document or the picture says something else

Standard library only, and the same result on every machine: arrivals come from a generator with a seed. A job takes 90 ms
of one core, so a pod with one worker does 11 a second; that is `phone12` in bench/RESULTS.md. Everything else that is
assumed stands below.
"""

import argparse
import math
import random
import sys
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT, PICTURE = ROOT / "docs/scale.md", ROOT / "docs/scale.svg"
BEGIN, END = "<!-- simulation:begin -->\n", "<!-- simulation:end -->"

DAY = 86_400
RATE = 11  # jobs a second and pod
START = 45  # seconds from the wish for a pod until it works: image pulled, worker started, stream read
POLL = 15  # pollingInterval of the ScaledObject
CALM = 300  # the autoscaler takes the highest wish of so many seconds before it ends a pod
LEASE = 30  # queue.lease_s: when jobs of a pod that was killed come back
DRAIN_EVERY = 3_600  # a node is drained each hour; its pod finishes what it has and starts elsewhere
KILLS = [31_000, 50_400, 72_000]  # moments at which a pod is killed without a word
MOST = 20


def arrivals(seed=1):
    """Jobs of each second: a quiet night, a working day, and one upload of 60,000 at 20:00 within ten minutes."""
    chance = random.Random(seed)
    jobs = []
    for second in range(DAY):
        hour = second / 3_600
        rate = 4 + 66 * max(0.0, math.sin((hour - 6) / 14 * math.pi)) ** 2 * (6 <= hour <= 20)
        rate += 100 * (20 * 3_600 <= second < 20 * 3_600 + 600)
        whole = int(rate)
        jobs.append(whole + (chance.random() < rate - whole))
    return jobs


class Autoscaler:
    """What KEDA asks for, and how the autoscaler follows it."""

    def __init__(self, threshold):
        self.threshold, self.wishes = threshold, deque()

    def wanted(self, second, lag):
        self.wishes.append((second, min(MOST, math.ceil(lag / self.threshold))))
        while self.wishes[0][0] <= second - CALM:
            self.wishes.popleft()
        return max(wish for _, wish in self.wishes)


def simulate(jobs, threshold=None, fixed=0):
    """A fixed number of pods, or as many as one a `threshold` of jobs that are queued or in hand."""
    scaler = Autoscaler(threshold) if threshold else None
    queue, coming_back, starting = deque(), [], []
    pods, done, pod_seconds, again = fixed, 0, 0, 0
    waits, track = {}, []
    waiting = 0
    for second in range(DAY + 7_200):
        arrived = jobs[second] if second < DAY else 0
        queue.append([second, arrived])
        waiting += arrived
        # Leases that ended; their jobs are the oldest.
        for due, born, count in [entry for entry in coming_back if entry[0] <= second]:
            queue.appendleft([born, count])
            waiting += count
        coming_back = [entry for entry in coming_back if entry[0] > second]
        pods += sum(1 for ready in starting if ready == second)
        starting = [ready for ready in starting if ready > second]
        if second % DRAIN_EVERY == DRAIN_EVERY - 1 and pods and second < DAY:
            pods -= 1
            starting.append(second + START)
        if second in KILLS and pods:
            # One job was in its hands.
            pods -= 1
            starting.append(second + START)
            while queue and not queue[0][1]:
                queue.popleft()
            if queue:
                queue[0][1] -= 1
                waiting -= 1
                coming_back.append((second + LEASE, queue[0][0], 1))
                again += 1
        if scaler and second % POLL == 0:
            in_hand = sum(count for _, _, count in coming_back)
            wanted = scaler.wanted(second, waiting + in_hand)
            have = pods + len(starting)
            starting += [second + START] * max(0, wanted - have)
            pods -= min(pods, max(0, have - wanted))
        room = pods * RATE
        while room and queue:
            born, count = queue[0]
            taken = min(room, count)
            room -= taken
            waiting -= taken
            done += taken
            waits[second - born] = waits.get(second - born, 0) + taken
            if taken == count:
                queue.popleft()
            else:
                queue[0][1] -= taken
        pod_seconds += pods + len(starting) if second < DAY else 0
        track.append((arrived, pods, waiting))
    left = waiting + sum(count for _, _, count in coming_back)
    return {"done": done, "left": left, "again": again, "pod_hours": pod_seconds / 3_600, "waits": waits, "track": track}


def percentile(waits, part):
    total, seen = sum(waits.values()), 0
    for wait in sorted(waits):
        seen += waits[wait]
        if seen >= total * part:
            return wait
    return 0


def table(jobs, results):
    lines = [
        f"{sum(jobs):,} jobs, at most {max(jobs)} a second; {DAY // DRAIN_EVERY} drains, {len(KILLS)} pods killed.",
        "",
        "| pods | done | not done | delivered again | wait p50, s | wait p99, s | longest, s | most pods | pod hours |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results:
        waits, most = result["waits"], max(pods for _, pods, _ in result["track"])
        lines.append(
            f"| {name} | {result['done']:,} | {result['left']} | {result['again']} | {percentile(waits, 0.5)} | "
            f"{percentile(waits, 0.99)} | {max(wait for wait in waits if waits[wait])} | {most} | {result['pod_hours']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def picture(track):
    """Three curves over the day, each to its own scale."""
    width, height, step = 720, 110, 240
    rows = []
    curves = [("jobs that arrive, a second", 0, "#2563a8"), ("pods that work", 1, "#2c7a3f"), ("jobs that wait", 2, "#a83225")]
    for place, (name, column, colour) in enumerate(curves):
        values = [max(row[column] for row in track[at : at + step]) for at in range(0, DAY, step)]
        most, top = max(values), place * (height + 40) + 30
        points = " ".join(
            f"{60 + width * at / (len(values) - 1):.1f},{top + height * (1 - value / most):.1f}"
            for at, value in enumerate(values)
        )
        rows.append(f'<text x="60" y="{top - 8}">{name}, at most {most:,}</text>')
        rows.append(f'<line x1="60" y1="{top + height}" x2="{60 + width}" y2="{top + height}" stroke="#888"/>')
        rows.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    bottom = 3 * (height + 40)
    for hour in range(0, 25, 4):
        rows.append(f'<text x="{60 + width * hour / 24:.0f}" y="{bottom + 8}" text-anchor="middle">{hour}:00</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 {bottom + 20}" font-family="sans-serif" font-size="13">\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    jobs = arrivals()
    scaled = simulate(jobs, threshold=600)
    results = [
        ("16 at all times", simulate(jobs, fixed=16)),
        ("8 at all times", simulate(jobs, fixed=8)),
        ("one a 600 jobs", scaled),
        ("one a 2,400 jobs", simulate(jobs, threshold=2_400)),
    ]
    if any(result["done"] + result["left"] != sum(jobs) for _, result in results):
        sys.exit("the simulation lost or made up a job")
    text, svg = table(jobs, results), picture(scaled["track"])
    print(text)
    document = DOCUMENT.read_text()
    before, _, rest = document.partition(BEGIN)
    told, _, after = rest.partition(END)
    if asked.write:
        DOCUMENT.write_text(before + BEGIN + text + END + after)
        PICTURE.write_text(svg)
    if asked.check and (told != text or PICTURE.read_text() != svg):
        sys.exit("docs/scale.md or docs/scale.svg says something else: bench/scale/simulate.py --write")


if __name__ == "__main__":
    main()
