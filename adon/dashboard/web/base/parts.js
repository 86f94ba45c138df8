// The pieces that several pages are made of.

import { el, svg, unchanged } from "./dom.js";
import { percent, whole } from "./format.js";

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
 * {key, cells, cls}, or {key} alone where the row is as it was drawn last. The first cell of a row is its header. Options: `titled`, a heading says the
 * same as the caption; `sparse`, a phone does without what is 0. */
export function table(caption, named, rows, options = {}) {
  const columns = named.map(column);
  const cls = (c) =>
    [c.n && "n", c.full && "full", c.half && "half", c.cls].filter(Boolean).join(" ") || null;
  const cell = (c, content, at) =>
    at === 0
      ? el("th", { scope: "row", class: cls({ ...c, full: true }) }, content)
      : el(
          "td",
          {
            class:
              [cls(c), content === "0" && "zero", content === "–" && "none"].filter(Boolean).join(" ") ||
              null,
            "data-label": c.name,
          },
          content,
        );
  return el(
    "div",
    { class: "wide" },
    el(
      "table",
      { class: options.sparse ? "stack sparse" : "stack" },
      el("caption", { class: options.titled ? "unseen" : null }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map((c) =>
            el("th", { scope: "col", class: c.n ? "n" : null, "aria-sort": c.sorted || null }, headed(c)),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((r) =>
          r.cells
            ? el(
                "tr",
                { "data-key": r.key, class: r.cls || null },
                columns.map((c, at) => cell(c, r.cells[at], at)),
              )
            : unchanged("tr", r.key),
        ),
      ),
    ),
  );
}

const SIGNS = { ascending: " ▲", descending: " ▼" };

/** The name of a column, which sorts by it where that is offered. */
const headed = (column) =>
  column.sorted === undefined
    ? column.name
    : el(
        "button",
        { type: "button", class: "plain", "data-act": "order", "data-column": column.name },
        column.name + (SIGNS[column.sorted] || ""),
      );

/** Figures side by side: name to value, or to [value, small words]. */
export const cards = (figures) =>
  el(
    "dl",
    { class: "cards" },
    Object.entries(figures).map(([name, value]) => {
      const [main, small] = Array.isArray(value) ? value : [value, null];
      return el(
        "div",
        { "data-key": name },
        el("dt", {}, name),
        el("dd", {}, main, small && el("small", {}, small)),
      );
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

export const empty = (...words) => el("p", { class: "empty" }, words);

/** A command, or a name of a file or of a key in one, inside of words. */
export const code = (words) => el("code", {}, words);

export const option = (value, text, chosen) => el("option", { value, selected: String(value) === String(chosen) }, text);

/** A labelled choice. `options`: pairs of value and text; `name`: for those that share an action. */
export const choice = (act, label, options, chosen, name = null) =>
  el(
    "label",
    {},
    label,
    el(
      "select",
      { "data-act": act, name },
      options.map(([v, t]) => option(v, t, chosen)),
    ),
  );

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

export const check = (name, label, on) =>
  el("label", { class: "check" }, el("input", { type: "checkbox", "data-act": name, checked: on }), label);

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

/** Where a workflow's jobs are, as one bar; what is left of it are jobs that are unready. */
export function meter(status, tall = false, said = "") {
  const total = status.total || 0;
  const told = PARTS.filter(([name]) => status[name]).map(
    ([name, , words]) => `${whole(status[name])} ${words}`,
  );
  const bar = svg("svg", {
    width: "100%",
    height: "100%",
    viewBox: "0 0 1000 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  let x = 0;
  for (const [name, tone] of PARTS) {
    const wide = total ? (1000 * (status[name] || 0)) / total : 0;
    if (wide > 0) bar.append(svg("rect", { x, y: 0, width: wide, height: 10, class: `fill ${tone}` }));
    x += wide;
  }
  const words =
    said ||
    `${percent((status.percent_done || 0) / 100)} done${told.length ? `: ${told.join(", ")}` : ""}, of ${whole(total)}`;
  return el("div", { class: tall ? "meter tall" : "meter", role: "img", "aria-label": words, title: words }, bar);
}

export const meterKey = () => key([...PARTS.map(([, tone, words]) => [`fill ${tone}`, words])]);

/** What is typed to look for something. */
export const search = (act, label, value, name = null) =>
  el("label", {}, label, el("input", { type: "search", "data-act": act, name, value }));

export const TYPED_MS = 250; // after the last letter of a search

/** Links to what belongs together. */
export const link = (href, ...words) => el("a", { href }, words);

/** From one of many to the list, and to what else is around it. */
export const back = (name, ...more) =>
  el("nav", { "aria-label": "Where this is" }, link(`#/${name}`, `← all ${name}`), more);

export const workflowLink = (id, words) => link(`#/workflows/${encodeURIComponent(id)}`, words || id);

/** Something with a title to unfold. */
export const fold = (name, words, ...body) =>
  el("details", { "data-key": `fold:${name}` }, el("summary", {}, words), body);
