// When every job and transfer ran, and how long it waited for it.

import { timeAxis, timeScale } from "./chart.js";
import { WIDTH } from "./dag.js";
import { image, svg } from "../base/dom.js";

const LEFT = 96; // at least, and at most, for the names of groups
const LEFT_MOST = 260;
const RIGHT = 26;
const ROW = 19;
const TIGHT = 9; // the height of a row without names
const STRIP = 26;
const MOST = 80; // bars of a group that have names
const LETTER = 6.3;

/** A row for each [from, to], so that no two in a row overlap: first fit by start. */
export function packed(spans) {
  const ends = [];
  const rows = [];
  const order = spans.map((_, n) => n).sort((a, b) => spans[a][0] - spans[b][0] || spans[a][1] - spans[b][1]);
  for (const n of order) {
    const free = ends.findIndex((end) => end <= spans[n][0]);
    rows[n] = free < 0 ? ends.length : free;
    ends[rows[n]] = spans[n][1];
  }
  return rows;
}

/** Bars by group, dashed while they wait. `groups`: pairs of a name and its bars, {submit, start, end,
 * label, tip, cls, held}, where `held` are [from, to, tip]: when bandwidth was kept for it; times in
 * seconds since the beginning, up to `end`. Large groups have no names, but an area of those that
 * wait. */
export function gantt({ groups, end }) {
  const longest = Math.max(0, ...groups.map(([name]) => name.length));
  const x = timeScale(0, end, WIDTH, Math.min(LEFT_MOST, Math.max(LEFT, longest * LETTER + 12)), RIGHT);
  const at = (t) => x(Math.max(0, Math.min(end, t)));
  const parts = [];
  let y = 8;
  for (const [name, bars] of groups) {
    const [inner, height] = (bars.length <= MOST ? named : tight)(bars, at, y);
    parts.push(svg("text", { x: 4, y: y + 13, class: "label" }, name), inner);
    y += height + 4;
    parts.push(svg("path", { class: "gridline", d: `M0 ${y}H${WIDTH - RIGHT}` }));
    y += 4;
  }
  const count = groups.reduce((sum, [, bars]) => sum + bars.length, 0);
  const axis = timeAxis(x, 4, Math.max(y - 4, 20), true);
  return image(WIDTH, Math.max(y, 24) + 20, `When ${count} jobs and transfers waited and ran, by site`, axis, parts);
}

function named(bars, at, top) {
  const places = bars.map((bar) => labelled(bar, at));
  const rows = packed(places.map((p) => p.room));
  const parts = bars.map((bar, n) => {
    const y = top + rows[n] * ROW;
    const [queued, begun] = [at(bar.submit), at(bar.start)];
    const middle = y + ROW / 2;
    return [
      begun - queued >= 1 ? svg("path", { class: "wait", d: `M${queued} ${middle}H${begun}` }) : null,
      rect(bar, at, y + 3, ROW - 6),
      bar.held.map(([from, to, tip]) => box(at(from), y + ROW - 3, at(to) - at(from), 3, "held", tip)),
      svg("text", { x: places[n].x, y: y + ROW - 6, class: "on-bar", "text-anchor": places[n].anchor }, bar.label),
    ];
  });
  return [parts, (Math.max(-1, ...rows) + 1) * ROW];
}

/** The label inside the bar where it fits, else after it, else before it; and the room of both. */
function labelled(bar, at) {
  const [queued, from, to] = [at(bar.submit), at(bar.start), at(bar.end)];
  const right = Math.max(to, from + 2, ...bar.held.map(([, until]) => at(until)));
  const wide = bar.label.length * LETTER;
  if (wide + 8 <= to - from) return { x: from + 4, anchor: "start", room: [queued, right + 3] };
  if (to + 4 + wide <= WIDTH) {
    return { x: to + 5, anchor: "start", room: [queued, Math.max(right, to + wide) + 12] };
  }
  return { x: queued - 4, anchor: "end", room: [queued - wide - 8, right + 3] };
}

function tight(bars, at, top) {
  const rows = packed(bars.map((bar) => [bar.start, bar.end]));
  const drawn = bars.map((bar, n) => rect(bar, at, top + STRIP + rows[n] * TIGHT, TIGHT - 2));
  return [[waiting(bars, at, top), drawn], STRIP + (rows.reduce((a, b) => Math.max(a, b)) + 1) * TIGHT];
}

/** How many wait, over time, as an area. */
function waiting(bars, at, top) {
  const changes = bars
    .filter((bar) => bar.start > bar.submit)
    .flatMap((bar) => [[bar.submit, 1], [bar.start, -1]])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let level = 0;
  const levels = changes.map(([t, change]) => [at(t), (level += change)]);
  const most = levels.reduce((m, [, n]) => Math.max(m, n), 0);
  if (!most) return null;
  const floor = top + STRIP - 5;
  const d = levels.map(([px, n]) => `H${px}V${floor - ((STRIP - 8) * n) / most}`).join("");
  const words = `up to ${most} waiting`;
  return [
    svg("path", { class: "waiting", d: `M${at(0)} ${floor}${d}Z` }, svg("title", {}, `${words} in the queue`)),
    svg("text", { x: 4, y: top + 26, class: "small" }, words),
  ];
}

const rect = (bar, at, y, height) => box(at(bar.start), y, at(bar.end) - at(bar.start), height, bar.cls, bar.tip);

const box = (left, y, width, height, cls, tip) =>
  svg("rect", { x: left, y, width: Math.max(2, width), height, rx: 2, class: cls }, svg("title", {}, tip));
