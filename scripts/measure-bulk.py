#!/usr/bin/env python3
"""What moving items in bulk costs, on the machine that this runs on (docs/bulk.md has figures).

    scripts/measure-bulk.py PROGRAM [ssd] [dead] [memcached] [ring] [--items N] [--rounds N]

ssd        a node on SSD dumped to nowhere, beside what fio reads from the same file; CPU seconds a GB, of node and dumper
dead       the same where half of the log is dead: bytes that are told over those that live
memcached  a dump of a memcached of 300,000 items of 500 B, as Cachemover was measured
ring       three nodes copied to five beside gets, sets and deletes at a fixed rate; then both compared

ssd and memcached are medians of --rounds dumps of the same server. Where a job waits, as `moneta dump --json` tells it, is printed
after each.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from processes import free_port

VALUE = 1000
RATE = 2000
SECONDS = 20
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A server that is ended with the block."""

    def __init__(self, *command, port=None, log=subprocess.DEVNULL):
        self.child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=log)
        self.port = port

    def __enter__(self):
        end = time.time() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.child.poll() is not None or time.time() > end:
                    raise SystemExit(f"{self.child.args} does not listen")
                time.sleep(0.1)

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def cpu(self):
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def node(program, *more):
    port = free_port()
    own = ["serve", "-p", port, "--admin", "off", "--threads", "2", "--cluster"]
    return Process(program, *own, *more, port=port)


def fill(port, keys, size, prefix="k"):
    """Sets of these numbers, without answers but for the last."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        value = os.urandom(size // 2 + 1).hex()[:size]
        part = []
        for key in keys:
            part.append(f"set {prefix}{key:010} 0 0 {size} noreply\r\n{value}\r\n")
            if len(part) == 1000:
                stream.sendall("".join(part).encode())
                part = []
        stream.sendall(("".join(part) + "mn\r\n").encode())
        if stream.recv(16) != b"MN\r\n":
            raise SystemExit("an item was not taken")


def run(*command):
    """Wall and CPU seconds of a command, and the last line that it prints, as JSON."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wall, after = time.time() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, json.loads(done.stdout.splitlines()[-1])


def dump(program, server, port):
    """A dump to nowhere: its report, and CPU seconds of the node beside it."""
    before = server.cpu()
    wall, cpu, report = run(program, "dump", f"127.0.0.1:{port}", "--into", "nowhere:", "--no-compression", "--json")
    return wall, cpu, server.cpu() - before, report


# What was written is on the device after the flush interval.
SETTLED = 3


def fio(path):
    """Bytes a second that fio reads of a file, 1 MiB at a time, four on their way."""
    if not shutil.which("fio"):
        raise SystemExit("fio is missing: apt-get install fio")
    command = ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=read", "--bs=1m", "--direct=1", "--iodepth=4"]
    command += ["--ioengine=libaio", "--output-format=json"]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(text[text.index("{") :])["jobs"][0]["read"]["bw_bytes"]


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def stages(name, report, phase="base"):
    """The rates by stage of a report, in words."""
    of = report["stages"][phase]
    time_of = ", ".join(f"{what} {share:.0%}" for what, share in of["time"].items())
    passed = (f"{what} {of[what]['items_per_s']:,}/s, {of[what]['bytes_per_s'] / 1e6:.1f} MB/s" for what in ("read", "written"))
    print(f"{name}: {'; '.join(passed)}; time: {time_of}; limited by {of['limit']}")


def tier(folder, bytes_live):
    size = bytes_live * 2 // (1 << 20) + 256
    return ["--flash", f"{folder}/tier:{size}m", "-m", "64"]


def ssd(args, folder):
    program, items = args.program, args.items
    live = items * (VALUE + 11)
    with node(program, *tier(folder, live)) as server:
        fill(server.port, range(items), VALUE)
        time.sleep(SETTLED)
        rounds = [dump(program, server, server.port) for _ in range(args.rounds)]
    report = rounds[-1][3]
    wall, cpu, of_node = (median([one[number] for one in rounds]) for number in range(3))
    both = sorted(one[1] + one[2] for one in rounds)
    read = report["base"]["bytes"]
    device = fio(next(path for path in Path(folder).rglob("*") if path.is_file() and path.stat().st_size > live))
    cores = (cpu + of_node) / wall
    print(f"ssd: {items} items of {VALUE} B by {report['by']}: {read / wall / 1e6:.0f} MB/s, fio {device / 1e6:.0f} MB/s: {read / wall / device:.2f} of it")
    print(f"ssd: {cores:.2f} of {os.cpu_count()} cores busy; CPU-s a GB: node {of_node / read * 1e9:.2f}, dumper {cpu / read * 1e9:.2f}, both {median(both) / read * 1e9:.2f}, {both[0] / read * 1e9:.2f} to {both[-1] / read * 1e9:.2f} in {len(both)} rounds (at most 1.5)")
    stages("ssd", report)


def dead(args, folder):
    program, items = args.program, args.items
    live = items * (VALUE + 11)
    with node(program, *tier(folder, live * 2)) as server:
        fill(server.port, range(items), VALUE)
        fill(server.port, range(items), VALUE)
        time.sleep(SETTLED)
        _, _, _, report = dump(program, server, server.port)
    base = report["base"]
    print(f"dead: half of the log: {base['items']} items told of {items}, {base['bytes'] / live:.3f} of the live bytes (at most 1.05)")


