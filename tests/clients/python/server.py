"""Starts a server for the tests: the binary that MONETA_BIN names, or memcached if it is called that."""

import os
import socket
import subprocess
import tempfile
import time

START_SECONDS = 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_proxy():
    """Whether the server is a proxy over nodes that hold the items."""
    return "PROXY_NODES" in os.environ


class Server:
    """A running server; use it as a context manager."""

    def __init__(self, *arguments):
        program = os.environ["MONETA_BIN"]
        self.port = free_port()
        where = ["-p", str(self.port), "-l", "127.0.0.1"]
        if os.path.basename(program) == "memcached":
            command = [program, "-u", "root", "-U", "0", *where, *arguments]
        else:
            command = [program, "serve", "--admin", "off", *where, *arguments]
        self.messages = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.messages, stderr=self.messages)
        self.wait()

    def wait(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.01)
        self.stop()
        self.messages.seek(0)
        raise RuntimeError("the server did not start: " + self.messages.read().decode())

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.messages.close()
