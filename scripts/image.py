#!/usr/bin/env python3
"""Makes an OCI image of a program that is built, without a daemon.

The image has the program, the libraries that it is linked to, the authorities that this machine believes, and a user; no shell. The
file is an OCI layout in a tar, with the list that `docker load` and `podman load` take names from, as `docker save` writes it. The same
program makes the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import tarfile

USER = 65532
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def libraries(program):
    """Paths of what the program is linked to, by the names under which they are looked for."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True)
    found = {}
    for line in listed.stdout.splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line) or re.match(r"\s*((/\S+)) \(", line)
        if match:
            found[match.group(1)] = os.path.realpath(match.group(2))
    return found


def add(tar, name, content, mode=0o644, owner=0):
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid = mode, owner, owner
    if content is None:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))


def layer(program):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("etc", "etc/moneta", "etc/ssl", "etc/ssl/certs", "lib", "lib64", "tmp", "usr", "usr/bin", "var", "var/lib"):
            add(tar, folder, None, 0o1777 if folder == "tmp" else 0o755)
        add(tar, "var/lib/moneta", None, 0o700, USER)
        add(tar, "etc/passwd", f"root:x:0:0:root:/:/nonexistent\nmoneta:x:{USER}:{USER}:moneta:/var/lib/moneta:/nonexistent\n".encode())
        add(tar, "etc/group", f"root:x:0:\nmoneta:x:{USER}:\n".encode())
        # Names are looked up in files and by the resolver, as in most images.
        add(tar, "etc/nsswitch.conf", b"hosts: files dns\n")
        if CERTIFICATES.exists():
            add(tar, str(CERTIFICATES)[1:], CERTIFICATES.read_bytes())
        for name, path in sorted(libraries(program).items()):
            place = name[1:] if name.startswith("/") else f"lib/{name}"
            add(tar, place, pathlib.Path(path).read_bytes(), 0o755)
        add(tar, "usr/bin/moneta", pathlib.Path(program).read_bytes(), 0o755)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as zipped:
        zipped.write(plain.getvalue())
    return plain.getvalue(), packed.getvalue()


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("out", metavar="FILE.tar")
    program, out = vars(arguments.parse_args()).values()
    root = pathlib.Path(__file__).resolve().parent.parent
    # With the commit in brackets, where it was built with one.
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split(maxsplit=1)[1].strip()
    plain, packed = layer(program)
    blobs = {}

    def blob(content, media_type, **more):
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/moneta"],
            "Cmd": ["serve", "--listen", "0.0.0.0", "--admin", "0.0.0.0:11280", "--admin-open"],
            "Env": ["PATH=/usr/bin", "LD_LIBRARY_PATH=/lib"],
            "ExposedPorts": {"11211/tcp": {}, "11280/tcp": {}},
            "Volumes": {"/var/lib/moneta": {}},
            "WorkingDir": "/var/lib/moneta",
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "moneta", "org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [blob(packed, "application/vnd.oci.image.layer.v1.tar+gzip")],
    }
    number = re.search(r'^version = "(.*)"', (root / "Cargo.toml").read_text(), re.M).group(1)
    named = {"org.opencontainers.image.ref.name": number, "io.containerd.image.name": f"docker.io/library/moneta:{number}"}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [blob(json.dumps(manifest).encode(), manifest["mediaType"], platform={"architecture": architecture, "os": "linux"}, annotations=named)],
    }
    place = lambda of: "blobs/" + of["digest"].replace(":", "/")
    listed = [{"Config": place(manifest["config"]), "RepoTags": [f"moneta:{number}"], "Layers": [place(layer) for layer in manifest["layers"]]}]
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add(tar, "index.json", json.dumps(index).encode())
        add(tar, "manifest.json", json.dumps(listed).encode())
        for digest, content in sorted(blobs.items()):
            add(tar, f"blobs/sha256/{digest}", content)
    print(out)


if __name__ == "__main__":
    main()
