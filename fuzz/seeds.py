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
    "refused": b"set a -1 0 9\r\nflush_all\r\ncas a 0 0 9 \r\nflush_all\r\nms a 9 F-1\r\nflush_all\r\nset a 0 x 9 noreply\r\nflush_all\r\nset a 0 0\r\nflush_all\r\n",
    "large": b"set a 0 0 1025\r\n" + b"x" * 1025 + b"\r\nms a 1025 q\r\n" + b"x" * 1025 + b"\r\nget a\r\n",
    "meta": b"ms a 2 c k O1 T30 F5\r\nxy\r\nmg a s v t f c h l k Oabc q\r\nmg b N30 v t\r\nmd a I T10\r\nmg a v\r\nma n N0 J5 v\r\nmn\r\nme a\r\n",
    "versions": b"mv\r\nms a 2 V9 A5 D0 F5 Y3 c O1\r\nxy\r\nmg a v V D Y\r\nmd a V8 q\r\nmf 7 5 O2\r\nms a 1 V0\r\nx\r\nms a 1 V9 MN\r\nx\r\n",
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

LOGIN = b"set x 0 0 10\r\nann secret\r\n"


def auth(data, opcode=0x21, mechanism=b"PLAIN"):
    return packet(opcode, mechanism, b"", data)


# Options, the length of the pieces, and what is sent.
LOGINS = {
    "text": b"\0\7" + LOGIN + b"get k\r\nset a 0 0 1\r\nx\r\n",
    "text-wrong": b"\0\7get k\r\nset x 0 0 9\r\nann wrong\r\nset x 0 0 3\r\nann\r\n" + LOGIN + b"get k\r\n",
    "text-barred": b"\2\7set x 0 0 9\r\nann wrong\r\n" + LOGIN + b"get k\r\n",
    "text-long": b"\0\xffset x 0 0 3000\r\n" + b"a" * 3000,
    "sasl": b"\1\7" + packet(0x20) + auth(b"\0ann\0secret") + packet(0, b"k"),
    "sasl-steps": b"\1\7" + auth(b"") + auth(b"\0bob\0pass word", 0x22) + packet(0, b"k") + auth(b"\0ann\0x") + packet(0, b"k"),
    "sasl-wrong": b"\3\7" + auth(b"\0ann\0wrong", mechanism=b"SCRAM") + packet(0, b"k"),
    "sasl-strangers": b"\1\x20" + packet(1, b"a", b"\0" * 8, b"x" * 900),
}
WAITING = b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nget a b c a\r\nincr a 1\r\nappend c 0 0 1\r\n3\r\ndelete c\r\nmg a v k Oabc\r\nmn\r\n"
# The length of the pieces, the number of answers that come in that order, and what is sent.
PARKING = {
    "in-order": b"\xff\0" + WAITING,
    "last-first": b"\xff\x06\6\5\4\3\2\1" + WAITING,
    "lost": b"\x20\5\1\xff\0\xff\2" + WAITING * 2,
    "flush": b"\x40\4\3\0\1\0" + WAITING + b"flush_all\r\nget a b\r\n" + WAITING,
    "failing": b"\xff\3\2\1\0set e 0 0 1\r\n1\r\nget e a m\r\ntouch u 1\r\nmd e q\r\nme m\r\nincr e 1 noreply\r\nmn\r\n",
    "dump": b"\xff\2\1\0" + WAITING + b"lru_crawler metadump all\r\nget a\r\n",
    "binary": b"\x30\4\3\2\1\0" + b"".join(BINARY[name] for name in ("get", "write", "number", "touch", "delete")),
    "quit": b"\xff\2\1\0" + WAITING + b"quit\r\nget a\r\n",
}


def reply(opcode, status=0, key=b"", extras=b"", value=b"", number=7):
    sizes = (0x81, opcode, len(key), len(extras), 0, status, len(key) + len(extras) + len(value), number, 9)
    return struct.pack(">BBHBBHIIQ", *sizes) + extras + key + value


def asked(protocol, verb):
    return bytes([protocol | verb << 2, 5])


