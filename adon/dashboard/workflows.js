// All workflows of a user (Figure 13 of the thesis), live.

import { get } from "./api.js";
import { el } from "./dom.js";
import { ago, clock, counted, number, whole } from "./format.js";
import { check, choice, empty, heading, meter, state, table, workflowLink } from "./parts.js";

const MOST = 1000;
const ROWS = 150; // drawn at once: more of them take long to draw, and nobody reads them
const QUICK_MS = 200;
const BETWEEN_MS = 2000;
const STATES = ["running", "stuck", "failed", "done", "removed", "planned"];
const COLUMNS = [
  { name: "workflow" },
  { name: "state", half: true },
  { name: "progress", half: true },
  { name: "% done", n: true },
  { name: "unready", n: true },
  { name: "ready", n: true },
  { name: "pre", n: true },
  { name: "in queue", n: true },
  { name: "post", n: true },
  { name: "done", n: true },
  { name: "failed", n: true },
  { name: "changed", n: true },
];

const stateOf = (w) => (w.stuck ? "stuck" : w.state);

export const workflows = {
  title: "Workflows",
  every: 15000, // what no feed tells: that a workflow is stuck
  metrics: () => ["status", "workflow"],

  begin(c) {
    c.state = { list: [], user: "", only: "", text: "", inner: false, rows: ROWS };
    Object.assign(c.state, { fresh: new Map(), looks: new Map() });
  },

  async load(c) {
    const list = await get("/v1/workflows", { limit: MOST }, c.signal);
    for (const w of list) tell(c, w);
    c.state.list = list;
  },

  /** A status as it is recorded. Of a workflow that is new, and of those inside others, whose totals
   * count too, the broker is asked. */
  found(c, list) {
    const s = c.state;
    let ask = false;
    for (const m of list) {
      const w = s.list.find((one) => one.id === m.subject);
      if (m.metric !== "status" || !w) {
        ask = true;
        continue;
      }
      if (m.at < w.at) continue;
      ask ||= Boolean(w.parent) || w.totals.total !== (w.status?.total ?? 0);
      apply(w, m);
      s.fresh.set(w.id, Date.now());
      tell(c, w);
    }
    if (ask) later(c);
  },

  view(c) {
    const s = c.state;
    const users = [...new Set(s.list.map((w) => w.user).filter(Boolean))].sort();
    const matches = s.list.filter(
      (w) =>
        (!s.user || w.user === s.user) &&
        (!s.only || stateOf(w) === s.only) &&
        (s.inner || !w.parent || !s.list.some((one) => one.id === w.parent)) &&
        (!s.text || `${w.name} ${w.id} ${w.submit_dir} ${w.user}`.toLowerCase().includes(s.text)),
    );
    const counts = STATES.map((name) => [name, s.list.filter((w) => stateOf(w) === name).length]).filter(
      ([, n]) => n,
    );
    const looks = new Map();
    const rows = arranged(matches)
      .slice(0, s.rows)
      .map(([w, depth]) => {
        looks.set(w.id, look(c, w, depth));
        return s.looks.get(w.id) === looks.get(w.id) ? { key: w.id } : row(c, w, depth);
      });
    s.looks = looks;
    const of = s.list.length < MOST ? counted(matches.length, "workflow") : `the ${MOST} that changed last`;
    return [
      heading("Workflows", counts.length ? counts.map(([name, n]) => `${whole(n)} ${name}`).join(", ") : ""),
      el(
        "div",
        { class: "filters", role: "search" },
        el("label", {}, "Search", el("input", { type: "search", "data-act": "text", value: s.text })),
        choice("user", "User", [["", "all"], ...users.map((u) => [u, u])], s.user),
        choice("only", "State", [["", "all"], ...STATES.map((n) => [n, n])], s.only),
        check("inner", "with workflows inside others", s.inner),
      ),
      rows.length
        ? table(rows.length < matches.length ? `${whole(rows.length)} of ${of}` : of, COLUMNS, rows, {
            sparse: true,
          })
        : empty(
            s.list.length
              ? "None of them is like this."
              : "Nobody has followed a workflow yet. The broker follows those of monitoring.workflows in adon.yml; adon monitor run --broker tells it of others.",
          ),
      rows.length < matches.length
        ? el("p", {}, el("button", { type: "button", "data-act": "more" }, "More of them"))
        : null,
    ];
  },

  actions: {
    text: (c, from) => {
      c.state.text = from.value.trim().toLowerCase();
      c.redraw();
    },
    user: (c, from) => {
      c.state.user = from.value;
      c.redraw();
    },
    only: (c, from) => {
      c.state.only = from.value;
      c.redraw();
    },
    more: (c) => {
      c.state.rows *= 3;
      c.redraw();
    },
    inner: (c, from) => {
      c.state.inner = from.checked;
      c.redraw();
    },
  },
};

