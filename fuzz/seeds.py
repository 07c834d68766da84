#!/usr/bin/env python3
"""Writes the seed corpora: one small file for each kind of command, in front of it a byte for the length of the pieces."""

import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "seeds"


def packet(opcode, key=b"", extras=b"", value=b"", cas=0):
    sizes = (0x80, opcode, len(key), len(extras), 0, 0, len(key) + len(extras) + len(value), 7, cas)
    return struct.pack(">BBHBBHIIQ", *sizes) + extras + key + value


TEXT = {
    "get": b"set a 5 0 3\r\nabc\r\nget a b a\r\ngets a\r\n",
    "write": b"add a 0 0 1\r\n1\r\nreplace a 0 0 1\r\n2\r\nappend a 0 0 1\r\n3\r\nprepend a 0 0 1\r\n4\r\ncas a 0 0 1 4\r\n5\r\n",
    "noreply": b"set a 0 0 1 noreply\r\n1\r\nincr a 5 noreply\r\ndecr a 9\r\ndelete a noreply\r\ndelete a 0\r\n",
    "touch": b"set a 0 0 1\r\n1\r\ntouch a 10\r\ngat 0 a b\r\ngats -1 a\r\n",
    "bad": b"set a 0 0 3\r\nabcde\r\nset a -1 0 1\r\nget " + b"k" * 251 + b"\r\nfoo\r\n get a\r\n\r\nincr a x\r\n",
    "large": b"set a 0 0 1025\r\n" + b"x" * 1025 + b"\r\nms a 1025 q\r\n" + b"x" * 1025 + b"\r\nget a\r\n",
    "meta": b"ms a 2 c k O1 T30 F5\r\nxy\r\nmg a s v t f c h l k Oabc q\r\nmg b N30 v t\r\nmd a I T10\r\nmg a v\r\nma n N0 J5 v\r\nmn\r\nme a\r\n",
    "base64": b"ms YQ== 1 b k\r\nx\r\nmg YQ== b v k\r\nmg !! b\r\n",
    "admin": b"version\r\nverbosity 1\r\nflush_all 0\r\ncache_memlimit 64\r\nslabs automove 0\r\nlru mode flat\r\nlru_crawler crawl all\r\n",
    "dump": b"set a 0 0 1\r\n1\r\nlru_crawler metadump all\r\nlru_crawler mgdump hash\r\n",
    "stats": b"stats\r\nstats settings\r\nstats items\r\nstats detail on\r\nstats detail dump\r\nwatch mutations\r\nget a\r\n",
    "multiget": b"set a 0 0 900\r\n" + b"v" * 900 + b"\r\nget" + b" a" * 30 + b"\r\nquit\r\n",
}
BINARY = {
    "get": packet(1, b"a", b"\0\0\0\5" + b"\0" * 4, b"v") + b"".join(packet(op, b"a") for op in (0, 9, 0xC, 0xD)),
    "write": b"".join(packet(op, b"a", b"\0" * 8, b"v") for op in (2, 3, 0x11, 0x12)) + packet(0xE, b"a", b"", b"w"),
    "number": packet(5, b"n", struct.pack(">QQI", 1, 10, 0)) * 2 + packet(0x16, b"n", struct.pack(">QQI", 1, 10, 0)),
    "touch": b"".join(packet(op, b"a", b"\0" * 4) for op in (0x1C, 0x1D, 0x1E, 0x23, 0x24)),
    "other": b"".join(packet(op) for op in (0xA, 0xB, 8, 0x18, 0x20)) + packet(0x10, b"items") + packet(0x7F, b"k", b"", b"v"),
    "delete": packet(4, b"a") + packet(0x14, b"a", cas=9) + packet(0x17),
    "bad": packet(0, b"k" * 251),
    "endless-touch": packet(0x1C, b"k", b"\0" * 4)[:8] + b"\xff\xff\xff\xff" + packet(0x1C, b"k", b"\0" * 4)[12:],
}



def record(kind, key, value):
    return bytes([kind, key]) + (b"" if kind & 1 else struct.pack(">H", len(value)) + value)


# What a region holds, a zero, and what is damaged: a block by its number (below 64 zeros, else a byte), or bytes at an offset.
RECORDS = b"".join(record(2 + 2 * number, 97 + number, b"value %d" % number * 9) for number in range(40))
FAKE = struct.pack("<IIHIBB", 1, 40, 99, 0, 1, 0) + b"k" * 41
REGION = {
    "whole": b"\x08" + RECORDS + b"\0",
    "full": b"\x01" + RECORDS + record(3, 98, b"") + b"\0" + b"\x40\xff",
    "first-block": b"\x0a" + RECORDS + b"\0\x10\0",
    "bytes": b"\x08" + RECORDS + b"\0\x80\x01\x00\x09ninebytes\x81\x02\x80\x01z\0",
    "fakes": b"\x08" + record(2, 97, FAKE * 5) * 20 + b"\0\x01\x02\0",
    "stale": b"\x0a" + record(4, 97, b"old" * 90) * 9 + b"\0\x03\0",
}

for target in ("decoder", "session"):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    for kind, seeds in (("text", TEXT), ("binary", BINARY)):
        for name, seed in seeds.items():
            (folder / f"{kind}-{name}").write_bytes(b"\x07" + seed)

(HERE / "region").mkdir(parents=True, exist_ok=True)
for name, seed in REGION.items():
    (HERE / "region" / name).write_bytes(seed)
