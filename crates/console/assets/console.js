// What the console does in a browser: has parts of a page fetched again when something has changed, draws charts, and answers keys.
// Pages are whole without it.
"use strict";

// Light or dark: the browser's own wish, until a person says otherwise.
const kept = localStorage.getItem("theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
const isDark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const switchTheme = () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  charts.forEach((chart) => chart.draw(true));
};

// Changes. While nobody looks at the page, nothing is asked: not this process, and no node.
let source = null;
const follow = () => {
  const url = document.body.dataset.changes;
  if (!url || source || document.visibilityState !== "visible") return;
  source = new EventSource(url);
  const tell = () => htmx.trigger(document.body, "fleet");
  source.addEventListener("change", tell);
  source.addEventListener("tick", () => {
    tell();
    charts.forEach((chart) => chart.fetch());
  });
};
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") return follow();
  if (source) source.close();
  source = null;
});
// What a person writes or reads closely is not taken away under their hands.
document.addEventListener("htmx:beforeSwap", (event) => {
  const target = event.detail.target;
  const chosen = getSelection();
  if (chosen && !chosen.isCollapsed && target.contains(chosen.anchorNode)) event.detail.shouldSwap = false;
});
// The focus stays on the same link when its part of the page is replaced.
let focused = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  const active = document.activeElement;
  // Several parts may be on their way: only the one that has the focus takes it along.
  if (event.detail.target.contains(active) && active.matches("a[href]")) focused = active.getAttribute("href");
});
document.addEventListener("htmx:afterSwap", () => {
  if (!focused || document.activeElement !== document.body) return;
  const same = [...document.querySelectorAll("main a[href]")].find((link) => link.getAttribute("href") === focused);
  if (same) same.focus({ preventScroll: true });
  focused = null;
});

// Charts of the last hour.
const charts = [];
const short = (n) => (n >= 1e9 ? n / 1e9 + "G" : n >= 1e6 ? n / 1e6 + "M" : n >= 1e3 ? n / 1e3 + "k" : String(n));
// A time of the day, with seconds only where a chart is that short.
const clock = (seconds) => {
  const text = new Date(seconds * 1000).toTimeString();
  return seconds % 60 ? text.slice(0, 8) : text.slice(0, 5);
};
class Chart {
  constructor(place) {
    this.place = place;
    this.title = document.createElement("p");
    this.title.append(document.createElement("b"), " " + place.dataset.word.toLowerCase());
    this.drawing = document.createElement("div");
    this.drawing.setAttribute("role", "img");
    place.append(this.title, this.drawing);
    this.fetch();
  }
  async fetch() {
    try {
      const answer = await fetch(this.place.dataset.series, { headers: { accept: "application/json" } });
      if (!answer.ok) return;
      const columns = await answer.json();
      this.columns = [columns.at, columns[this.place.dataset.of]];
    } catch {
      return;
    }
    this.draw(false);
  }
  draw(anew) {
    if (!this.columns) return;
    const values = this.columns[1];
    const last = values.length ? Math.round(values[values.length - 1]) : 0;
    this.title.firstChild.textContent = last.toLocaleString("en");
    this.drawing.setAttribute("aria-label", `${this.place.dataset.word}: ${last} now, ${values.length} points in the last hour`);
    if (this.plot && !anew) return this.plot.setData(this.columns);
    if (this.plot) this.plot.destroy();
    const style = getComputedStyle(document.body);
    const line = isDark() ? "#5b9dff" : "#0b57c0";
    const quiet = isDark() ? "#a0aab9" : "#566070";
    const grid = { stroke: isDark() ? "#2a303b" : "#e6e9ef", width: 1 };
    const axis = { stroke: quiet, grid, ticks: { show: false }, font: "11px " + style.fontFamily };
    this.plot = new uPlot(
      {
        width: Math.max(this.place.clientWidth, 200),
        height: 150,
        cursor: { y: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.15, 1)] } },
        axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 46, values: (_, ticks) => ticks.map(short) }],
        series: [{}, { stroke: line, fill: line + "22", width: 1.5, points: { show: values.length < 3 } }],
      },
      this.columns,
      this.drawing,
    );
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw(true)));
addEventListener("resize", () => charts.forEach((chart) => chart.plot && chart.plot.setSize({ width: chart.place.clientWidth, height: 150 })));

// Keys.
let isGoing = false;
const lines = () => [...document.querySelectorAll("main tbody tr")].filter((line) => line.querySelector("a[href]"));
const move = (by) => {
  const all = lines();
  const now = all.findIndex((line) => line.contains(document.activeElement));
  const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1)];
  if (next) next.querySelector("a[href]").focus();
};
const showKeys = () => document.getElementById("keys").showModal();
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && isTyping) return event.target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isGoing) {
    isGoing = false;
    const link = document.querySelector(`header nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  const actions = {
    "/": () => document.getElementById("filter")?.focus(),
    "?": showKeys,
    g: () => {
      isGoing = true;
      setTimeout(() => (isGoing = false), 1500);
    },
    j: () => move(1),
    k: () => move(-1),
    t: switchTheme,
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".chart").forEach((place) => charts.push(new Chart(place)));
  document.querySelector("button.theme")?.addEventListener("click", switchTheme);
  document.querySelector("button.help")?.addEventListener("click", showKeys);
  follow();
});
