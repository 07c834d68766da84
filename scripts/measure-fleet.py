#!/usr/bin/env python3
"""What clients of a cluster see while its operator adds a replica, drains a zone, replaces a dead node, rolls a property out and back,
and loses the control plane: requests, errors, misses and the time of requests by second, as a table and a plot. Fails where a client
saw an error or lost a value. MONETA_BIN: the program; MONETA_FLEET_PLOT: a file for the plot, as SVG.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from processes import ENVIRONMENT, free_port, page, until

BIN = os.environ["MONETA_BIN"]
# Keys that all clients read, and how many requests one has under way.
KEYS, BATCH = 2_000, 10
# How long it is looked on after each step, in seconds.
AFTER = 5


def get(url):
    """A page of JSON; nothing where it cannot be had."""
    return json.loads(page(url) or "{}")


class Client:
    """Sets and reads through one proxy; what it wrote it must read."""

    def __init__(self, port, number):
        self.number, self.samples, self.is_over = number, [], False
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.lines = self.socket.makefile("rb")
        self.written = {}
        for at in range(0, KEYS, BATCH):
            if self.batch(at, is_write=True) != (0, 0):
                raise RuntimeError("what is to be read cannot be stored")
        self.thread = threading.Thread(target=self.run)

    def run(self):
        turn = 0
        while not self.is_over:
            turn += 1
            begun, errors, misses = time.monotonic(), 0, 0
            try:
                errors, misses = self.batch(turn * BATCH, is_write=turn % 4 == 0)
            except OSError as error:
                print(f"client {self.number}: {error}", file=sys.stderr)
                errors, self.is_over = BATCH, True
            self.samples.append((begun, time.monotonic() - begun, errors, misses))
            time.sleep(0.01)

    def batch(self, first, is_write):
        """Sets or reads the keys from one on; returns errors, wrong values among them, and misses."""
        keys = [f"c{self.number}-{(first + at) % KEYS}" for at in range(BATCH)]
        if is_write:
            text = "".join(f"set {key} 0 0 {len(str(first))}\r\n{first}\r\n" for key in keys)
        else:
            text = "".join(f"mg {key} v\r\n" for key in keys)
        self.socket.sendall(text.encode())
        errors = misses = 0
        for key in keys:
            line = self.lines.readline().rstrip()
            if not line:
                raise OSError("the proxy ended the connection")
            if is_write:
                if line == b"STORED":
                    self.written[key] = str(first)
                else:
                    errors += 1
            elif line.startswith(b"VA "):
                value = self.lines.readline().rstrip().decode()
                errors += value != self.written.get(key, value)
            elif line == b"EN":
                misses += key in self.written
            else:
                errors += 1
            if errors and line not in (b"STORED", b"EN") and not line.startswith(b"VA "):
                print(f"{time.strftime('%X')} client {self.number}, {'set' if is_write else 'get'} {key}: {line}", file=sys.stderr)
        return errors, misses


class Fleet:
    def __init__(self, folder):
        self.folder, self.dir, self.started = folder, folder / "cluster", []
        self.cluster("up", "--port", "0", "--memory", "64m", "--flash", "160m")
        plan = (self.dir / "plan.toml").read_text()
        self.control = f"http://127.0.0.1:{int(plan.split('control = ')[1].split()[0])}"
        parts = [part for part in plan.split("[[processes]]")[1:]]
        field = lambda part, name: part.split(f"\n{name} = ")[1].split("\n")[0].strip('"')
        proxies = [part for part in parts if field(part, "proxy") == "true"]
        self.proxies = [(int(field(part, "port")), int(field(part, "admin"))) for part in proxies]

    def cluster(self, *arguments):
        subprocess.run([BIN, "cluster", *arguments, "--dir", self.dir], check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)

    def command(self, *arguments):
        done = subprocess.run([BIN, *arguments, "--control", self.control], env=ENVIRONMENT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *arguments):
        log = open(self.folder / f"log-{len(self.started)}", "wb")
        process = subprocess.Popen([BIN, *arguments, "--control", self.control], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(process)

    def node(self, replica, slot, zone, writer):
        port = free_port()
        self.start("serve", "--listen", "127.0.0.1", "--threads", "1", "--port", str(port), "--admin", f"127.0.0.1:{free_port()}",
                   "--writer-id", str(writer), "--app", "default", "--zone", zone, "--replica", replica, "--slot", slot, "--cluster",
                   "--memory", "64m", "--state-dir", str(self.folder / f"state-{writer}"), "--catch-up", "control:default")
        return f"127.0.0.1:{port}"

    def nodes(self):
        """What each proxy says of each node, by its address."""
        pages = [get(f"http://127.0.0.1:{admin}/proxy") for _, admin in self.proxies]
        return [{node["node"]: node["state"] for node in page["apps"][0]["nodes"]} if page else {} for page in pages]

    def kill(self, name):
        os.kill(int((self.dir / f"{name}.pid").read_text()), signal.SIGKILL)

    def end(self):
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait(60)
        self.cluster("down")


def add_a_replica(fleet):
    fleet.command("topology", "default", "add-replica", "d", "a", "d0", "d1")
    new = [fleet.node("d", f"d{number}", "a", 10 + number) for number in range(2)]
    until("proxies ask the new nodes", lambda: all(seen.get(node) == "up" for seen in fleet.nodes() for node in new))
    fleet.start("worker", "--app", "default")
    fleet.command("warm", "--app", "default", "--from", "a", "--to", "d")


def drain_a_zone(fleet):
    fleet.command("topology", "default", "drain", "--zone", "b")
    until("proxies know of it", lambda: all(list(seen.values()).count("leaving") == 2 for seen in fleet.nodes()))
    time.sleep(AFTER)
    fleet.command("topology", "default", "drain", "--zone", "b", "--off")
    until("proxies know of its end", lambda: all(list(seen.values()).count("leaving") == 0 for seen in fleet.nodes()))


def replace_a_dead_node(fleet):
    fleet.kill("c0")
    spare = fleet.node("c", "c0", "c", 12)
    until("the spare has its slot", lambda: all(seen.get(spare) == "up" for seen in fleet.nodes()))
    # A rollout would be held for one that has fallen silent.
    until("the dead one is away", lambda: get(f"{fleet.control}/v1/default/status").get("away") == 1)


def roll_a_property_out_and_back(fleet):
    values = lambda: get(f"{fleet.control}/v1/default/property-status?app=default").get("counts", {})
    for value in ("1500ms", "1000ms"):
        fleet.command("property", "rollout", "start", "app=default", "node_timeout", value, "--soak", "2s", "--why", "measured")
        over = lambda: get(f"{fleet.control}/v1/default/rollouts").get("rollouts", [{}])[0].get("progress") == "done"
        until(f"all have {value}", over)
    fleet.command("property", "unset", "app=default", "node_timeout", "--why", "measured")
    until("all have it applied", lambda: values().get("applied", 0) > 0 and not values().get("behind"))


def kill_the_control_plane(fleet):
    process = int((fleet.dir / "control.pid").read_text())
    command = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[:-1]
    fleet.kill("control")
    time.sleep(2 * AFTER)
    # Not `cluster up`, which would start the dead node as well.
    log = open(fleet.folder / "control.log", "wb")
    fleet.started.append(subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    until("it answers", lambda: get(f"{fleet.control}/v1/status").get("in_step"))


STEPS = [add_a_replica, drain_a_zone, replace_a_dead_node, roll_a_property_out_and_back, kill_the_control_plane]


def measured(samples):
    times = sorted(sample[1] for sample in samples)
    p99 = times[int(len(times) * 0.99)] * 1000 if times else 0.0
    return len(samples) * BATCH, sum(sample[2] for sample in samples), sum(sample[3] for sample in samples), p99


def plot(samples, begun, marks):
    left, width, height, pitch = 60, 900, 110, 140
    seconds = max(1, int(max(sample[0] for sample in samples) - begun))
    rows = [[] for _ in range(seconds + 1)]
    for sample in samples:
        rows[int(sample[0] - begun)].append(sample)
    rows = [measured(row) for row in rows[:seconds]]
    panels = [
        ("requests a second", [row[0] for row in rows]),
        ("errors a second", [row[1] for row in rows]),
        (f"p99 of {BATCH} requests that are sent together, ms", [row[3] for row in rows]),
    ]
    x = lambda at: left + at * width / seconds
    bottom = 20 + len(panels) * pitch
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 {bottom + 24}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="#ffffff"/>']
    for number, (_, at) in enumerate(marks):
        svg.append(f'<path d="M{x(at):.1f},20V{bottom}" stroke="#dddddd"/><text x="{x(at) + 1:.1f}" y="{bottom + 12}">{number + 1}</text>')
    for number, (name, values) in enumerate(panels):
        top, high = 24 + number * pitch, max(10, *values)
        points = " ".join(f"{x(at + 0.5):.1f},{top + height * (high - value) / high:.1f}" for at, value in enumerate(values))
        svg.append(f'<text x="{left}" y="{top - 5}" font-weight="bold">{name}</text>'
                   f'<text x="{left - 4}" y="{top + 4}" text-anchor="end">{high:.0f}</text>'
                   f'<text x="{left - 4}" y="{top + height + 4}" text-anchor="end">0</text>'
                   f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999999"/>'
                   f'<polyline points="{points}" fill="none" stroke="#1f77b4"/>')
    return "\n".join([*svg, "</svg>", ""])


def main():
    # What was started ends with it, also where it is told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as folder:
        fleet, clients, marks = Fleet(pathlib.Path(folder)), [], []
        try:
            until("proxies ask all nodes", lambda: all(list(seen.values()).count("up") == 6 for seen in fleet.nodes()))
            clients = [Client(port, number) for number, (port, _) in enumerate(fleet.proxies)]
            begun = time.monotonic()
            for client in clients:
                client.thread.start()
            marks.append(("nothing", 0.0))
            time.sleep(2 * AFTER)
            for step in STEPS:
                marks.append((step.__name__.replace("_", " "), time.monotonic() - begun))
                print(f"{time.strftime('%X')} {marks[-1][0]}", file=sys.stderr)
                step(fleet)
                time.sleep(AFTER)
            for client in clients:
                client.is_over = True
                client.thread.join()
        finally:
            for client in clients:
                client.is_over = True
            fleet.end()
    samples = sorted(sample for client in clients for sample in client.samples)
    ends = [at for _, at in marks[1:]] + [float("inf")]
    print(f"{'':32} {'seconds':>8} {'requests':>9} {'errors':>7} {'misses':>7} {'p99, ms':>8}")
    for number, ((name, at), end) in enumerate(zip(marks, ends)):
        within = [sample for sample in samples if at <= sample[0] - begun < end]
        requests, errors, misses, p99 = measured(within)
        lasted = min(end, samples[-1][0] - begun) - at
        print(f"{number + 1}. {name:29} {lasted:8.0f} {requests:9} {errors:7} {misses:7} {p99:8.1f}")
    if place := os.environ.get("MONETA_FLEET_PLOT"):
        pathlib.Path(place).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(place).write_text(plot(samples, begun, marks))
    failed = sum(sample[2] + sample[3] for sample in samples)
    if failed:
        sys.exit(f"{failed} requests failed, or found nothing where something was stored")


if __name__ == "__main__":
    main()
