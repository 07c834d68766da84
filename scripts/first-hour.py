#!/usr/bin/env python3
"""Plays docs/first-hour.md and puts what is seen into it: first-hour.py PROGRAM

Each `$` line of a `console` block, with the `>` lines that follow it, is given to one shell in a fresh Debian (debootstrap; kept in the cache folder for the next run), and
what it prints takes the place of what was below it. A command has to succeed, but one that ends in `# refused`, which must not. There
is no network but loopback. Three things are special:

- `moneta top` runs in tmux, and its screen is shown.
- `systemctl` is a program that has this one do what the unit says: as its user, with its environment and folders, and NOTIFY_SOCKET.
  A start ends with READY=1; each process must tell of its turns (WATCHDOG=1), and of its stop (STOPPING=1).
- blocks of `console image` are run beside that Debian, by this machine's podman.

A comment `<!-- screen URL FILE -->` writes what Chromium shows of a page into docs/FILE. Needs root, debootstrap, tmux, podman, Node.js.
"""

import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/first-hour.md"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "moneta/first-hour"
SUITE = "bookworm"
# What is in the fresh Debian beside its base.
PACKAGES = "ca-certificates,openssl,curl,procps,prometheus"
# Seconds until what has to happen is taken not to.
PATIENCE = 120
COLUMNS, LINES = 110, 30
MARK = "first-hour-mark"

SYSTEMCTL = """#!/bin/sh
# Asks the player of the first hour, which knows no more than these.
echo "$*" >/run/play/ask
read -r status rest </run/play/answer
[ -z "$rest" ] || echo "$rest"
exit "$status"
"""


def base():
    """The fresh Debian, made once."""
    folder = CACHE / SUITE
    if not folder.exists():
        part = CACHE / f"{SUITE}.part"
        shutil.rmtree(part, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, part], check=True, stdout=subprocess.DEVNULL)
        part.rename(folder)
    return folder


