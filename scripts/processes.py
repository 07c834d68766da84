"""What scripts share that start programs and look at them: ports, pages, and waiting until something holds."""

import os
import socket
import time
import urllib.request

# Long enough for a loaded machine; reached only when something is wrong.
PATIENCE = 120
# What programs are started with: nothing that sets their options.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MONETA_")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, holds):
    """What `holds` returns once that is something. TimeoutError names what never came."""
    end = time.monotonic() + PATIENCE
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"never came true: {what}")
        time.sleep(0.1)


def page(url):
    """The text of a page; None where it cannot be had."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except (OSError, ValueError):
        return None
