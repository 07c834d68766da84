"""Starts a server for the tests: the binary that MONETA_BIN names, or memcached if it is called that."""

import os
import socket
import ssl
import subprocess
import tempfile
import time

from pymemcache.client import base

START_SECONDS = 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_proxy():
    """Whether the server is a proxy over nodes that hold the items."""
    return "PROXY_NODES" in os.environ


class LoggedIn(base.Client):
    """A client that logs in on each of its connections: memcached's way, by the first command."""

    def _connect(self):
        super()._connect()
        log_in = f"{os.environ['LOGIN_USER']} {os.environ['LOGIN_SECRET']}".encode()
        try:
            self.sock.sendall(b"set log-in 0 0 %d\r\n%s\r\n" % (len(log_in), log_in))
            answer = b""
            while not answer.endswith(b"\r\n"):
                received = self.sock.recv(4096)
                if not received:
                    raise ConnectionError("it was closed at the log-in")
                answer += received
            if answer != b"STORED\r\n":
                raise ConnectionError(answer.decode())
        except Exception:
            self.close()
            raise


def is_over_tls():
    """Whether servers speak TLS, and want a log-in."""
    return "TLS_CA" in os.environ


# What the tests connect with, and what it takes besides.
Client = LoggedIn if is_over_tls() else base.Client
PROTECTED = {"tls_context": ssl.create_default_context(cafile=os.environ["TLS_CA"])} if is_over_tls() else {}


class PooledClient(base.PooledClient):
    client_class = Client


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
