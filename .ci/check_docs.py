#!/usr/bin/env python3
"""Checks what the documents say against the tree: links, paths, and the tables that repeat what the code decides.

Standard library only. Prints every fault as FILE:LINE: what, and exits with 1 if there is one.
"""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
FOLDERS = ["docs", "fixtures", "bench", "fuzz"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"\.?[\w][\w.-]*(/[\w.{},*-]+)+/?|[\w-]+\.(md|toml|rs|py|json|cu|ptx)|LICENSE-\w+")
FOREIGN = re.compile(r"(?<![\w.])/(work|home|root|tmp|mnt|Users)/")


def documents(known):
    yield from (ROOT / name for name in DOCUMENTS)
    inside = (name for name in sorted(known) if name.endswith(".md") and name.split("/")[0] in FOLDERS)
    yield from (ROOT / name for name in inside)


def tracked():
    """Paths that git has or would take, so that build outputs do not count as existing."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    paths = {name for name in names if (ROOT / name).exists()}
    for name in list(paths):
        parts = name.split("/")
        paths |= {"/".join(parts[:count]) for count in range(1, len(parts))}
    return paths


def anchors(text):
    """GitHub's anchors of the headings."""
    found = set()
    for line in outside_fences(text):
        heading = re.match(r"#+ (.*)", line[1])
        if heading:
            plain = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(plain.replace(" ", "-"))
    return found


def outside_fences(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def check_links(document, number, line, known):
    for target in LINK.findall(line):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        place = (document.parent / path).resolve() if path else document
        if not place.is_relative_to(ROOT):
            yield number, f"link `{target}` leaves the project"
        elif path and str(place.relative_to(ROOT)) not in known:
            yield number, f"link `{target}` leads nowhere"
        elif anchor and place.suffix == ".md" and anchor not in anchors(place.read_text()):
            yield number, f"link `{target}` names no heading"


def check_paths(document, number, line, known):
    tops = {path.split("/")[0] for path in known}
    near = "" if document.parent == ROOT else f"{document.parent.relative_to(ROOT)}/"
    for code in CODE.findall(line):
        if not PATH.fullmatch(code) or "*" in code or "{" in code:
            continue
        path = code.rstrip("/")
        top = path.split("/")[0]
        is_ours = ("/" in path and top in tops) or path in OURS
        if is_ours and path not in known and near + path not in known:
            yield number, f"`{code}` does not exist"


# Root files that a document may name without a folder.
OURS = {"deny.toml", "clippy.toml", "rustfmt.toml", "Cargo.toml", "Cargo.lock", "LICENSE-MIT", "LICENSE-APACHE", *DOCUMENTS}


def check_foreign(number, line):
    if FOREIGN.search(line):
        yield number, "names a path of one machine"


def table(text, heading):
    """Rows of the first table after `heading`, as lists of cells without backticks."""
    rows = []
    for line in text.partition(heading)[2].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def check_exit_codes(readme):
    """README's exit codes are those of src/exit.rs."""
    code = (ROOT / "src/exit.rs").read_text().partition("impl ExitCode")[2].partition("enum WorkerExit")[0]
    real = {int(number) for number in re.findall(r"Self::\w+ => (\d+)", code)}
    said = {int(row[0]) for row in table(readme, "## Exit codes")}
    if real != said:
        yield f"README.md gives the exit codes {sorted(said)}, src/exit.rs has {sorted(real)}"


def check_limits(readme):
    """README's limits and their defaults are those of src/limits.rs."""
    body = (ROOT / "src/limits.rs").read_text().partition("fn default()")[2].partition("\n}")[0]
    real = {}
    for key, value in re.findall(r"(\w+): ([\d_]+(?: << \d+)?),", body):
        number, _, shift = value.replace("_", "").partition(" << ")
        real[key] = int(number) << int(shift or 0)
    said = {row[0]: int(row[1].replace(",", "")) for row in table(readme, "## Limits")}
    for key in sorted(real.keys() | said.keys()):
        if real.get(key) != said.get(key):
            yield f"README.md gives {key} as {said.get(key)}, src/limits.rs as {real.get(key)}"


def check_recipes(readme):
    """README names every built-in recipe, and the example in it is one."""
    for recipe in sorted((ROOT / "supervisor/recipes").glob("*.toml")):
        if f"`{recipe.stem}`" not in readme:
            yield f"README.md does not name the recipe {recipe.stem}"


def main():
    faults, count = [], 0
    known = tracked()
    for document in documents(known):
        name = document.relative_to(ROOT)
        if not document.is_file():
            faults.append(f"{name}: is missing")
            continue
        count += 1
        text = document.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            faults += [f"{name}:{at}: {what}" for at, what in check_foreign(number, line)]
        for number, line in outside_fences(text):
            for check in (check_links, check_paths):
                faults += [f"{name}:{at}: {what}" for at, what in check(document, number, line, known)]
    readme = (ROOT / "README.md").read_text()
    for check in (check_exit_codes, check_limits, check_recipes):
        faults += check(readme)
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{count} documents checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
