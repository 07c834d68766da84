#!/usr/bin/env python3
"""Makes the manual, one site of all pages, by mdbook. Its parts and their order are those of docs/README.md.

Fails if a page of docs/ is not in that, if a link of the site leads nowhere in it, or if a page would load anything from
elsewhere. The site works from files, without a server.
"""

import argparse
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Pages beside docs/ that are in the manual.
TOP = ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
BOOK = """[book]
title = "Moneta"
language = "en"
src = "src"
[output.html]
no-section-label = true
preferred-dark-theme = "navy"
[output.html.playground]
runnable = false
[output.html.print]
enable = false
"""
LINK = re.compile(r"(\]\()([^) ]+)(\))")
# What a page loads by itself: attributes of these elements, but links that are to be clicked.
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src", "audio": "src", "object": "data", "embed": "src"}


def title(page):
    return page.read_text().split("\n", 1)[0].removeprefix("# ")


def summary():
    """mdbook's list of pages: those of docs/README.md under its headings, the pages beside docs/, and each decision."""
    text, seen = f"# Manual\n\n[Moneta](README.md)\n[{title(ROOT / 'docs/README.md')}](docs/README.md)\n", {"README.md"}
    for line in (ROOT / "docs/README.md").read_text().split("\n"):
        if part := re.fullmatch(r"\*\*(.*)\*\*", line):
            text += f"\n# {part[1]}\n\n"
        elif line.startswith("|"):
            # What a row is about stands in its first column.
            for name in re.findall(r"\(([\w-]+\.md)\)", line.split("|")[1]):
                seen.add(name)
                text += f"- [{title(ROOT / 'docs' / name)}](docs/{name})\n"
    if missing := {path.name for path in (ROOT / "docs").glob("*.md")} - seen:
        sys.exit(f"docs/README.md lacks {', '.join(sorted(missing))}")
    text += "\n# The project\n\n"
    pages = [ROOT / name for name in TOP if name != "README.md"] + [ROOT / "docs/decisions/README.md"]
    text += "".join(f"- [{title(page)}]({page.relative_to(ROOT)})\n" for page in pages)
    for page in sorted((ROOT / "docs/decisions").glob("[0-9]*.md")):
        text += f"  - [{title(page)}]({page.relative_to(ROOT)})\n"
    return text


def copy_linked(page, source):
    """The page's text. What it links to outside of the manual is copied beside it: a file as text, a folder as a list of its files."""
    here = page.parent.relative_to(ROOT)

    def of(link):
        target, mark, anchor = link[2].partition("#")
        path = pathlib.Path(os.path.normpath(here / target)) if target else None
        if path is not None and path.name == "README.md" and (ROOT / path).exists():
            # What mdbook makes of it.
            return link[1] + target.removesuffix("README.md") + "index.html" + mark + anchor + link[3]
        if path is None or "://" in target or not (ROOT / path).exists() or path.suffix == ".md" or (path.parts[:1] == ("docs",) and (ROOT / path).is_file()):
            return link[0]
        if (ROOT / path).is_file():
            # Browsers show a text, and mdbook gives away no folder that begins with a dot.
            place = source / "files" / (str(path).replace("/", "-").lstrip(".") + ".txt")
            content = (ROOT / path).read_text()
        else:
            place = source / "files" / (str(path).replace("/", "-") + ".txt")
            listed = subprocess.run(["git", "ls-files", path], cwd=ROOT, check=True, capture_output=True, text=True).stdout
            content = f"In {path} of the repository:\n\n{listed}"
        place.parent.mkdir(exist_ok=True)
        place.write_text(content)
        return link[1] + os.path.relpath(place, source / here) + mark + anchor + link[3]

    lines, code = [], False
    for line in page.read_text().split("\n"):
        code ^= line.lstrip().startswith("```")
        lines.append(line if code else LINK.sub(of, line))
    return "\n".join(lines)


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag in LOADS and found.get(LOADS[tag]):
            self.loads.append(found[LOADS[tag]])


def faults(site):
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in sorted(pages.items()):
        shown = path.relative_to(site)
        for load in page.loads:
            if "//" in load and not load.startswith("data:"):
                yield f"{shown}: loads {load}"
        for link in page.links + page.loads:
            parts = urllib.parse.urlsplit(link)
            # 404.html is shown for any address, and has a base for its links.
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(parts.path))) if parts.path else path
            if not target.is_file():
                yield f"{shown}: {link}: no such file"
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                yield f"{shown}: {link}: no such heading"
    for path in site.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text()):
            yield f"{path.relative_to(site)}: loads {url}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=pathlib.Path, help="where the site goes; what was there is removed")
    out = arguments.parse_args().folder.resolve()
    mdbook = subprocess.run([ROOT / "scripts/tool.sh", "mdbook"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        source = work / "src"
        shutil.copytree(ROOT / "docs", source / "docs")
        for page in [ROOT / name for name in TOP] + list((ROOT / "docs").rglob("*.md")):
            (source / page.relative_to(ROOT)).write_text(copy_linked(page, source))
        (source / "SUMMARY.md").write_text(summary())
        (work / "book.toml").write_text(BOOK)
        subprocess.run([mdbook, "build", work, "--dest-dir", work / "site"], check=True)
        if wrong := list(faults(work / "site")):
            sys.exit("\n".join(wrong))
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(work / "site", out)
    print(out / "index.html")


if __name__ == "__main__":
    main()
