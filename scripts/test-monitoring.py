#!/usr/bin/env python3
"""Holds deploy/monitoring to a real Prometheus: rules are checked and tested, and each panel and rule has samples in a scrape of a node,
a node with an SSD tier, one with TLS, a proxy and a relay, all under load. MONETA_BIN: the program.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from processes import ENVIRONMENT, free_port, page, until

ROOT = pathlib.Path(__file__).resolve().parent.parent
MONITORING = ROOT / "deploy/monitoring"
BIN = os.environ.get("MONETA_BIN", str(ROOT / "target/debug/moneta"))


class Processes:
    """Those that were started; all end with this."""

    def __init__(self, folder):
        self.folder, self.running = folder, []

    def start(self, *arguments):
        log = open(self.folder / f"log-{len(self.running)}", "wb")
        process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        self.running.append((arguments, process, log))
        return process

    def moneta(self, *arguments):
        port, admin = free_port(), free_port()
        self.start(BIN, arguments[0], "-p", str(port), "--admin", f"127.0.0.1:{admin}", "-t", "2", *arguments[1:])
        return port, admin

    def alive(self):
        """Ends the test if one of them has ended."""
        for arguments, process, _ in self.running:
            if process.poll() is not None:
                sys.exit(f"ended: {arguments}")

    def end(self, failed):
        for arguments, process, log in self.running:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
            log.close()
            if failed:
                print(f"--- {' '.join(arguments)}", pathlib.Path(log.name).read_text()[-2000:], file=sys.stderr)


def load(port, ends, size):
    """Sets and gets keys, more than 8 MiB of them, until told to end."""
    number = 0
    while not ends.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as one:
                one.settimeout(10)
                answers = one.makefile("rb")
                while not ends.is_set():
                    number += 1
                    key = f"key:{number % 12000}"
                    one.sendall(f"set {key} 0 0 {size}\r\n".encode() + b"v" * size + f"\r\nget key:{number * 7919 % 12000}\r\nget hot\r\n".encode())
                    for _ in range(2):
                        while answers.readline() not in (b"END\r\n", b""):
                            pass
        except OSError:
            time.sleep(0.2)


def main():
    subprocess.run([ROOT / "scripts/monitoring.py", "--check"], check=True)
    subprocess.run(["promtool", "check", "rules", MONITORING / "rules.yaml"], check=True)
    subprocess.run(["promtool", "test", "rules", MONITORING / "rules.test.yaml"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        processes, ends = Processes(folder), threading.Event()
        failed = True
        try:
            scrape(folder, processes, ends)
            failed = False
        finally:
            ends.set()
            processes.end(failed)


def scrape(folder, processes, ends):
    nodes = [processes.moneta("serve", "--cluster", "--region-id", "1", "-m", "16") for _ in range(2)]
    west = processes.moneta("serve", "--cluster", "--region-id", "2", "-m", "16")
    ssd = processes.moneta("serve", "-m", "8", "--flash", f"{folder}/ssd:160m", "--flash-flush-interval", "100ms")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate,
                    "-subj", "/CN=localhost", "-days", "30"], check=True, capture_output=True)
    key.chmod(0o600)
    users = folder / "users.toml"
    subprocess.run([BIN, "user", "add", users, "ann", "--rights", "read", "--expires", "30d"], check=True, capture_output=True)
    of_users = ["--users", str(users), "--admin-metrics-open"]
    tls = processes.moneta("serve", "--tls-cert", str(certificate), "--tls-key", str(key), "--admin-tls", "off", *of_users)
    topology, other = folder / "topology.toml", folder / "west.toml"
    for path, of in ((topology, nodes), (other, [west])):
        replicas = [f'[[replica]]\nname = "{zone}"\nzone = "{zone}"\nnodes = ["127.0.0.1:{port}"]\n' for zone, (port, _) in zip("ab", of)]
        path.write_text("epoch = 1\n" + "".join(replicas))
    for _, admin in [*nodes, west]:
        until("a node is ready", lambda: page(f"http://127.0.0.1:{admin}/readyz"))
    proxy = processes.moneta("proxy", "--topology", str(topology), "--zone", "a", "--region-id", "1")
    relay = free_port()
    processes.start(BIN, "relay", "--from", str(topology), "--to", str(other), "--region", "1", "--state-dir", f"{folder}/relay", "--probe", "--admin", f"127.0.0.1:{relay}")
    admins = [*(admin for _, admin in [*nodes, west, ssd, tls, proxy]), relay]
    for admin in admins:
        until(f"port {admin} is ready", lambda: processes.alive() or page(f"http://127.0.0.1:{admin}/readyz"))
    for port, size in ((nodes[0][0], 100), (ssd[0], 4000), (proxy[0], 300)):
        threading.Thread(target=load, args=(port, ends, size), daemon=True).start()

    web = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "rules.yaml")],
        "scrape_configs": [{"job_name": "moneta", "static_configs": [{"targets": [f"127.0.0.1:{admin}" for admin in admins]}]}],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))
    subprocess.run(["promtool", "check", "config", path], check=True)
    # Prometheus' own linter of what is served.
    for admin in admins:
        linted = subprocess.run(["promtool", "check", "metrics"], input=page(f"http://127.0.0.1:{admin}/metrics"), text=True, capture_output=True)
        if linted.returncode:
            sys.exit(f"promtool check metrics: {linted.stdout}{linted.stderr}")
    processes.start("prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{web}")
    until("Prometheus is ready", lambda: page(f"http://127.0.0.1:{web}/-/ready"))

    def result(query):
        answer = page(f"http://127.0.0.1:{web}/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        return json.loads(answer)["data"]["result"] if answer else []

    until("all are scraped", lambda: len(result('up{job="moneta"} == 1')) == len(admins))
    probes = json.loads((MONITORING / "probes.json").read_text())
    for probe in probes:
        # A ratio without a denominator is a sample, too, and no number.
        is_number = lambda: any(sample["value"][1] != "NaN" for sample in result(probe["query"]))
        until(f"{probe['of']} has samples: {probe['query']}", is_number)
    rules = json.loads(page(f"http://127.0.0.1:{web}/api/v1/rules"))["data"]["groups"][0]["rules"]
    unwell = [rule["name"] for rule in rules if rule["health"] != "ok"]
    if unwell:
        sys.exit(f"rules that cannot be evaluated: {unwell}")
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    print(f"{len(probes)} queries of panels and {len(rules)} alerts have samples; firing: {', '.join(firing) or 'none'}")


if __name__ == "__main__":
    main()
