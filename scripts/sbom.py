#!/usr/bin/env python3
"""Prints a list of what the program is built of, as CycloneDX 1.5: every crate with its version, licence, source and checksum.
scripts/sbom.py FEATURES: those that the program is built with. scripts/sbom.py --check FEATURES: what these bring is in the list, and
nothing of other platforms."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def platform():
    """The platform that is built for: this one."""
    about = subprocess.run(["rustc", "-vV"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.search("^host: (.+)$", about, re.MULTILINE).group(1)


def linked(features):
    """Name and version of each crate that is linked. `cargo metadata` knows the features of the whole workspace together alone."""
    chosen = ["-p", "moneta", "--features", features, "--target", platform()]
    tree = cargo("tree", "--locked", *chosen, "-e", "normal", "--prefix", "none", "--format", "{p}")
    return {tuple(line.split(" ")[:2]) for line in tree.splitlines() if line}


def brought(crate, feature):
    """The crates that a feature of one of ours names."""
    names = tomllib.loads((ROOT / "crates" / crate.removeprefix("moneta-") / "Cargo.toml").read_text())["features"][feature]
    for name in names:
        if name.startswith("dep:"):
            yield name.removeprefix("dep:")
        elif "/" in name and name.startswith("moneta"):
            yield from brought(*name.replace("?", "").split("/"))
        elif "/" in name:
            yield name.split("/")[0].rstrip("?")
        else:
            yield from brought(crate, name)


def check(bom, features):
    """Fails where the list lacks what a feature brings, or has what is never linked here."""
    listed = {made["name"] for made in bom["components"]}
    wanted = {name for feature in features.split(",") for name in brought("moneta", feature)}
    assert wanted <= listed, f"not in the list: {sorted(wanted - listed)}"
    foreign = sorted(name for name in listed if re.match("windows|winapi|core-foundation|security-framework|wasm-bindgen|js-sys", name))
    assert not foreign, f"of other platforms: {foreign}"
    unhashed = sorted(made["name"] for made in bom["components"] if "purl" in made and "hashes" not in made)
    assert not unhashed, f"without a checksum: {unhashed}"
    print(f"sbom: {len(listed)} crates, {len(wanted)} of them named by features")


def main():
    is_check, features = sys.argv[1] == "--check", sys.argv[-1]
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", platform()))
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    wanted = linked(features)
    packages = {package["id"]: package for package in metadata["packages"]}
    reached = {identity for identity, package in packages.items() if (package["name"], "v" + package["version"]) in wanted}
    assert len(reached) == len(wanted), "not each crate that is linked is known"
    root = next(package for package in metadata["packages"] if package["name"] == "moneta")
    lock = (ROOT / "Cargo.lock").read_text()
    checksums = dict(re.findall(r'name = "([^"]+)"\nversion = "[^"]+"\nsource = [^\n]+\nchecksum = "([0-9a-f]+)"', lock))
    by_version = {(n, v): c for n, v, c in re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = [^\n]+\nchecksum = "([0-9a-f]+)"', lock)}

    def component(package):
        name, version = package["name"], package["version"]
        made = {"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version}
        if package.get("license"):
            made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if package["source"]:
            made["purl"] = f"pkg:cargo/{name}@{version}"
            checksum = by_version.get((name, version)) or checksums.get(name)
            if checksum:
                made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return made

    def ref(identity):
        return f'{packages[identity]["name"]}@{packages[identity]["version"]}'

    def is_linked(dep):
        return dep["pkg"] in reached and any(kind["kind"] is None for kind in dep["dep_kinds"])

    listed = sorted((packages[identity] for identity in reached if identity != root["id"]), key=lambda package: (package["name"], package["version"]))
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": ref(root["id"]), "name": "moneta", "version": root["version"]}},
        "components": [component(package) for package in listed],
        "dependencies": [{"ref": ref(identity), "dependsOn": sorted({ref(dep["pkg"]) for dep in nodes[identity]["deps"] if is_linked(dep)})} for identity in sorted(reached, key=ref)],
    }
    if is_check:
        check(bom, features)
    else:
        print(json.dumps(bom, indent=1))


if __name__ == "__main__":
    main()
