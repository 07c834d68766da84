#!/usr/bin/env bash
# shellcheck disable=SC2154
# Sourced in a mount and network namespace of its own, with a folder in $work: podman and buildah keep all they have there and in /run.
# Where versions 1 and 2 of cgroups are mounted side by side, crun wants one of them.
! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
# What runs containers gives its standard streams to their user: the machine's /dev/null is not to be among them.
mknod -m 666 "$work/null" c 1 3
mount --bind "$work/null" /dev/null
exec </dev/null
mount -t tmpfs tmpfs /run
ip link set lo up
# Not more than this shell has, which podman would ask for else.
cat >"$work/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
[engine]
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
CONF
cat >"$work/storage.conf" <<CONF
[storage]
driver = "overlay"
graphroot = "$work/storage"
runroot = "/run/containers/storage"
CONF
export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf
