// The pieces that several pages are made of.

import { el, svg, unchanged } from "./dom.js";
import { ago, clock, percent, stamp, whole } from "./format.js";

const MARKS = { "#": "n", "|": "half", "=": "full" };

/** A column that is its name, and behind it " #" for numbers, " |" and " =" for half and all of a card's
 * width on a phone. */
function column(words) {
  if (typeof words !== "string") return words;
  const [, name, marks] = words.match(/^(.*?)((?: [#|=])*)$/);
  return Object.assign({ name }, ...[...marks.replaceAll(" ", "")].map((mark) => ({ [MARKS[mark]]: true })));
}

/** A table. `columns`: names with marks, or {name, n (a number), full or half (of a card's width on a
 * phone), sorted (ascending or descending, "" for a column that can be)}; `rows`:
 * {key, cells, cls}, or {key} alone where the row is as it was drawn last. The first cell of a row is
 * its header. Options: `titled`, a heading says the same as the caption; `sparse`, a phone does without
 * what is 0. */
export function table(caption, named, rows, options = {}) {
  const columns = named.map(column);
  const classes = (...names) => names.filter(Boolean).join(" ") || null;
  const cls = (c) => classes(c.n && "n", c.full && "full", c.half && "half");
  const cell = (c, content, at) =>
    at === 0
      ? el("th", { scope: "row", class: cls({ ...c, full: true }) }, content)
      : el(
          "td",
          { class: classes(cls(c), content === "0" && "zero", content === "–" && "none"), "data-label": c.name },
          content,
        );
  const head = columns.map((c) =>
    el("th", { scope: "col", class: c.n ? "n" : null, "aria-sort": c.sorted || null }, headed(c)),
  );
  const body = rows.map(({ key, cells, cls: look }) =>
    cells
      ? el("tr", { "data-key": key, class: look || null }, columns.map((c, at) => cell(c, cells[at], at)))
      : unchanged("tr", key),
  );
  return el(
    "div",
    { class: "wide" },
    el(
      "table",
      { class: options.sparse ? "stack sparse" : "stack" },
      el("caption", { class: options.titled ? "unseen" : null }, caption),
      el("thead", {}, el("tr", {}, head)),
      el("tbody", {}, body),
    ),
  );
}

const SIGNS = { ascending: " ▲", descending: " ▼" };

/** The name of a column, which sorts by it where that is offered. */
const headed = ({ name, sorted }) =>
  sorted === undefined
    ? name
    : button("order", name + (SIGNS[sorted] || ""), { class: "plain", "data-column": name });

/** Figures side by side: name to value, or to [value, small words]. */
export const cards = (figures) =>
  el(
    "dl",
    { class: "cards" },
    Object.entries(figures).map(([name, value]) => {
      const [main, words] = Array.isArray(value) ? value : [value, null];
      return el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, main, words && small(words)));
    }),
  );

/** Name to value, one under the other; what is empty is left out. */
export const facts = (found) =>
  el(
    "dl",
    { class: "facts" },
    Object.entries(found)
      .filter(([, value]) => value !== "" && value !== false && value !== null && value !== undefined)
      .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );

/** A state in words, with a sign of its own beside its colour. */
export const state = (name, title = "") =>
  el("span", { class: "state", "data-s": name, title: title || null }, name);

/** The name of a page, and a soft line beside it. */
export const heading = (title, beside = "") =>
  el("div", { class: "head" }, el("h1", {}, title), beside && el("span", { class: "soft" }, beside));

/** A part of a page with a heading. */
export const section = (name, title, ...body) => el("section", { "data-key": name }, el("h2", {}, title), body);

/** A part of a page that is a table, as `table` takes it; `none`: what it is in words without rows,
 * nothing where there are no words. */
export const listed = (name, title, caption, columns, rows, none = "", options = { titled: true }) =>
  rows.length || none
    ? section(name, title, rows.length ? table(caption, columns, rows, options) : soft(none))
    : null;

/** Words, with commands and names of keys and files between backticks. */
export const marked = (words) => words.split("`").map((part, n) => (n % 2 ? code(part) : part));

export const empty = (words) => el("p", { class: "empty" }, marked(words));
export const note = (...words) => el("p", { class: "note" }, words);
export const soft = (...words) => el("p", { class: "soft" }, words);
export const small = (...words) => el("small", {}, words);

/** A reason in a sentence. */
export const why = (...words) => el("p", {}, el("span", { class: "soft" }, "Why: "), words);

/** A button for an action of the page. */
export const button = (act, words, attributes = {}) =>
  el("button", { type: "button", "data-act": act, ...attributes }, words);

/** A moment as how long ago it was; where one points, when. */
export const moment = (at, now) => el("time", { datetime: stamp(at), title: clock(at, now) }, ago(at, now));

export const code = (words) => el("code", {}, words);

export const option = (value, text, chosen) => el("option", { value, selected: String(value) === String(chosen) }, text);

/** A choice of one of `options`, pairs of value and text: it is put into the address, unless another
 * action takes it. */
export const select = (name, options, chosen, act = "choose") =>
  el("select", { "data-act": act, name }, options.map(([value, text]) => option(value, text, chosen)));

/** The same with a label. */
export const choice = (name, label, ...choose) => el("label", {}, label, select(name, ...choose));

const SPANS = [
  [900, "15 min"],
  [3600, "1 hour"],
  [21600, "6 hours"],
  [86400, "1 day"],
  [604800, "1 week"],
  [2592000, "30 days"],
  [31536000, "1 year"],
];

/** Spans of time to choose from, as [seconds, words]. */
export const spans = (shortest, longest) => SPANS.filter(([span]) => span >= shortest && span <= longest);

/** Of these the first that reaches back to what is so many seconds old, else the longest. */
export const reaching = (options, age) => (options.find(([span]) => span >= age) || options.at(-1))[0];

/** What network and pool may look back to. */
export const RECENT = spans(900, 604800);

/** Of these an hour or, where what there is to see is older (seconds), as far as back to it. */
export const usualSpan = (age) => Math.max(3600, reaching(RECENT, age));

/** What is on or off, as `choice`. */
export const check = (name, label, on, act = "choose") =>
  el("label", { class: "check" }, el("input", { type: "checkbox", "data-act": act, name, checked: Boolean(on) }), label);

/** What the colours and dashes mean: pairs of class and words. */
export const key = (entries) =>
  el(
    "ul",
    { class: "key" },
    entries.map(([cls, words]) =>
      el("li", {}, svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, sample(cls)), words),
    ),
  );

function sample(cls) {
  if (cls === "cut") return svg("path", { d: "M0 6H22", class: "cut" });
  if (cls === "mark") return svg("path", { d: "M11 1 17 11H5Z", class: "badmark" });
  if (cls.startsWith("line ")) return svg("path", { d: "M0 6H22", class: `series ${cls.slice(5)}` });
  return svg("rect", { x: 0, y: 0, width: 22, height: 12, rx: 3, class: cls });
}

// In the order in which a job goes through them, with what is over first.
const PARTS = [
  ["done", "t3", "done"],
  ["post", "t7", "post script"],
  ["in_queue", "t1", "in queue"],
  ["pre", "t4", "pre script"],
  ["ready", "t6", "ready"],
  ["fail", "t5", "failed"],
  ["futile", "t2", "futile"],
];

/** Shares of a whole, each [share, tone], as one bar. */
export function bar(shares, words, tall = false) {
  let x = 0;
  const rects = shares.map(([share, tone]) => {
    x += 1000 * share;
    return svg("rect", { x: x - 1000 * share, y: 0, width: 1000 * share, height: 10, class: `fill ${tone}` });
  });
  const size = { width: "100%", height: "100%", viewBox: "0 0 1000 10", preserveAspectRatio: "none" };
  return el(
    "div",
    { class: tall ? "meter tall" : "meter", role: "img", "aria-label": words, title: words },
    svg("svg", { ...size, "aria-hidden": "true" }, rects),
  );
}

/** Where a workflow's jobs are, as one bar; what is left of it are jobs that are unready. */
export function meter(status, tall = false) {
  const total = status.total || 0;
  const parts = PARTS.filter(([name]) => status[name] > 0);
  const counts = parts.map(([name, , words]) => `${whole(status[name])} ${words}`).join(", ");
  const done = percent((status.percent_done || 0) / 100);
  const words = `${done} done${counts && `: ${counts}`}, of ${whole(total)}`;
  return bar(total ? parts.map(([name, tone]) => [status[name] / total, tone]) : [], words, tall);
}

export const meterKey = () => key(PARTS.map(([, tone, words]) => [`fill ${tone}`, words]));

/** What is typed to look for something, as `choice`. */
export const search = (name, label, value) =>
  el("label", {}, label, el("input", { type: "search", "data-act": "choose", name, value }));

export const TYPED_MS = 250; // after the last letter of a search

/** A drawing that may be wider than the page, which the keyboard scrolls. */
export const scrolled = (label, drawing, cls = "", key = null) =>
  el(
    "div",
    { class: `wide ${cls}`.trim(), tabindex: "0", role: "region", "aria-label": label, "data-key": key },
    drawing,
  );

/** Links to what belongs together. */
export const link = (href, ...words) => el("a", { href }, words);

/** From one of many to the list, and to what else is around it. */
export const back = (name, ...more) =>
  el("nav", { "aria-label": "Where this is" }, link(`#/${name}`, `← all ${name}`), more);

/** To one of those that a page lists. */
export const entry = (page, id, words = id) => link(`#/${page}/${encodeURIComponent(id)}`, words);
export const workflowLink = (id, words) => entry("workflows", id, words || id);

/** Something with a title to unfold. */
export const fold = (name, words, ...body) =>
  el("details", { "data-key": `fold:${name}` }, el("summary", {}, words), body);
