// A workflow from top to bottom: every job where that is readable, else one box per kind and level.

import { image, svg } from "../base/dom.js";

export const WIDTH = 1080;
const HIGH = 34;
const STEP = 64;
const GAP = 12;
const MOST = 80; // boxes with a name of their own
const LETTER = 6.6; // wider than most letters of usual fonts, so that what is planned to fit does

const mean = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : 0);
const total = (sites) => sites.reduce((sum, [, count]) => sum + count, 0);

/** Names by level: each stands below all that it depends on, near those it depends on. */
export function generations(names, edges) {
  const above = new Map(names.map((name) => [name, []]));
  const below = new Map(names.map((name) => [name, []]));
  for (const [a, b] of edges) {
    if (!above.has(a) || !above.has(b)) continue;
    above.get(b).push(a);
    below.get(a).push(b);
  }
  const missing = new Map(names.map((name) => [name, above.get(name).length]));
  const place = new Map();
  const found = [];
  let level = names.filter((name) => !missing.get(name));
  while (level.length) {
    const middle = new Map(level.map((name) => [name, mean(above.get(name).map((p) => place.get(p)))]));
    level.sort((a, b) => middle.get(a) - middle.get(b) || (a < b ? -1 : 1));
    level.forEach((name, n) => place.set(name, (n + 0.5) / level.length));
    found.push(level);
    const next = [];
    for (const child of level.flatMap((name) => below.get(name))) {
      missing.set(child, missing.get(child) - 1);
      if (!missing.get(child)) next.push(child);
    }
    level = next;
  }
  return found;
}

/** The drawing, and whether it shows all there is to see. `jobs`: {job, name, site}; `edges`: pairs
 * of jobs; `classes`: a class for each site. Where so many jobs are `grouped`, `jobs` are their
 * groups, {job, name, sites}. */
export function dag({ jobs, edges, grouped: many }, classes) {
  const known = new Map(jobs.map((j) => [j.job, j]));
  const levels = generations([...known.keys()], edges);
  const byKind = (n) => `The workflow: ${n} jobs, one box per kind of job, coloured by site`;
  if (many) {
    const boxes = levels.map((level) => level.map((n) => kindBox(n, known.get(n).name, known.get(n).sites)));
    return { drawing: drawn(boxes, edges, classes, byKind(many)), each: true };
  }
  const single = (j) => boxOf(j.job, j.name, `${j.site} · ${j.job}`, `${j.name} (${j.job}) at ${j.site}`, [[j.site, 1]]);
  const rows = levels.map((level) => level.map((name) => single(known.get(name))));
  if (jobs.length <= MOST && Math.max(0, ...rows.map(widthOf)) <= WIDTH - 20) {
    const words = `The workflow: ${jobs.length} jobs with their dependencies, coloured by site`;
    return { drawing: drawn(rows, edges, classes, words), each: true };
  }
  const group = new Map();
  const grouped = levels.map((level, n) => {
    const kinds = new Map();
    for (const { job, name, site } of level.map((one) => known.get(one))) {
      const sites = kinds.get(name) || new Map();
      kinds.set(name, sites.set(site, (sites.get(site) || 0) + 1));
      group.set(job, `${n} ${name}`);
    }
    return [...kinds].map(([name, sites]) => kindBox(`${n} ${name}`, name, [...sites].sort()));
  });
  const between = new Map(
    edges.filter((e) => e.every((j) => group.has(j))).map(([a, b]) => [`${group.get(a)}>${group.get(b)}`, [group.get(a), group.get(b)]]),
  );
  return { drawing: drawn(grouped, [...between.values()], classes, byKind(jobs.length)), each: false };
}

function boxOf(key, title, below, tip, sites) {
  return { key, title, below, tip, sites, width: Math.max(90, Math.max(title.length, below.length) * LETTER + 16) };
}

function kindBox(key, name, sites) {
  const title = total(sites) === 1 ? name : `${name} × ${total(sites)}`;
  const where = sites.map(([site, count]) => `${count} ${site}`).join(", ");
  return boxOf(key, title, where, `${title}: ${where}`, sites);
}

const widthOf = (row) => row.reduce((sum, box) => sum + box.width + GAP, -GAP);

function drawn(rows, edges, classes, words) {
  const width = Math.max(1, ...rows.map((row) => widthOf(row) + 20));
  const height = Math.max(1, rows.length) * STEP - (STEP - HIGH) + 16;
  const place = new Map();
  const boxes = rows.flatMap((row, level) => {
    let x = (width - widthOf(row)) / 2;
    return row.map((box) => {
      const at = { x, y: 8 + level * STEP, level };
      place.set(box.key, { ...at, x: x + box.width / 2 });
      x += box.width + GAP;
      return boxDrawn(box, at, classes);
    });
  });
  const lines = edges
    .filter((e) => e.every((name) => place.has(name)))
    .map(([a, b]) => {
      const [from, to] = [place.get(a), place.get(b)];
      const y = from.y + HIGH;
      const bend = Math.max(12, (to.y - y) / 2);
      const d = `M${from.x} ${y}C${from.x} ${y + bend} ${to.x} ${to.y - bend} ${to.x} ${to.y}`;
      return svg("path", { class: to.level - from.level === 1 ? "edge" : "edge far", d });
    });
  return image(width, height, words, lines, boxes);
}

function boxDrawn(box, { x, y }, classes) {
  const several = box.sites.length > 1;
  const rect = (left, width, cls, tip) =>
    svg("rect", { x: left, y, width, height: HIGH, rx: 3, class: cls }, tip ? svg("title", {}, tip) : null);
  let left = x;
  const shares = box.sites.map(([site, count]) => {
    const wide = (box.width * count) / total(box.sites);
    left += wide;
    return rect(left - wide, wide, (classes[site] || "s0") + (several ? " part" : ""), box.tip);
  });
  const line = (dy, cls, words) =>
    svg("text", { x: x + box.width / 2, y: y + dy, class: cls, "text-anchor": "middle" }, words);
  return svg(
    "g",
    { class: "job" },
    rect(x, box.width, "paper"),
    shares,
    several ? rect(x, box.width, "outline") : null,
    line(14, "name", box.title),
    line(27, "small", box.below),
  );
}

/** Every job as a dot with its name as tooltip, level by level from left to right. */
export function dots({ jobs, edges }, classes) {
  const known = new Map(jobs.map((j) => [j.job, j]));
  const levels = generations([...known.keys()], edges);
  const widest = Math.max(1, ...levels.map((level) => level.length));
  const row = Math.max(5, Math.min(20, 1600 / widest));
  const height = widest * row + 16;
  const step = (WIDTH - 40) / Math.max(1, levels.length - 1);
  const place = new Map(
    levels.flatMap((level, n) =>
      level.map((job, m) => [job, [20 + n * step, (height - (level.length - 1) * row) / 2 + m * row]]),
    ),
  );
  const d = edges
    .filter((e) => e.every((job) => place.has(job)))
    .map(([a, b]) => `M${place.get(a).map(Math.round).join(" ")}L${place.get(b).map(Math.round).join(" ")}`)
    .join("");
  const each = [...place].map(([job, [x, y]]) => {
    const { name, site } = known.get(job);
    const tip = svg("title", {}, `${name} (${job}) at ${site}`);
    return svg("rect", { x: x - 3, y: y - 2, width: 6, height: 4, rx: 1, class: classes[site] || "s0" }, tip);
  });
  return image(WIDTH, height, `All ${jobs.length} jobs, level by level`, svg("path", { class: "edge far", d }), each);
}