# What was asked over which protocol (0 meta, 1 binary, 2 text, 3 the first questions), the length of the pieces, the replies.
REPLIES = {
    "meta-hit": asked(0, 0) + b"VA 3 O7 f5 c9 t-1 s3 l0 h1\r\nabc\r\nEN O7\r\nVA 2000 O7\r\n" + b"x" * 2002,
    "meta-peek": asked(0, 2) + b"HD O7 s1073741825 c1 t5 X W Z\r\nHD O7 s3\r\nHD O8\r\n",
    "meta-write": asked(0, 3) + b"HD O7 c9\r\nNS O7\r\nSERVER_ERROR out of memory storing object\r\nCLIENT_ERROR bad\r\n",
    "meta-number": asked(0, 7) + b"VA 2 O7 c9 t-1\r\n10\r\nNF O7\r\n",
    "meta-newer": asked(0, 10) + b"HD c7 O7\r\nNS O7\r\nEX O7\r\nSERVER_ERROR the version is ahead of this node's clock\r\nSERVER_ERROR [ahead] x\r\n",
    "meta-versions": asked(0, 1) + b"VA 1 c9 t5 V9 D1800000000 O7\r\nx\r\nVA 0 V0 D0 O7\r\n\r\n",
    "meta-statistics": asked(0, 9) + b"STAT a 1\r\nSTAT b two words\r\nEND\r\n",
    "binary-hit": asked(1, 0) + reply(0, extras=b"\0\0\0\5", value=b"abc") + reply(0, 1, value=b"Not found") + reply(0, extras=b"\0" * 4, value=b"x" * 2000),
    "binary-number": asked(1, 7) + reply(5, value=struct.pack(">Q", 10)) + reply(5, 6, value=b"Non-numeric"),
    "binary-endless": asked(1, 3) + reply(1)[:8] + b"\xff\xff\xff\xff" + reply(1)[12:],
    "binary-statistics": asked(1, 9) + reply(0x10, key=b"a", value=b"1") + reply(0x10),
    "text-hit": asked(2, 0) + b"VALUE key 5 3 9\r\nabc\r\nEND\r\nEND\r\nVALUE key 0 2000\r\n" + b"x" * 2002 + b"END\r\n",
    "text-write": asked(2, 3) + b"STORED\r\nNOT_STORED\r\nERROR\r\n",
    "text-flush": asked(2, 8) + b"OK\r\n",
    "probe-text": asked(3, 3) + b"VERSION 1.6.45 wide-times\r\nMN\r\nEN\r\nMV 2 region=0 writer=0 cluster=0 now=5\r\nVERSION 1.6.45 error-codes\r\n",
    "probe-old": asked(3, 2) + b"VERSION 1.4.15\r\nERROR\r\nERROR\r\nERROR\r\nVERSION 1.4.15\r\n",
    "probe-binary": asked(3, 1) + reply(10, number=0),
}
LINES = b"OK\r\nkey=a%20b exp=-1 la=1 cas=2 fetch=no cls=1 size=3 flags=0 \nkey=c exp=9 la=1 cas=2 fetch=yes cls=1 size=3\nEND\r\n"
# Which way, the length of the pieces, and the bytes.
DUMPS = {
    "metadump": b"\0\5" + LINES,
    "busy": b"\0\5BUSY currently processing crawler request\r\n",
    "file-metadump": b"\1\5" + LINES,
    "file-mgdump": b"\1\5mg a\r\nmg AP8= b\r\nEN\r\n",
    "file-plain": b"\1\5one\r\n\ntwo words\n\xff\1\nEND\n",
    "keys": b"\2\x20a|b c|\0\xff|%41|key=x exp=1|END|" + b"k" * 250,
}

# The command (0 set, 5 cas, 6 ms), the length of the pieces, the rest of the line with a byte 1 for the length, and the block.
REFUSED = {
    "set": b"\0\7k 0 0 \1\nflush_all",
    "set-flags": b"\0\7k -1 0 \1 noreply\nflush_all",
    "set-expiry": b"\0\7k 0 1.5 \1 noreply extra\nx\r\nflush_all",
    "set-space": b"\0\7my key 0 0 \1\nflush_all",
    "set-length": b"\0\7k 0 0 +\1\nflush_all",
    "cas": b"\5\7k 0 0 \1 x\nflush_all",
    "cas-missing": b"\5\7k 0 0 \1\nflush_all",
    "ms": b"\6\7k \1 F-1 Tx k\nflush_all",
    "ms-version": b"\6\7k \1 V0\nflush_all",
}

GET = b"GET /page HTTP/1.1\r\nHost: "
# The length of the pieces, and requests.
HTTP = {
    "page": b"\x20" + GET + b"localhost\r\nAccept: */*\r\n\r\n",
    "foreign": b"\xff" + GET + b"evil.example\r\n\r\n",
    "two-hosts": b"\xff" + GET + b"localhost\r\nHost: evil.example\r\n\r\n",
    "target": b"\7GET http://evil.example/page HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    "alive": b"\xffGET /healthz HTTP/1.0\r\n\r\nGET /page HTTP/1.0\r\n\r\n",
    "body": b"\5POST /page HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "other": b"\xffCONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nExpect: 100-continue\r\n\r\n",
}
NODES = b'[[replica]]\nname = "a"\nzone = "a"\nnodes = ["0=10.0.0.1:11211", { slot = "1", address = "[::1]:1", admin = "h:2", weight = 3 }]\n'
# 0 TOML, 1 EVCache's list.
TOPOLOGIES = {
    "toml": b'\0epoch = 3\nring = "libketama"\n' + NODES + NODES.replace(b'"a"', b'"b"') + b"write_only = true\n",
    "toml-slots": b'\0epoch = 1\n[[replica]]\nzone = "a"\nnodes = ["/run/a.sock", "h:1"]\n',
    "evcache": b"\1a=one/10.0.0.1:11211,10.0.0.2:11211;b=two/[::1]:1,host:2;",
}
HASH = b"sha256:" + b"A" * 22 + b":" + b"A" * 43
# A file of users.
USERS = {
    "all": b'[[user]]\nname = "ann"\nsecrets = ["' + HASH + b'"]\ncertificates = ["spiffe://x/*", "ann.x"]\n'
    b'prefixes = ["a:"]\nlisteners = ["main"]\nrights = ["read", "write"]\n\n[[user]]\nname = "bob"\napps = ["feed"]\nrights = []\n',
    "inline": b'user = [{ name = "ann", rights = ["list"] }]\n',
    "refused": b'[[user]]\nname = "ann"\nrights = ["all"]\nright = 1\n',
}
# The length of the pieces, and a feed.
FEEDS = {
    "all": b"\5GAP 17\r\nLOST 18\r\nSET 1 5 9124 3 1790000000 1 1789999999000\r\nk\r\nab\n\r\nSET 2 - 7 0 0 0 0\r\nkk\r\n"
    b"DELETE 3 8\r\na\r\n\r\nFLUSH 9 1790000001\r\nAT 2cfd-8-1 1795389412803 1795385812000\r\nEND\r\n",
    "large": b"\xffSET 250 1073741824 1 0 0 0 0\r\n" + b"k" * 300,
    "refused": b"\xffSERVER_ERROR no\r\n",
}


