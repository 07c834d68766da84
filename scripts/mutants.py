#!/usr/bin/env python3
"""Takes each guard out of a crate and expects that a test fails.

    scripts/mutants.py crates/cluster                # all
    MUTANTS=3,7 scripts/mutants.py crates/cluster    # some, by number

The guards are in tests/mutants.toml of the crate: `guard` says what it is for; in `file`, `old`, an expression or a statement,
becomes `new`; `in` is the text around it where it occurs more than once; `tests` names test programs, `lib` for the unit tests,
each with `:FILTER` where not all of it is run. All of them are compiled at once into a copy of the tree, each behind a number that
MONETA_MUTANT turns on, so that a mutant costs its tests alone.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

SECONDS = 300
SWITCH = """
/// Whether the guard of this number is taken out.
#[allow(dead_code)]
pub(crate) fn mutant(number: u32) -> bool {
    static MUTANT: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *MUTANT.get_or_init(|| std::env::var("MONETA_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0)) == number
}
"""


def copy_tree(root, copy):
    """What git knows of the tree, and what is new in it; files that are the same keep their times, so cargo builds what differs."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True, stdout=subprocess.PIPE)
    wanted = {name for name in names.stdout.decode().split("\0") if name and (root / name).is_file()}
    for old in [path for path in copy.rglob("*") if path.is_file()]:
        if str(old.relative_to(copy)) not in wanted:
            old.unlink()
    for name in wanted:
        source, target = root / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)


def place(mutant, text):
    """Where `old` is in the text of a file."""
    around = mutant.get("in", mutant["old"])
    if text.count(around) != 1 or around.count(mutant["old"]) != 1:
        sys.exit(f"{mutant['file']}: `{around}` is there {text.count(around)} times, `{mutant['old']}` in it {around.count(mutant['old'])} times")
    return text.index(around) + around.index(mutant["old"])


def behind(number, mutant):
    """The expression or statement, behind its switch."""
    old, new = mutant["old"], mutant["new"]
    if old.rstrip().endswith(";"):
        return f"if crate::mutant({number}) {{ {new} }} else {{ {old} }}"
    return f"(if crate::mutant({number}) {{ {new} }} else {{ {old} }})"


def apply(mutants, crate):
    """Puts all of them into the files of a crate."""
    for file in {mutant["file"] for mutant in mutants}:
        path = crate / file
        text = path.read_text()
        spots = sorted((place(mutant, text), number, mutant) for number, mutant in enumerate(mutants, 1) if mutant["file"] == file)
        for (at, _, mutant), (following, _, _) in zip(spots, spots[1:]):
            if at + len(mutant["old"]) > following:
                sys.exit(f"{file}: two mutants of one place: {mutant['old']}")
        for at, number, mutant in reversed(spots):
            text = text[:at] + behind(number, mutant) + text[at + len(mutant["old"]):]
        path.write_text(text)
    library = crate / "src/lib.rs"
    library.write_text("#![allow(unused_parens)]\n" + library.read_text() + SWITCH)


def programs(copy, crate, names):
    """The test programs by name. Of the crate alone: others have tests of the same names, and need much more to be compiled."""
    package = tomllib.loads((crate / "Cargo.toml").read_text())["package"]["name"]
    of_tests = [word for name in sorted(names - {"lib"}) for word in ("--test", name)]
    command = [os.environ.get("CARGO", "cargo"), "test", "--no-run", "--message-format=json-render-diagnostics"]
    command += ["-p", package, *of_tests, *(["--lib"] if "lib" in names else [])]
    built = subprocess.run(command, cwd=copy, stdout=subprocess.PIPE)
    if built.returncode != 0:
        sys.exit("the mutants do not compile")
    found = {}
    for line in built.stdout.decode().splitlines():
        artifact = json.loads(line)
        is_here = artifact.get("executable") and pathlib.Path(artifact["manifest_path"]).parent == crate
        if is_here and artifact["profile"]["test"]:
            target = artifact["target"]
            found["lib" if "lib" in target["kind"] else target["name"]] = artifact["executable"]
    return found


def fails(number, tests, found, crate):
    """The tests of the first program that fails with a guard taken out; "" if none does."""
    for test in tests.split():
        name, _, filter = test.partition(":")
        environment = {**os.environ, "MONETA_MUTANT": str(number), "RUST_BACKTRACE": "0"}
        command = [found[name], *([filter] if filter else [])]
        try:
            ran = subprocess.run(
                command, cwd=crate, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return f"{name}: does not end"
        if ran.returncode != 0:
            lines = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("test ") and line.endswith("FAILED")]
            return f"{name}: {', '.join(lines) or f'status {ran.returncode}'}"
    return ""


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    name = sys.argv[1]
    mutants = tomllib.loads((root / name / "tests/mutants.toml").read_text())["mutant"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    os.environ["CARGO_TARGET_DIR"] = str(target)
    copy = target / "mutants"
    copy.mkdir(parents=True, exist_ok=True)
    copy_tree(root, copy)
    crate = copy / name
    apply(mutants, crate)
    wanted = os.environ.get("MUTANTS", "")
    chosen = {int(number) for number in wanted.split(",") if number} or set(range(1, len(mutants) + 1))
    tests = {test.partition(":")[0] for number in chosen for test in mutants[number - 1]["tests"].split()}
    found = programs(copy, crate, tests)
    survived = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=int(os.environ.get("TEST_JOBS", 2))) as pool:
        filtered = {test for number in chosen for test in mutants[number - 1]["tests"].split()}
        wrong = [failed for failed in pool.map(lambda test: fails(0, test, found, crate), sorted(filtered)) if failed]
        if wrong:
            sys.exit(f"with all guards in: {'; '.join(wrong)}")
        jobs = {number: pool.submit(fails, number, mutants[number - 1]["tests"], found, crate) for number in sorted(chosen)}
        for number, job in jobs.items():
            failed = job.result()
            survived += not failed
            print(f"{number:3} {'killed  ' if failed else 'SURVIVED'} {mutants[number - 1]['guard']}", flush=True)
            if failed:
                print(f"             by {failed}"[:200], flush=True)
    print(f"without {len(chosen) - survived} of {len(chosen)} guards a test fails")
    sys.exit(survived > 0)


main()