class Service:
    """A unit as systemd would run it, without its sandbox."""

    def __init__(self, root, name):
        self.root, self.name, self.process, self.told = root, name, None, []
        self.unit = {}
        for line in (root / f"usr/lib/systemd/system/{name}.service").read_text().splitlines():
            if match := re.match(r"(\w+)=(.*)", line):
                self.unit.setdefault(match[1], []).append(match[2])

    def environment(self):
        variables = {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": "/run/play/notify", "WATCHDOG_USEC": str(int(self.unit["WatchdogSec"][0]) * 1_000_000)}
        lines = [word for line in self.unit.get("Environment", []) for word in shlex.split(line)]
        for path in self.unit.get("EnvironmentFile", []):
            file = self.root / path.lstrip("-/")
            lines += file.read_text().splitlines() if file.exists() else []
        variables.update(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
        return variables

    def start(self):
        user, group = self.unit["User"][0], self.unit["Group"][0]
        for key, parent in (("StateDirectory", "var/lib"), ("RuntimeDirectory", "run")):
            for folder in self.unit.get(key, []):
                mode = self.unit[f"{key}Mode"][0]
                within(self.root, "install", "-d", "-o", user, "-g", group, "-m", mode, f"/{parent}/{folder}")
        path = self.root / "run/play/notify"
        path.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(path))
        path.chmod(0o666)
        self.told = []
        told = self.told

        def listen():
            while True:
                told.extend(notify.recv(4096).decode().splitlines())

        threading.Thread(target=listen, daemon=True).start()
        log = open(self.root / f"var/log/{self.name}.log", "ab")
        command = [shutil.which("chroot"), f"--userspec={user}:{group}", self.root, *shlex.split(self.unit["ExecStart"][0])]
        self.process = subprocess.Popen(command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.until("READY=1")
        # Not only once: every second.
        self.until("WATCHDOG=1")

    def until(self, word):
        end = time.monotonic() + PATIENCE
        while word not in self.told:
            if self.process.poll() is not None and word != "STOPPING=1":
                raise RuntimeError(f"{self.name} ended with status {self.process.returncode}: " + (self.root / f"var/log/{self.name}.log").read_text()[-1000:])
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name} never told {word}")
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if status := self.process.wait(PATIENCE):
            raise RuntimeError(f"{self.name} ended with status {status}")
        self.until("STOPPING=1")
        self.process = None

    def is_active(self):
        return self.process is not None and self.process.poll() is None


def within(root, *command):
    return subprocess.run(["chroot", root, *command], check=True, capture_output=True, text=True).stdout


class Units:
    """What `systemctl` in the fresh Debian is answered."""

    def __init__(self, root):
        self.root, self.services, self.failure = root, {}, None
        (root / "run/systemd/system").mkdir(parents=True)
        (root / "run/play").mkdir()
        for pipe in ("ask", "answer"):
            os.mkfifo(root / f"run/play/{pipe}")
        program = root / "usr/local/bin/systemctl"
        program.write_text(SYSTEMCTL)
        program.chmod(0o755)
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        while True:
            asked = (self.root / "run/play/ask").read_text().split()
            try:
                status, text = self.obey([word for word in asked if not word.startswith("--")], "--now" in asked)
            except (RuntimeError, OSError, KeyError, subprocess.SubprocessError) as error:
                self.failure = f"systemctl {' '.join(asked)}: {error}"
                status, text = 1, ""
            (self.root / "run/play/answer").write_text(f"{status} {text}\n")

    def obey(self, words, now):
        verb, names = words[0], [name.removesuffix(".service") for name in words[1:]]
        for name in names:
            service = self.services.get(name)
            runs = service is not None and service.is_active()
            if verb == "is-active":
                return (0, "active") if runs else (3, "inactive")
            if runs and (verb in ("stop", "restart", "try-restart") or (verb == "disable" and now)):
                service.stop()
            if verb in ("start", "restart") and not (runs and verb == "start") or (verb == "try-restart" and runs) or (verb == "enable" and now and not runs):
                # Read again, as after a daemon-reload.
                self.services[name] = Service(self.root, name)
                self.services[name].start()
        if verb not in ("start", "stop", "restart", "try-restart", "enable", "disable", "daemon-reload"):
            raise RuntimeError("not known here")
        return 0, ""


class Shell:
    """One that stays, and is given one command after the other."""

    def __init__(self, *command):
        environment = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        environment.update((name, value) for name, value in os.environ.items() if name.startswith("CONTAINERS_"))
        self.process = subprocess.Popen([*command, "/bin/bash"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.run("cd /root")

    def run(self, command):
        self.process.stdin.write(f"{command}\nprintf '\\n{MARK} %s\\n' $?\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith(MARK):
                # Its newline stands before the mark, where the command's last line ended without one or with one.
                text = "".join(lines)
                return int(line.split()[1]), (text.removesuffix("\n") if text.endswith("\n\n") or text == "\n" else text)
            lines.append(line)
        raise RuntimeError(f"the shell has ended in: {command}")


def screen(root, command):
    """What a command that fills the terminal shows after some seconds."""
    name = f"first-hour-{os.getpid()}"
    tmux = lambda *words: subprocess.run(["tmux", "-L", name, "-f", "/dev/null", *words], check=True, capture_output=True, text=True).stdout
    tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), f"chroot {root} {command} 2>&1")
    time.sleep(5)
    shown = tmux("capture-pane", "-p")
    tmux("send-keys", "q")
    end = time.monotonic() + PATIENCE
    while subprocess.run(["tmux", "-L", name, "has-session"], capture_output=True).returncode == 0:
        if time.monotonic() > end:
            raise RuntimeError(f"{command} does not end on q")
        time.sleep(0.1)
    return "\n".join(line.rstrip() for line in shown.rstrip().split("\n")) + "\n"


# Waits for what the page shows of itself in some seconds.
BROWSER = """
const { chromium } = require(process.argv[1] + "/playwright-core");
(async () => {
  const browser = await chromium.launch({ executablePath: process.argv[2], args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width: 900, height: 480 } });
  await page.goto(process.argv[3]);
  await page.waitForTimeout(20000);
  await page.screenshot({ path: process.argv[4] });
  await browser.close();
})();
"""


def picture(url, file):
    file.parent.mkdir(exist_ok=True)
    modules = subprocess.run([ROOT / "scripts/tool.sh", "console-browser"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run(["node", "-e", BROWSER, modules, shutil.which("chromium"), url, file], check=True, capture_output=True, timeout=PATIENCE)


def play(text, shells, root, units):
    """The page, with what was seen."""
    out, shell, skips = [], None, False
    lines = iter(text.split("\n"))
    line = next(lines)
    while line is not None:
        following = next(lines, None)
        if line.startswith("```"):
            kind = line[3:].split()
            shell = shells["image" if "image" in kind else "debian"] if kind[:1] == ["console"] else None
            skips = False
        elif match := re.match(r"<!-- screen (\S+) (\S+) -->", line):
            picture(match[1], ROOT / "docs" / match[2])
        elif shell and line.startswith("$ "):
            out.append(line)
            command, refused = line[2:], line.endswith("# refused")
            while following.startswith("> "):
                out.append(following)
                command += "\n" + following[2:]
                following = next(lines)
            print(f"$ {command}", flush=True)
            if re.match(r"moneta top\b(?!.*--once)", command):
                status, seen = 0, screen(root, command)
            else:
                status, seen = shell.run(command)
            print(seen, end="", flush=True)
            if units.failure or (status != 0) != refused:
                raise RuntimeError(units.failure or f"{command}: status {status}")
            out.extend(seen.rstrip("\n").split("\n") if seen.strip() else [])
            skips, line = True, following
            continue
        elif shell and skips:
            line = following
            continue
        out.append(line)
        line = following
    return "\n".join(out)


def main():
    if os.environ.get("MONETA_FIRST_HOUR") != "within":
        folder = base()
        units = [ROOT / "deploy/moneta.service", ROOT / "deploy/cluster/moneta-proxy.service"]
        # That the program is not where it will be is all it may say.
        said = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True).stderr
        if wrong := [line for line in said.splitlines() if "not executable" not in line]:
            sys.exit("\n".join(wrong))
        with tempfile.TemporaryDirectory() as work:
            spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
            script = 'set -e; work=$1; . scripts/containers.sh; exec "${@:2}"'
            environment = {**os.environ, "MONETA_FIRST_HOUR": "within"}
            # The next one is the same program under a later version.
            files = [f"{work}/image.tar"]
            subprocess.run([ROOT / "scripts/image.py", sys.argv[1], *files], check=True, stdout=subprocess.DEVNULL)
            for name, epoch in (("old", 1_700_000_000), ("next", 1_700_000_600)):
                quick = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "DPKG_DEB_COMPRESSOR_TYPE": "gzip"}
                made = subprocess.run([ROOT / "scripts/deb.sh", sys.argv[1], f"{work}/{name}"], env=quick, check=True, capture_output=True, text=True)
                files.append(made.stdout.strip())
            sys.exit(subprocess.run([*spaces, "bash", "-c", script, "play", work, sys.executable, __file__, work, folder, *files], cwd=ROOT, env=environment).returncode)
    work, lower, image, deb, following = map(pathlib.Path, sys.argv[1:])
    top = work / "top"
    top.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", top], check=True)
    for folder in ("upper", "work", "root"):
        (top / folder).mkdir()
    root = top / "root"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={top}/upper,workdir={top}/work", root], check=True)
    subprocess.run(["mount", "--bind", "/dev", root / "dev"], check=True)
    for kind, place in (("proc", "proc"), ("tmpfs", "run")):
        subprocess.run(["mount", "-t", kind, kind, root / place], check=True)
    shutil.copy(deb, root / "root/moneta.deb")
    shutil.copy(following, root / "root/moneta-next.deb")
    units = Units(root)
    shells = {"debian": Shell("chroot", root), "image": Shell()}
    shells["image"].run(f"cd {shlex.quote(str(work))}; mkdir dist; ln -s {shlex.quote(str(image))} dist/moneta-image.tar")
    try:
        PAGE.write_text(play(PAGE.read_text(), shells, root, units))
    except (RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"first-hour: {error}")


if __name__ == "__main__":
    main()
