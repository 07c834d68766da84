#!/usr/bin/env bash
# Starts the split topology on this machine for a try: memcached as L1, a node on SSD as L2, a node in front of both.
#   deploy/split/run.sh start|stop|status
# What it keeps, items too, is in SPLIT_DIR. `stop` ends what `start` started, and nothing else.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
SPLIT_DIR=${SPLIT_DIR:-${TMPDIR:-/tmp}/moneta-split-$(id -u)}
# The front's ports: clients, bulk traffic, its /metrics, and those of L2.
SPLIT_PORT=${SPLIT_PORT:-11211}
SPLIT_BATCH_PORT=${SPLIT_BATCH_PORT:-11212}
SPLIT_ADMIN_PORT=${SPLIT_ADMIN_PORT:-11280}
SPLIT_L2_ADMIN_PORT=${SPLIT_L2_ADMIN_PORT:-11281}
# MiB of L1, and what L2 may take of the disk. SPLIT_L2=rocks for RocksDB, where MONETA_BIN has it.
SPLIT_L1_MEMORY=${SPLIT_L1_MEMORY:-64}
SPLIT_L2=${SPLIT_L2:-flash}
SPLIT_L2_SIZE=${SPLIT_L2_SIZE:-1g}
MONETA_BIN=${MONETA_BIN:-moneta}
MEMCACHED_BIN=${MEMCACHED_BIN:-memcached}
# Tenths of a second that a process may take to start or to end.
PATIENCE=600

# The moment a process started, by which it is told from another one that got its number later.
started() {
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

# pid_of PART: the number of the process, if it is still the one that was started
pid_of() {
    local pid moment
    read -r pid moment 2>/dev/null <"$SPLIT_DIR/$1.pid" || return 1
    [ -n "$moment" ] && [ "$(started "$pid")" = "$moment" ] && echo "$pid"
}

# launch PART COMMAND...
launch() {
    local part=$1 pid
    shift
    if pid_of "$part" >/dev/null; then
        echo "$part runs already"
        return
    fi
    "$@" >"$SPLIT_DIR/$part.log" 2>&1 </dev/null &
    pid=$!
    echo "$pid $(started "$pid")" >"$SPLIT_DIR/$part.pid"
}

# ready PORT: whether the node with this admin port takes requests
ready() {
    local answer
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
    read -r answer <&3 || true
    exec 3>&-
    [[ $answer == *' 200 '* ]]
}

# await PART COMMAND...: until the command succeeds; a part that ends meanwhile is told with what it said
await() {
    local part=$1
    shift
    for ((i = 0; i < PATIENCE; i++)); do
        if ! pid_of "$part" >/dev/null; then
            echo "$part ended:" >&2
            cat "$SPLIT_DIR/$part.log" >&2
            return 1
        fi
        if ("$@") 2>/dev/null; then
            return
        fi
        sleep 0.1
    done
    echo "$part is not ready; see $SPLIT_DIR/$part.log" >&2
    return 1
}

start() {
    mkdir -p "$SPLIT_DIR/items"
    chmod 0700 "$SPLIT_DIR"
    launch l1 "$MEMCACHED_BIN" -u "$(id -un)" -s "$SPLIT_DIR/l1.sock" -a 0700 -m "$SPLIT_L1_MEMORY"
    # As l2.toml and front.toml, but for places and ports.
    launch l2 "$MONETA_BIN" serve --unix-socket "$SPLIT_DIR/l2.sock" --admin "127.0.0.1:$SPLIT_L2_ADMIN_PORT" \
        --l1 none --l2 "$SPLIT_L2" "--$SPLIT_L2" "$SPLIT_DIR/items:$SPLIT_L2_SIZE"
    launch front "$MONETA_BIN" serve --config "$here/front.toml" --port "$SPLIT_PORT" --batch-port "$SPLIT_BATCH_PORT" \
        --admin "127.0.0.1:$SPLIT_ADMIN_PORT" --l1 "remote:$SPLIT_DIR/l1.sock" --l2 "remote:$SPLIT_DIR/l2.sock"
    await l1 test -S "$SPLIT_DIR/l1.sock"
    await l2 ready "$SPLIT_L2_ADMIN_PORT"
    await front ready "$SPLIT_ADMIN_PORT"
    status
}

stop() {
    local part pid
    # The front first, so that no request is cut off half way.
    for part in front l2 l1; do
        if ! pid=$(pid_of "$part"); then
            echo "$part does not run"
            continue
        fi
        kill "$pid"
        for ((i = 0; i < PATIENCE; i++)); do
            pid_of "$part" >/dev/null || break
            sleep 0.1
        done
        if pid_of "$part" >/dev/null; then
            echo "$part, process $pid, does not end" >&2
            return 1
        fi
        rm -f "$SPLIT_DIR/$part.pid"
        echo "$part ended"
    done
}

status() {
    local part pid all=0
    for part in l1 l2 front; do
        if pid=$(pid_of "$part"); then
            echo "$part runs as process $pid"
        else
            echo "$part does not run"
            all=1
        fi
    done
    if [ $all -eq 0 ]; then
        echo "clients: 127.0.0.1:$SPLIT_PORT, bulk traffic: 127.0.0.1:$SPLIT_BATCH_PORT, metrics: http://127.0.0.1:$SPLIT_ADMIN_PORT/metrics"
    fi
    return $all
}

case "${1:-}" in
start | stop | status) "$1" ;;
*)
    echo "usage: $0 start|stop|status" >&2
    exit 2
    ;;
esac
