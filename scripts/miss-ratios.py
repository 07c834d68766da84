#!/usr/bin/env python3
"""Draws miss ratio against memory, from the summary of `scripts/benchmarks.sh policies` on standard input, as SVG.

Each line: load, memory in MiB, room, miss ratio, best policy, its miss ratio, ratio to it, ratio to LRU, Belady's bound.
"""
import sys
from math import log

WIDTH, HEIGHT, COLUMNS = 190, 130, 5
LEFT, RIGHT, TOP, BOTTOM = 34, 10, 22, 20
LINES = [("LRU", "#999999"), ("best of six", "#1f77b4"), ("Moneta", "#d62728"), ("Belady's bound", "#2ca02c")]


def read(lines):
    loads = {}
    for line in lines:
        name, memory, _, ours, _, best, _, over_lru, bound = line.rstrip("\n").split("\t")
        ours = float(ours)
        loads.setdefault(name, []).append((float(memory), [ours / float(over_lru), float(best), ours, float(bound)]))
    return loads


def panel(x, y, name, points):
    memories = [memory for memory, _ in points]
    ratios = [ratio for _, values in points for ratio in values]
    low, high = min(ratios), max(ratios)
    low, high = low - 0.08 * (high - low), high + 0.08 * (high - low)
    span = log(memories[-1] / memories[0]) or 1

    def at(memory, ratio):
        across = LEFT + (WIDTH - LEFT - RIGHT) * log(memory / memories[0]) / span
        down = TOP + (HEIGHT - TOP - BOTTOM) * (high - ratio) / (high - low)
        return f"{x + across:.1f},{y + down:.1f}"

    out = [f'<text x="{x + LEFT}" y="{y + 14}" font-weight="bold">{name}</text>']
    out.append(f'<path d="M{x + LEFT},{y + TOP}V{y + HEIGHT - BOTTOM}H{x + WIDTH - RIGHT}" stroke="#cccccc" fill="none"/>')
    for ratio in (low, high):
        _, down = at(memories[0], ratio).split(",")
        out.append(f'<text x="{x + LEFT - 3}" y="{float(down) + 3:.1f}" text-anchor="end">{ratio:.2f}</text>')
    for memory in memories:
        across, _ = at(memory, low).split(",")
        out.append(f'<text x="{across}" y="{y + HEIGHT - BOTTOM + 11}" text-anchor="middle">{memory:.0f}</text>')
    for number, (_, colour) in enumerate(LINES):
        line = " ".join(at(memory, values[number]) for memory, values in points)
        out.append(f'<polyline points="{line}" stroke="{colour}" stroke-width="1.5" fill="none"/>')
    return out


def main():
    loads = read(sys.stdin)
    rows = -(-len(loads) // COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + 26
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="9">')
    print(f'<rect width="{width}" height="{height}" fill="#ffffff"/>')
    for number, (name, colour) in enumerate(LINES):
        x = 20 + number * 120
        print(f'<path d="M{x},12h20" stroke="{colour}" stroke-width="2"/><text x="{x + 25}" y="15">{name}</text>')
    print(f'<text x="{width - RIGHT}" y="15" text-anchor="end">miss ratio against memory (-m, MiB)</text>')
    for number, (name, points) in enumerate(loads.items()):
        x, y = number % COLUMNS * WIDTH, 26 + number // COLUMNS * HEIGHT
        print("\n".join(panel(x, y, name, sorted(points))))
    print("</svg>")


main()
