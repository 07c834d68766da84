#!/usr/bin/env python3
"""Writes libmemcached.txt: where libmemcached itself (Debian's libmemcached11, 1.1.4) places keys with KETAMA_WEIGHTED.

Each case is a line of nodes, HOST:PORT*WEIGHT, and a line with the nodes' numbers for the keys `key:0`, `key:1`, …
"""

import ctypes
import random

KEYS = 250
KETAMA_WEIGHTED = 16  # memcached_behavior_t

library = ctypes.CDLL("libmemcached.so.11")
library.memcached_create.restype = ctypes.c_void_p
library.memcached_create.argtypes = [ctypes.c_void_p]
library.memcached_behavior_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
library.memcached_server_add_with_weight.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint16, ctypes.c_uint32]
library.memcached_generate_hash.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
library.memcached_generate_hash.restype = ctypes.c_uint32


def place(nodes):
    client = library.memcached_create(None)
    assert library.memcached_behavior_set(client, KETAMA_WEIGHTED, 1) == 0
    for host, port, weight in nodes:
        assert library.memcached_server_add_with_weight(client, host.encode(), port, weight) == 0
    keys = [f"key:{number}".encode() for number in range(KEYS)]
    return [library.memcached_generate_hash(client, key, len(key)) for key in keys]


chance = random.Random(7)
cases = [
    [("10.0.0.1", 11211, 1)],
    [("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 1)],
    [("cache1", 11211, 1), ("cache2", 11212, 1), ("cache3.example.com", 21211, 1)],
    [("127.0.0.1", 11211 + number, 1) for number in range(7)],
    [(f"node{number}", 11211, number + 1) for number in range(5)],
    [("a", 11211, 1), ("b", 11211, 1000)],
    [(f"10.1.0.{number}", 11211, 1) for number in range(25)],  # 156 points each, by rounding
    [(f"10.2.0.{number}", chance.choice([11211, 11212]), chance.randrange(1, 2000)) for number in range(30)],
]
with open("libmemcached.txt", "w") as file:
    for nodes in cases:
        print(*(f"{host}:{port}*{weight}" for host, port, weight in nodes), file=file)
        print(*place(nodes), file=file)
