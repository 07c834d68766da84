// What the process does at this moment, by /vitals, and small plots of the last minutes. All that is shown is put in as text.
"use strict";
(() => {
  const EVERY_MS = 2000, KEPT = 60, WIDTH = 180, HEIGHT = 36;
  const SVG = "http://www.w3.org/2000/svg";
  const scaled = (number, units, step) => {
    let unit = 0;
    while (number >= step && unit < units.length - 1) { number /= step; unit++; }
    return (number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toPrecision(2)) + units[unit];
  };
  const count = (number) => scaled(number, ["", "k", "M", "G"], 1000);
  const bytes = (number) => scaled(number, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);
  const time = (micros) => (micros < 1000 ? `${Math.round(micros)} µs` : `${(micros / 1000).toPrecision(3)} ms`);
  const percent = (share) => `${(share * 100).toFixed(1)} %`;
  // Title, how it is shown, and where it is in /vitals. Null: the process has none now.
  const TILES = [
    ["gets a second", count, (v) => v.rates && v.rates.get_s],
    ["sets a second", count, (v) => v.rates && v.rates.set_s],
    ["gets that hit", percent, (v) => v.rates && v.rates.hit_rate],
    ["p50 of gets", time, (v) => v.get_us.p50],
    ["p99 of gets", time, (v) => v.get_us.p99],
    ["connections", count, (v) => v.connections],
    ["items", count, (v) => v.items],
    ["memory", bytes, (v) => Object.values(v.memory).reduce((sum, part) => sum + part, 0)],
    ["in, a second", bytes, (v) => v.rates && v.rates.received_bytes_s],
    ["out, a second", bytes, (v) => v.rates && v.rates.sent_bytes_s],
  ];
  const place = document.getElementById("now");
  const added = (parent, name, text) => {
    const element = document.createElement(name);
    element.textContent = text;
    return parent.appendChild(element);
  };
  const tile = ([title, shown, of]) => {
    const box = document.createElement("div");
    place.insertBefore(box, state);
    added(box, "span", title);
    const number = added(box, "b", "–");
    const plot = box.appendChild(document.createElementNS(SVG, "svg"));
    plot.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    plot.setAttribute("aria-hidden", "true");
    const line = plot.appendChild(document.createElementNS(SVG, "polyline"));
    return { shown, of, number, line, values: [] };
  };
  // What a process lists itself: of each a title, a unit, and a value, or a total whose growth a second is shown.
  const UNITS = { count, bytes, ms: (number) => time(number * 1000) };
  const listed = ({ title, unit, total }, at) => {
    let before = null;
    const of = (v) => {
      const { value, total } = v.tiles[at], now = performance.now();
      if (typeof total !== "number") return value;
      const rate = before && total >= before.total ? (total - before.total) * 1000 / (now - before.now) : null;
      before = { total, now };
      return rate;
    };
    return [typeof total === "number" ? `${title} a second` : title, UNITS[unit], of];
  };
  let tiles = null;
  const state = added(place, "p", "");
  const look = async () => {
    try {
      const answer = await fetch("vitals", { cache: "no-store" });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const vitals = await answer.json();
      state.textContent = "";
      tiles = tiles || (vitals.tiles ? vitals.tiles.map(listed) : TILES).map(tile);
      for (const tile of tiles) {
        const value = tile.of(vitals);
        const is = typeof value === "number";
        tile.number.textContent = is ? tile.shown(value) : "–";
        tile.values.push(is ? value : null);
        if (tile.values.length > KEPT) tile.values.shift();
        const most = Math.max(...tile.values.filter((one) => one !== null), 0) || 1;
        const first = KEPT - tile.values.length;
        const points = tile.values.map((one, at) => one === null ? "" : `${((first + at) * WIDTH / (KEPT - 1)).toFixed(1)},${(HEIGHT - 2 - one / most * (HEIGHT - 4)).toFixed(1)}`);
        tile.line.setAttribute("points", points.filter(Boolean).join(" "));
      }
    } catch (error) {
      state.textContent = `not told: ${error.message}`;
    }
    // The next look is after this one's answer, so that a slow process is not asked more than it answers; a hidden page asks nothing.
    setTimeout(next, EVERY_MS);
  };
  const next = () => document.hidden ? document.addEventListener("visibilitychange", next, { once: true }) : look();
  look();
})();
