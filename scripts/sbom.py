#!/usr/bin/env python3
"""Prints a list of what the program is built of, as CycloneDX 1.5: every crate with its version, licence, source and checksum."""

import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    metadata = json.loads(subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], cwd=ROOT, capture_output=True, check=True).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(package for package in metadata["packages"] if package["name"] == "moneta")
    # What is linked: normal dependencies, from the program on.
    reached, waiting = set(), [root["id"]]
    while waiting:
        at = waiting.pop()
        if at in reached:
            continue
        reached.add(at)
        waiting += [dep["pkg"] for dep in nodes[at]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
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

    listed = sorted((packages[identity] for identity in reached if identity != root["id"]), key=lambda package: (package["name"], package["version"]))
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": ref(root["id"]), "name": "moneta", "version": root["version"]}},
        "components": [component(package) for package in listed],
        "dependencies": [{"ref": ref(identity), "dependsOn": sorted({ref(dep["pkg"]) for dep in nodes[identity]["deps"] if dep["pkg"] in reached})} for identity in sorted(reached, key=ref)],
    }
    print(json.dumps(bom, indent=1))


if __name__ == "__main__":
    main()