def memcached(args, folder):
    program = args.program
    items, size = 300_000, 500
    port = free_port()
    user = ["-u", "root"] if os.geteuid() == 0 else []
    with Process("memcached", "-l", "127.0.0.1", "-p", port, "-U", 0, "-m", 1024, "-t", 2, *user, port=port) as server:
        fill(port, range(items), size)
        rounds = []
        for number in range(args.rounds):
            into, before = f"{folder}/memcached{number}", server.cpu()
            done = run(program, "dump", f"127.0.0.1:{port}", "--into", into, "--no-compression", "--json")
            rounds.append((*done[:2], server.cpu() - before, done[2]))
            shutil.rmtree(into)
    wall, cpu, of_server = (median([one[number] for one in rounds]) for number in range(3))
    report = rounds[-1][3]
    lost = max(items - one[3]["base"]["items"] for one in rounds)
    rate = report["base"]["bytes"] / wall / 1e6
    walls = sorted(one[0] for one in rounds)
    print(f"memcached: {items} items of {size} B: {wall:.2f} s ({walls[0]:.2f} to {walls[-1]:.2f}), {cpu:.2f} s CPU, {rate:.0f} MB/s, at most {lost} lost; memcached {of_server:.2f} s CPU")
    print("memcached: Cachemover, elsewhere: 2.17 s, 2.14 s CPU, 13 to 28 lost; at most 350 MB/s an instance")
    stages("memcached", report)


def topology(path, epoch, replicas):
    """Replicas by their names: ports of nodes; the second one takes writes alone."""
    text = f'epoch = {epoch}\nring = "slots"\n'
    for number, (name, ports) in enumerate(replicas.items()):
        slots = ", ".join(f'"{name}{slot}=127.0.0.1:{port}"' for slot, port in enumerate(ports))
        text += f'\n[[replica]]\nname = "{name}"\nzone = "{name}"\nnodes = [{slots}]\n'
        text += "write_only = true\n" if number else ""
    new = Path(f"{path}.new")
    new.write_text(text)
    new.rename(path)


def load(args, port, *more):
    """Gets, sets and deletes at a fixed rate; milliseconds of their p99, from when each was due."""
    with tempfile.NamedTemporaryFile() as out:
        mix = ["--mix", "get=80,set=15,delete=5", "--keys", args.items, "--value-size", args.value_size, "--rate", RATE]
        command = [args.program, "bench", "--server", f"127.0.0.1:{port}", *mix, "--connections", 8, "--threads", 1]
        command += ["--duration", SECONDS, "--quiet", "--json", out.name, *more]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(out.name).read_text())["latency"]["p99"] / 1000


def ring(args, folder):
    program, items = args.program, args.items
    path = f"{folder}/topology.toml"
    memory = items * (args.value_size + 150) // 2 // (1 << 20) + 256
    own = ["--admin", "off", "--threads", 1, "--cluster", "-m", memory, "--feed-memory", 5]
    ports = {"a": [free_port() for _ in range(3)], "b": [free_port() for _ in range(5)]}
    with ExitStack() as stack:
        for number, port in enumerate(ports["a"] + ports["b"]):
            stack.enter_context(Process(program, "serve", "-p", port, "--writer-id", number, *own, port=port))
        topology(path, 1, {"a": ports["a"]})
        port = free_port()
        proxy = ["proxy", "-p", port, "--admin", "off", "--topology", path, "--zone", "a", "--writer-id", 9]
        stack.enter_context(Process(program, *proxy, port=port))
        load(args, port, "--fill")
        quiet = median([load(args, port) for _ in range(3)])
        topology(path, 2, ports)
        time.sleep(5)
        copy = [program, "copy", "--from", "a", "--to", "b", "--topology", path, "--follow", "--json"]
        copy += ["--operations", args.operations, "--p99-limit", "1.5"]
        copy = [str(word) for word in copy]
        with tempfile.TemporaryFile("w+") as notes, tempfile.TemporaryFile("w+") as out:
            begun = time.time()
            copying = subprocess.Popen(copy, stdout=out, stderr=notes)
            beside, ended = [], None
            while ended is None:
                beside.append(load(args, port))
                told = Path(f"/proc/self/fd/{notes.fileno()}").read_text()
                if told.count("all that it held is copied") == len(ports["a"]):
                    ended = time.time()
                elif copying.poll() is not None:
                    raise SystemExit(f"the copy has ended: {told}")
            time.sleep(5)
            copying.send_signal(signal.SIGTERM)
            copying.wait()
            out.seek(0)
            report = json.loads(out.read().splitlines()[-1])
        verify = [program, "verify", "a", "b", "--topology", path]
        verified = subprocess.run([str(word) for word in verify], stdout=subprocess.PIPE, text=True)
    base, changes = report["base"], report["changes"]
    print(f"ring: {base['items']} items and {changes['items'] + changes['deletes']} changes in at most {ended - begun:.0f} s, beside {RATE} requests a second; {args.value_size} B")
    ratios = ", ".join(f"{one / quiet:.2f}" for one in beside)
    stages("ring", report)
    print(f"ring: p99 in quiet {quiet:.2f} ms, beside it so many times that, by {SECONDS} s: {ratios} (at most 1.5)")
    print(f"ring: moneta verify ends with {verified.returncode}: {verified.stdout.splitlines()[0] if verified.stdout else ''}")


def main():
    all_of = {"ssd": ssd, "dead": dead, "memcached": memcached, "ring": ring}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("what", nargs="*", choices=[[], *all_of], default=[])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--value-size", type=int, default=VALUE, help="bytes of a value of ring [default: %(default)s]")
    parser.add_argument("--operations", type=int, default=60_000, help="items a second that ring copies at most [default: %(default)s]")
    parser.add_argument("--dir", help="where the tier lies [default: a temporary directory]")
    args = parser.parse_args()
    for what in args.what or all_of:
        with tempfile.TemporaryDirectory(dir=args.dir) as folder:
            all_of[what](args, folder)
            sys.stdout.flush()


main()