/** Say what has become of a workflow, whoever knew first: the feed or the list. */
export function tell(c, w) {
  const states = (c.state.states ||= new Map());
  const before = states.get(w.id);
  states.set(w.id, stateOf(w));
  if (before && before !== stateOf(w)) c.say(`${w.name || w.id} is ${stateOf(w)}`);
}

/** A status measurement, into what is known of its workflow. */
export function apply(w, m) {
  const alone = w.totals && w.totals.total === (w.status?.total ?? 0); // none is inside it
  const counts = Object.fromEntries(Object.entries(m.details).filter(([, v]) => typeof v === "number"));
  w.status = { ...w.status, ...counts };
  w.state = m.details.state;
  w.at = m.at;
  w.percent_done = m.value;
  if (w.state !== "running") w.stuck = "";
  if (alone) w.totals = { done: counts.done, total: counts.total, percent_done: m.value };
}

/** Load again, but not for each of many changes. */
export function later(c) {
  if (c.asking) return;
  const since = performance.now() - (c.loadedAt || 0);
  c.asking = setTimeout(
    () => {
      c.asking = 0;
      if (!c.signal.aborted) c.reload();
    },
    Math.max(QUICK_MS, BETWEEN_MS - since),
  );
}

/** Those inside others below them, with their depth. */
function arranged(list) {
  const there = new Set(list.map((w) => w.id));
  const inside = new Map();
  for (const w of list) {
    const under = w.parent && there.has(w.parent) && w.parent !== w.id ? w.parent : "";
    inside.set(under, [...(inside.get(under) || []), w]);
  }
  const out = [];
  const walk = (id, depth) => {
    for (const w of inside.get(id) || []) {
      out.push([w, depth]);
      if (depth < 8) walk(w.id, depth + 1);
    }
  };
  walk("", 0);
  return out;
}

const isFresh = (c, w) => Date.now() - (c.state.fresh.get(w.id) || 0) < 1600;

/** Everything that a row shows, to tell whether it is as it was. */
function look(c, w, depth) {
  const told = [w.name, w.user, w.state, w.stuck, w.percent_done, w.totals?.percent_done, w.planned_at];
  return [...told, ...Object.values(w.status || {}), ago(w.at, c.now()), isFresh(c, w), depth].join(" ");
}

function row(c, w, depth) {
  const s = w.status || {};
  const now = c.now();
  const fresh = isFresh(c, w);
  const inside = w.totals && w.totals.total !== s.total;
  const cell = (n) => (n ? whole(n) : "0");
  return {
    key: w.id,
    cls: fresh ? "fresh" : "",
    cells: [
      [
        el("span", {}, depth ? `${"  ".repeat(depth - 1)}↳ ` : "", workflowLink(w.id, w.name || w.id)),
        el(
          "small",
          {},
          [w.user, w.planned_at ? `planned ${clock(w.planned_at, now, false)}` : ""]
            .filter(Boolean)
            .join(", "),
        ),
      ],
      [state(stateOf(w), w.stuck), w.stuck && el("small", {}, w.stuck)],
      meter(s),
      [
        number(w.percent_done),
        inside && el("small", {}, `${number(w.totals.percent_done)} with those inside`),
      ],
      cell(s.unready),
      cell(s.ready),
      cell(s.pre),
      cell(s.in_queue),
      cell(s.post),
      cell(s.done),
      s.fail ? el("strong", { class: "bad" }, whole(s.fail)) : "0",
      w.at
        ? el(
            "time",
            { datetime: new Date(w.at * 1000).toISOString(), title: clock(w.at, now) },
            ago(w.at, now),
          )
        : "–",
    ],
  };
}
