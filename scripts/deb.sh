#!/usr/bin/env bash
# Makes a Debian package of a program that is built: scripts/deb.sh PROGRAM FOLDER, prints the package's path.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# One of the same version that is built later replaces it.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH=$epoch
revision=$(date --utc --date="@$epoch" +%Y%m%d%H%M)
architecture=$(dpkg --print-architecture)
# The oldest libc that has what the program asks for.
libc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 0755 "$tree"
# put MODE FILE PLACE
put() { install -D -m "$1" "$2" "$tree/$3"; }

install -D -m 0755 -s "$program" "$tree/usr/bin/moneta"
for unit in deploy/moneta.service deploy/cluster/moneta-proxy.service; do
    place="$tree/usr/lib/systemd/system/$(basename "$unit")"
    put 0644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"
    # Packages own /usr/bin; the lines on installing by hand are done.
    sed -i -e 's|/usr/local/bin/moneta|/usr/bin/moneta|' -e '/^#   /d' "$place"
done
"$program" config --example >"$tree/moneta.toml"
put 0644 "$tree/moneta.toml" etc/moneta/moneta.toml
rm "$tree/moneta.toml"
put 0644 deploy/cluster/proxy.toml etc/moneta/proxy.toml
printf '# MONETA_... variables of the node, which win over /etc/moneta/moneta.toml.\n# MONETA_FLASH=/var/lib/moneta:10g\n' |
    install -D -m 0644 /dev/stdin "$tree/etc/default/moneta"
printf '# MONETA_... variables of the proxy, which win over /etc/moneta/proxy.toml.\n# MONETA_ZONE=a\n' |
    install -D -m 0644 /dev/stdin "$tree/etc/default/moneta-proxy"
(cd "$tree" && find etc -type f -printf '/%p\n' | sort) >"$tree/conffiles"
"$program" man "$tree/usr/share/man/man1"
gzip -9n "$tree"/usr/share/man/man1/*.1
for shell in bash zsh fish; do "$program" completions "$shell" >"$tree/completions.$shell"; done
put 0644 "$tree/completions.bash" usr/share/bash-completion/completions/moneta
put 0644 "$tree/completions.zsh" usr/share/zsh/vendor-completions/_moneta
put 0644 "$tree/completions.fish" usr/share/fish/vendor_completions.d/moneta.fish
rm "$tree"/completions.*
for page in docs/*.md; do put 0644 "$page" "usr/share/doc/moneta/$(basename "$page")"; done
for file in deploy/monitoring/dashboard.json deploy/monitoring/rules.yaml; do
    put 0644 "$file" "usr/share/doc/moneta/monitoring/$(basename "$file")"
done
put 0644 LICENSE usr/share/doc/moneta/copyright
gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/moneta/changelog.gz"

# KiB, as dpkg-gencontrol counts them. What `du` says depends on when the file system places a file.
size=$(find "$tree" -printf '%y %s\n' | awk '{ size += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print size }')
mkdir "$tree/DEBIAN"
mv "$tree/conffiles" "$tree/DEBIAN/"
for script in postinst prerm postrm; do put 0755 "deploy/debian/$script" "DEBIAN/$script"; done
cat >"$tree/DEBIAN/control" <<CONTROL
Package: moneta
Version: $version-$revision
Architecture: $architecture
Maintainer: Moneta <moneta@localhost>
Section: database
Priority: optional
Installed-Size: $size
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, passwd
Recommends: ca-certificates
Description: cache server that speaks the memcached protocols
 Nodes keep all items on SSD and the hot ones in RAM; proxies make one cache
 of many nodes, with a copy in each zone.
CONTROL
(cd "$tree" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
package="$out/moneta_$version-${revision}_$architecture.deb"
find "$tree" -newermt "@$epoch" -exec touch --no-dereference --date="@$epoch" {} +
dpkg-deb --root-owner-group --build "$tree" "$package" >&2
echo "$package"
