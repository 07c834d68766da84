#!/usr/bin/env python3
"""Fails if a link of a Markdown page leads to no file or no heading, if anything in the repository names a page of docs/ that is
not there, if docs/reliability.md names a test that is not there, if a table has no head, as after an empty line, or if a
line of prose or of code is longer than 130 columns."""

import re
import subprocess
import sys
from pathlib import Path

COLUMNS = 130
# What programs print stands there as they print it.
PRINTED = "docs/first-hour.md"


def lines(text):
    """Each line but the fences of code blocks, with its number and whether it is code."""
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        else:
            yield number, line, code


def prose(text):
    """The lines outside of code blocks, with their numbers."""
    return ((number, line) for number, line, code in lines(text) if not code)


def anchors(page):
    """The names by which headings are linked to, as GitHub makes them."""
    seen, names = {}, set()
    for _, line in prose(page.read_text()):
        if heading := re.match(r"#+ +(.*)", line):
            name = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
            count = seen[name] = seen.get(name, -1) + 1
            names.add(f"{name}-{count}" if count else name)
    return names


def faults_of_page(page):
    before_that = before = ""
    for number, line in prose(page.read_text()):
        for target in re.findall(r"\]\(([^) ]+)\)", re.sub(r"`[^`]*`", "", line)):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            if not file.exists():
                yield f"{page}:{number}: {target}: no such file"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                yield f"{page}:{number}: {target}: no such heading"
        if before.startswith("|") and not before_that.startswith("|") and not line.startswith("|--"):
            yield f"{page}:{number - 1}: a table without a head"
        before_that, before = before, line
    for number, line, code in lines(page.read_text()):
        may_be_long = str(page) == PRINTED if code else re.match(r"\s*(\||!\[|#)", line) or "](" in line[COLUMNS:]
        if len(line) > COLUMNS and not may_be_long:
            yield f"{page}:{number}: {len(line)} columns"


def faults_of_names(file):
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        return
    for name in set(re.findall(r"\bdocs/[\w/-]+\.(?:md|svg)\b", text)):
        if not Path(name).exists():
            yield f"{file}: names {name}, which is not there"


def faults_of_promises(page):
    """Tests that hold promises: files and folders of crates, functions, and those of bad days by module."""
    text = page.read_text()
    for name in sorted(set(re.findall(r"`([\w-]+/(?:src|tests)/[\w./-]+)`", text))):
        if not (Path("crates") / name).exists():
            yield f"{page}: {name}: no such test"
    for module, test in sorted(set(re.findall(r"`([a-z_]+)::([a-z_]+)`", text))):
        file = Path("crates/moneta/tests/bad_days") / f"{module}.rs"
        if not file.exists() or f"fn {test}(" not in file.read_text():
            yield f"{page}: {module}::{test}: no such test"
    tests = "\n".join(file.read_text() for file in Path("crates").rglob("*.rs"))
    for test in sorted(set(re.findall(r"`([a-z]+(?:_[a-z0-9]+){3,})`", text))):
        if f"fn {test}(" not in tests:
            yield f"{page}: {test}: no such test"


listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True)
files = [Path(name) for name in listed.stdout.splitlines() if Path(name).is_file()]
faults = [fault for file in files for fault in faults_of_names(file)]
faults += [fault for file in files if file.suffix == ".md" for fault in faults_of_page(file)]
faults += faults_of_promises(Path("docs/reliability.md"))
print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
sys.exit(1 if faults else 0)
