#!/usr/bin/env bash
# Plays the life of the Debian package in a copy of this machine's files, which goes with it: installed, a node served by it, upgraded
# while it serves, rolled back, purged; then the image: unpacked, and its program run with nothing else. Needs root and overlayfs; says
# so and ends where it cannot be mounted. scripts/test-packages.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
# The program is compressed three times here.
export DPKG_DEB_COMPRESSOR_TYPE=gzip DPKG_DEB_COMPRESSOR_LEVEL=1
# The innermost shell, which has mounted nothing outside of its own namespace, ends with this one.
trap 'rm -rf "$work"' EXIT

SOURCE_DATE_EPOCH=1700000000 scripts/deb.sh "$program" "$work/old" >"$work/old.path"
SOURCE_DATE_EPOCH=1700000600 scripts/deb.sh "$program" "$work/new" >"$work/new.path"
old=$(cat "$work/old.path") new=$(cat "$work/new.path")
again=$(SOURCE_DATE_EPOCH=1700000000 scripts/deb.sh "$program" "$work/again")
cmp "$old" "$again"
# The program is not installed here; a unit that is wrong otherwise says more, or fails.
said=$(systemd-analyze verify --man=no deploy/moneta.service 2>&1) || [[ $said == *'not executable'* ]]
[ "$(grep -vc 'is not executable' <<<"$said")" -eq 0 ] || { echo "deploy/moneta.service: $said" >&2; exit 1; }

cat >"$work/life.sh" <<'LIFE'
set -euo pipefail
work=$1 old=$2 new=$3
mount -t tmpfs tmpfs "$work/top" && mkdir "$work/top/upper" "$work/top/work" "$work/top/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/top/upper,workdir=$work/top/work" "$work/top/root"
root=$work/top/root
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/packages"
cp "$old" "$root/packages/old.deb"
cp "$new" "$root/packages/new.deb"
within() { chroot "$root" "$@"; }
# fails COMMAND...: `! COMMAND` alone does not end a shell of `set -e`.
fails() {
    if "$@"; then
        echo "this was to fail: $*" >&2
        return 1
    fi
}
state() { within dpkg-query -W -f '${db:Status-Status} ${Version}' moneta; }
export DEBIAN_FRONTEND=noninteractive

within dpkg -i /packages/old.deb
within getent passwd moneta
within test -x /usr/bin/moneta -a -f /usr/lib/systemd/system/moneta.service -a -f /usr/share/man/man1/moneta-serve.1.gz
within grep -q 'ExecStart=/usr/bin/moneta serve' /usr/lib/systemd/system/moneta.service
within moneta config --config /etc/moneta/moneta.toml >/dev/null
within dpkg --verify moneta

# As the unit does: with the file, as its user, and its folder.
within install -d -o moneta -g moneta -m 0700 /var/lib/moneta
start() {
    rm -f "$root/run/screen"
    chroot --userspec=moneta:moneta "$root" env MONETA_FLASH=/var/lib/moneta:160m moneta serve --config /etc/moneta/moneta.toml \
        -p 0 --admin off >"$root/run/screen" 2>"$root/run/log" &
    node=$!
    for _ in $(seq 600); do
        if grep -q '^stop' "$root/run/screen"; then
            server=$(sed -n 's/^listening on //p' "$root/run/screen" | head -1)
            return
        fi
        sleep 0.1
    done
    cat "$root/run/log" >&2
    return 1
}
stop() { kill -TERM "$node" && wait "$node"; }
start
within moneta set kept value --server "$server"
[ "$(within moneta get kept --server "$server")" = value ]

# Upgraded while it serves; the operator's change of a file stays.
echo '# changed here' >>"$root/etc/moneta/moneta.toml"
within dpkg --force-confold -i /packages/new.deb
[ "$(within moneta get kept --server "$server")" = value ]
grep -q '# changed here' "$root/etc/moneta/moneta.toml"
stop
start
[ "$(within moneta get kept --server "$server")" = value ] || { echo 'data is gone after the upgrade' >&2; exit 1; }
# Rolled back, with data in place.
within dpkg --force-confold -i /packages/old.deb
stop
start
[ "$(within moneta get kept --server "$server")" = value ] || { echo 'data is gone after the rollback' >&2; exit 1; }
stop

within dpkg --purge moneta
for gone in usr/bin/moneta etc/moneta etc/default/moneta var/lib/moneta usr/share/doc/moneta; do
    [ ! -e "$root/$gone" ] || { echo "$gone is left after a purge" >&2; exit 1; }
done
fails within getent passwd moneta
echo 'package: installed, upgraded, rolled back, purged'

# A full disk: nothing half installed, and where a node serves it goes on, and the program of before is the one that starts.
full() { mount -t tmpfs -o size=100k tmpfs "$root/usr/share/doc/"; }
roomy() { umount "$root/usr/share/doc/"; }
full
fails within dpkg -i /packages/old.deb
roomy
fails within test -e /usr/bin/moneta
within dpkg -i /packages/old.deb
within install -d -o moneta -g moneta -m 0700 /var/lib/moneta
before=$(state)
start
within moneta set kept value --server "$server"
full
fails within dpkg --force-confold -i /packages/new.deb
roomy
[ "$(within moneta get kept --server "$server")" = value ]
[ "$(state)" = "$before" ] || { echo "after an upgrade without room: $(state)" >&2; exit 1; }
stop
start
[ "$(within moneta get kept --server "$server")" = value ]
stop
within dpkg --purge moneta
echo 'package: a full disk at an install and at an upgrade is survived'
LIFE
mkdir "$work/top"
if ! unshare --mount --pid --fork true 2>/dev/null; then
    echo "test-packages: mounts are not allowed here: the package is made and not installed" | tee -a "${MONETA_NOTES:-/dev/null}"
else
    unshare --mount --propagation private --pid --fork --kill-child bash "$work/life.sh" "$work" "$old" "$new"
fi

scripts/image.py "$program" "$work/image.tar"
mkdir "$work/layout" "$work/rootfs"
tar -C "$work/layout" -xf "$work/image.tar"
python3 - "$work/layout" "$work/rootfs" <<'CHECK'
import hashlib, json, pathlib, sys, tarfile
layout, rootfs = map(pathlib.Path, sys.argv[1:])
blob = lambda of: layout / "blobs" / of["digest"].replace(":", "/")
for path in (layout / "blobs/sha256").iterdir():
    assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
manifest = json.loads(blob(json.loads((layout / "index.json").read_text())["manifests"][0]).read_text())
config = json.loads(blob(manifest["config"]).read_text())
assert config["config"]["Entrypoint"] == ["/usr/bin/moneta"]
for layer in manifest["layers"]:
    with tarfile.open(blob(layer)) as tar:
        tar.extractall(rootfs, filter="fully_trusted")
CHECK
# Its program with nothing but the image.
chroot --userspec=65532:65532 "$work/rootfs" /usr/bin/moneta --version
chroot --userspec=65532:65532 "$work/rootfs" /usr/bin/moneta config --listen 0.0.0.0 --admin 0.0.0.0:11280 --admin-open >/dev/null
echo 'image: unpacked and run'
scripts/test-compose.sh "$program" "$work/image.tar"
