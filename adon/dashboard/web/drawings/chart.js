// Lines over time, as SVG: axes, areas, steps, bands, marks, and a table of the figures for those who
// do not see them. Drawn as wide as there is room, so that letters keep their size.

import { el, image, svg } from "../base/dom.js";
import { clock, duration, quantity, two } from "../base/format.js";
import { fold, table } from "../base/parts.js";

const LEFT = 62;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 24;
const STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

/** A scale of time: from t0 to t1 over the drawing's width. */
export function timeScale(t0, t1, width, left = LEFT, right = RIGHT) {
  const wide = Math.max(1, width - left - right);
  const span = Math.max(1e-3, t1 - t0);
  const scale = (t) => left + ((t - t0) / span) * wide;
  return Object.assign(scale, { t0, t1, left, end: left + wide });
}

/** Instants that divide a while well, at most about `most` of them, on the local clock; or, for times
 * that are `elapsed`, from 0. */
export function ticks(t0, t1, most, elapsed = false) {
  const step = STEPS_S.find((s) => (t1 - t0) / s <= most) || Math.ceil((t1 - t0) / most / 604800) * 604800;
  const off = elapsed ? 0 : new Date(t0 * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let t = Math.ceil((t0 - off) / step) * step + off; t <= t1; t += step) found.push(t);
  return { step, at: found };
}

/** A line of times below a drawing; of how long it took where times are `elapsed`. */
export function timeAxis(x, top, bottom, elapsed = false) {
  const { step, at } = ticks(x.t0, x.t1, Math.max(2, (x.end - x.left) / 95), elapsed);
  return at.flatMap((t) => [
    instantLine(x, t, top, bottom, "gridline"),
    svg("text", { x: round(x(t)), y: bottom + 16, "text-anchor": "middle", class: "small" }, elapsed ? duration(t) : tick(t, step)),
  ]);
}

