"""Miss ratios of known policies on a trace, by libCacheSim (https://pypi.org/project/libcachesim), as JSON.

usage: policies.py TRACE objects|bytes CAPACITY     TRACE is in the format oracleGeneral
"""

import json
import sys

import libcachesim

POLICIES = ["LRU", "ARC", "S3FIFO", "WTinyLFU", "LIRS", "Sieve", "Belady"]
# Buckets of libCacheSim's hash table, as a power of two; it grows.
HASH_POWER = 20

trace, unit, capacity = sys.argv[1], sys.argv[2], int(sys.argv[3])
ratios = {}
for name in POLICIES:
    reader = libcachesim.TraceReader(
        trace=trace,
        trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE,
        reader_init_params=libcachesim.ReaderInitParam(ignore_obj_size=unit == "objects"),
    )
    cache = getattr(libcachesim, name)(cache_size=capacity, hashpower=HASH_POWER)
    ratios[name] = cache.process_trace(reader)[0]
json.dump(ratios, sys.stdout)