def hint(kind, version, moment, key=b""):
    body = struct.pack("<BQQ", kind, version, moment) + key
    return bytes([len(body)]) + body


# 1: records, each with its length before it; 0: a file.
HINTS = {
    "records": b"\1" + hint(1, 7, 9, b"a") + hint(2, 8, 9, b"bb") + hint(3, 0, 0, b"a") + hint(4, 7, 5) + hint(5, 0, 0) + hint(9, 1, 1),
    "file": b"\0\x11\0\0\0" + b"\0" * 21,
}

# What is sent after: 0 nothing, 1 a handshake, 2 a first message; how much is enciphered; the length of the pieces; records.
HELLO = b"\3\3" + b"r" * 32 + b"\0\0\2\x13\1\1\0\0\0"
RECORDS = {
    "hello": b"\0\0\1\x16\3\1\0\x2f\1\0\0\x2b" + HELLO,
    "plain": b"\0\0\xffset a 0 0 1\r\nx\r\nget a\r\n",
    "alert": b"\2\0\1\x15\3\3\0\2\2\x30",
    "large": b"\1\xff\xff\x17\3\3\x41\0" + b"z" * 300,
    "change-cipher": b"\1\1\1\x14\3\3\0\1\1\x17\3\3\0\x11" + b"\0" * 17,
}



def lengthed(json):
    return struct.pack("<I", len(json)) + json + b"\0" * 8


def change(kind, key=b"", value=b"", marks=0):
    return struct.pack("<BBIIQHIQ", kind, marks, 0, 0, 7, len(key), len(value), 0) + key + value


def segment(*blocks, compression=b"", counts=b'"sets":1,"deletes":1,"others":3,"bytes":6'):
    head = b'{"source":"a:1","from":"","begun":1,"compression":"' + compression + b'"}'
    parts = b"".join(struct.pack("<4sIIIQQ", b"MBLK", len(block), raw, records, 1, 0) + block for records, raw, block in blocks)
    foot = b'{"to":"7-9","watermark":5,"counts":{' + counts + b'},"blake3":"' + b"0" * 64 + b'"}'
    return b"\1MNTSEG\0\1" + lengthed(head) + parts + b"MFTR" + lengthed(foot)


# Checksums are made right by the target.
CHANGES = change(1, b"ab", b"c", 2) + change(2, b"gon") + change(3) + change(4) + change(5)
SEGMENTS = {
    "kinds": segment((5, len(CHANGES), CHANGES)),
    "empty": segment(counts=b'"sets":0,"deletes":0,"others":0,"bytes":0'),
    # A frame of zstd with the raw bytes in it.
    "zstd": segment((5, len(CHANGES), b"\x28\xb5\x2f\xfd\x20" + bytes([len(CHANGES)]) + struct.pack("<I", len(CHANGES) << 3 | 1)[:3] + CHANGES), compression=b"zstd"),
    "as-it-is": b"\0" + segment()[1:],
}

SEEDS = {
    "segment": SEGMENTS,
    "login": LOGINS, "http": HTTP, "topology": TOPOLOGIES, "users": USERS, "feed": FEEDS, "hints": HINTS, "parking": PARKING, "replies": REPLIES, "dump": DUMPS, "region": REGION, "refused": REFUSED, "tls": RECORDS,
}
for target, seeds in SEEDS.items():
    (HERE / target).mkdir(parents=True, exist_ok=True)
    for name, seed in seeds.items():
        (HERE / target / name).write_bytes(seed)

for target in ("decoder", "session"):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    for kind, seeds in (("text", TEXT), ("binary", BINARY)):
        for name, seed in seeds.items():
            (folder / f"{kind}-{name}").write_bytes(b"\x07" + seed)