function tick(t, step) {
  const d = new Date(t * 1000);
  const day = `${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  const time = `${two(d.getHours())}:${two(d.getMinutes())}`;
  if (step < 60) return `${time}:${two(d.getSeconds())}`;
  return step >= 86400 || time === "00:00" ? day : time;
}

/** Round numbers from `low` to `high`. */
export function levels(low, high, most = 4) {
  const raw = (high - low || 1) / most;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * size).find((k) => k >= raw * 0.999) || raw;
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
    found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return { step, at: found };
}

/** Lines at `values`, which `y` places, and beside them what they are in `words`. */
export const levelAxis = (x, y, values, words) =>
  values.flatMap((v) => [
    svg("path", { d: `M${x.left} ${round(y(v))}H${x.end}`, class: "gridline" }),
    svg("text", { x: x.left - 6, y: round(y(v)) + 4, "text-anchor": "end", class: "small" }, words(v)),
  ]);

/** As exact as a drawing can be. */
export const round = (v) => Math.round(v * 10) / 10;

/** A line at an instant. */
export const instantLine = (x, t, top, bottom, cls) =>
  svg("path", { d: `M${round(x(t))} ${top}V${bottom}`, class: cls });


/** A chart. `series`: {name, cls, points: [[t, value]], area, dots}, `step`: flat from one value to
 * the next; `bands`: {from, to, words}; `marks`: {at, value, words, letter}; `cut`: {value, words}, a
 * level that must not be passed; `floor`, `top`: of the scale; `elapsed`: times are seconds since the
 * beginning. */
export function chart(spec) {
  const { width, unit, metric = "", now, series, bands = [], marks = [], cut = null } = spec;
  const height = spec.height || 220;
  const shown = series.filter((s) => s.points.length);
  const times = shown.flatMap((s) => [s.points[0][0], s.points[s.points.length - 1][0]]);
  if (!times.length) return null;
  const t0 = spec.t0 ?? Math.min(...times);
  const t1 = Math.max(spec.t1 ?? Math.max(...times), t0 + 1);
  const [low, high] = bounds(spec, shown, cut);
  const x = timeScale(t0, t1, width);
  const floor = height - BOTTOM;
  const y = (v) => floor - ((v - low) / (high - low)) * (floor - TOP);
  const parts = timeAxis(x, TOP, floor, spec.elapsed);
  const when = (t) => (spec.elapsed ? duration(t) : clock(t, now ?? t));
  const values = levels(low, high, Math.max(2, Math.round(height / 55))).at;
  parts.push(...levelAxis(x, y, values, (v) => quantity(v, unit, metric)));
  for (const b of bands) {
    const from = Math.max(x.left, x(b.from));
    const wide = Math.max(2, Math.min(x.end, x(b.to)) - from);
    const place = { x: round(from), y: TOP, width: round(wide), height: floor - TOP };
    parts.push(svg("rect", { ...place, class: "band" }, svg("title", {}, b.words)));
  }
  for (const s of shown) {
    parts.push(...drawn(s, x, y, floor, spec.step, ([t, v]) => `${when(t)}: ${quantity(v, unit, metric)}`));
  }
  if (cut) {
    parts.push(
      svg("path", { d: `M${x.left} ${round(y(cut.value))}H${x.end}`, class: "cut" }),
      svg("text", { x: x.end - 4, y: round(y(cut.value)) - 5, "text-anchor": "end", class: "small halo" }, cut.words),
    );
  }
  for (const m of marks) {
    const at = Math.min(x.end, Math.max(x.left, x(m.at)));
    const over = Math.max(TOP + 14, Math.min(floor - 4, y(m.value ?? high)));
    parts.push(
      svg(
        "g",
        {},
        svg("title", {}, m.words),
        svg("path", { d: `M${round(at)} ${TOP}V${floor}`, class: "cut" }),
        svg("path", { d: `M${round(at)} ${round(over - 13)}l7 12h-14Z`, class: "badmark" }),
        svg("text", { x: round(at) + 9, y: round(over) - 3, class: "label halo" }, m.letter),
      ),
    );
  }
  if (now !== undefined && now > t0 && now < t1 - (t1 - t0) * 0.002) {
    parts.push(instantLine(x, now, TOP, floor, "nowline"));
  }
  const words = `${spec.title}: ${shown.map((s) => summary(s, unit, metric)).join("; ")}`;
  return el(
    "figure",
    { "data-key": `chart:${spec.key}` },
    spec.quiet ? null : el("figcaption", {}, spec.title),
    image(width, height, words, parts),
    spec.quiet ? null : figures(spec, shown, when),
  );
}

/** The least and the most of many: too many for the arguments of a function. */
const extremes = (values) =>
  values.reduce(([least, most], v) => [Math.min(least, v), Math.max(most, v)], [Infinity, -Infinity]);

function bounds(spec, shown, cut) {
  const values = shown.flatMap((s) => s.points.map(([, v]) => v)).concat(cut?.value ?? []);
  const [least, most] = extremes(values);
  // A scale that does not begin at nothing shows small changes as large ones.
  const low = spec.floor ?? (least >= 0 ? 0 : least);
  const high = spec.top ?? (most > low ? low + (most - low) * 1.06 : low + 1);
  return [low, high];
}

function drawn(s, x, y, floor, step, told) {
  const points = thinned(s.points, Math.max(200, (x.end - x.left) * 1.5));
  const place = ([t, v]) => [round(Math.max(x.left, Math.min(x.end, x(t)))), round(y(v))];
  const out = [];
  for (const part of step ? [points] : unbroken(points)) {
    const places = part.map(place);
    const first = places[0][0];
    let last = places[places.length - 1][0];
    let d = places
      .map(([px, py], n) => (n === 0 ? `M${px} ${py}` : step ? `H${px}V${py}` : `L${px} ${py}`))
      .join("");
    if (step && s.to !== undefined) {
      last = round(Math.min(x.end, x(s.to)));
      d += `H${last}`;
    }
    if (s.area && last > first) out.push(svg("path", { d: `${d}V${floor}H${first}Z`, class: `area ${s.cls}` }));
    if (last > first) out.push(svg("path", { d, class: `series ${s.cls}` }));
    if ((s.dots && points.length <= 160) || part.length === 1) {
      places.forEach(([cx, cy], n) =>
        out.push(svg("circle", { cx, cy, r: 2.6, class: `dot ${s.cls}` }, svg("title", {}, told(part[n])))),
      );
    }
  }
  return out;
}

/** Where nothing was measured for much longer than usual there is no line. */
export function unbroken(points) {
  const gaps = points.slice(1).map(([t], n) => t - points[n][0]);
  const usual = [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length / 2)] || 0;
  const parts = points.length ? [[points[0]]] : [];
  gaps.forEach((gap, n) => {
    if (gaps.length > 5 && gap > 5 * usual) parts.push([]);
    parts[parts.length - 1].push(points[n + 1]);
  });
  return parts;
}

/** No more points than can be seen: of each part of the line its least and its most. */
export function thinned(points, most) {
  if (points.length <= most) return points;
  const per = Math.ceil((2 * points.length) / most);
  const out = [];
  for (let from = 0; from < points.length; from += per) {
    const part = points.slice(from, from + per);
    let least = part[0];
    let greatest = part[0];
    for (const p of part) {
      if (p[1] < least[1]) least = p;
      if (p[1] > greatest[1]) greatest = p;
    }
    out.push(...new Set(least[0] < greatest[0] ? [least, greatest] : [greatest, least]));
  }
  return out;
}

function summary(s, unit, metric) {
  const values = s.points.map(([, v]) => v);
  const [least, most, last] = [...extremes(values), values.at(-1)].map((v) => quantity(v, unit, metric));
  return `${s.name} from ${least} to ${most}, last ${last}`;
}

/** The newest points in a table to unfold. */
function figures(spec, shown, when) {
  const points = shown
    .flatMap((s) => s.points.slice(-40).map(([t, v]) => [t, s.name, v]))
    .sort((a, b) => b[0] - a[0])
    .slice(0, 60);
  const rows = points.map(([t, name, v], n) => ({ key: String(n), cells: [when(t), name, quantity(v, spec.unit, spec.metric)] }));
  return fold("figures", "The last figures", table("the newest first", ["at", "what", "value #"], rows, { titled: true }));
}
