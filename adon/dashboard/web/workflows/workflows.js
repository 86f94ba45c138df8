// All workflows of a user (Figure 13 of the thesis), live.

import { get } from "../base/api.js";
import { el } from "../base/dom.js";
import { ago, clock, counted, number, stamp, whole } from "../base/format.js";
import { TYPED_MS, check, choice, code, empty, heading, meter, search, state, table, workflowLink } from "../base/parts.js";

const MOST = 1000;
const ROWS = 150; // drawn at once: more of them take long to draw, and nobody reads them
const STATES = ["running", "stuck", "failed", "done", "removed", "planned"];
const COLUMNS = [
  "workflow", "state |", "progress |", "% done #", "unready #", "ready #", "pre #", "in queue #", "post #",
  "done #", "failed #", "changed #",
];

const stateOf = (w) => (w.stuck ? "stuck" : w.state);

export const workflows = {
  title: "Workflows",
  every: 15000, // what no feed tells: that a workflow is stuck
  metrics: () => ["status", "workflow"],

  begin(c) {
    c.state = { list: [], users: new Set(), rows: ROWS, fresh: new Map(), looks: new Map(), cut: false, pages: 1 };
    chosen(c);
  },
  same(c) {
    chosen(c);
    show(c);
  },

  async load(c) {
    const s = c.state;
    // Where there are more than can be listed, the broker finds those that are looked for.
    const wanted = s.cut ? { user: s.user || null, state: s.only || null, text: s.text || null } : {};
    if (!c.loaded) {
      s.list = await get("/v1/workflows", { limit: ROWS }, c.signal);
      c.early();
    }
    const list = [];
    for (let page = 1; page <= s.pages && list.length === (page - 1) * MOST; page += 1) {
      const last = list.at(-1);
      const cursor = last ? `${last.at}:${last.id}` : null;
      list.push(...(await get("/v1/workflows", { ...wanted, limit: MOST, cursor }, c.signal)));
    }
    for (const w of list) {
      tell(c, w);
      if (w.user) s.users.add(w.user);
    }
    s.more = list.length === MOST * s.pages;
    s.cut ||= s.more;
    s.list = list;
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
    if (ask) c.later();
  },

  view(c) {
    const s = c.state;
    const users = [...s.users].sort();
    const ids = new Set(s.list.map((w) => w.id));
    const wanted = s.list.filter(
      (w) =>
        (!s.user || w.user === s.user) &&
        (s.inner || !w.parent || !ids.has(w.parent)) &&
        (!s.text || `${w.name} ${w.id} ${w.submit_dir} ${w.user}`.toLowerCase().includes(s.text)),
    );
    const matches = wanted.filter((w) => !s.only || stateOf(w) === s.only);
    const counts = STATES.map((name) => [name, wanted.filter((w) => stateOf(w) === name).length]).filter(
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
    const all = counted(matches.length, "workflow");
    const of = s.more ? `${all} among the ${whole(s.list.length)} that changed last` : all;
    return [
      heading("Workflows", counts.length ? counts.map(([name, n]) => `${whole(n)} ${name}`).join(", ") : ""),
      el(
        "div",
        { class: "filters", role: "search" },
        search("text", "Search", s.text),
        choice("user", "User", [["", "all"], ...users.map((u) => [u, u])], s.user),
        choice("only", "State", [["", "all"], ...STATES.map((n) => [n, n])], s.only),
        check("inner", "with workflows inside others", s.inner),
      ),
      rows.length
        ? table(rows.length < matches.length ? `${whole(rows.length)} of ${of}` : of, COLUMNS, rows, {
            sparse: true,
          })
        : s.list.length || s.cut
          ? empty("None of them is like this.")
          : empty(
              "Nobody has followed a workflow yet. ",
              code(`adon monitor run SUBMIT_DIR --broker ${location.origin}`),
              " follows one and tells this broker, with ",
              code("--mine --keep"),
              " instead of a directory all of yours. What ",
              code("monitoring.workflows"),
              " in adon.yml names, the broker follows by itself.",
            ),
      s.more
        ? el(
            "p",
            {},
            el("button", { type: "button", "data-act": "older" }, `${whole(MOST)} more`),
            " Search, user and state look among all of them.",
          )
        : null,
      rows.length < matches.length
        ? el("p", {}, el("button", { type: "button", "data-act": "more" }, "More of them"))
        : null,
    ];
  },

  actions: {
    text(c, from) {
      clearTimeout(c.state.typing);
      choose(c, { text: from.value.trim().toLowerCase() }, c.state.cut ? TYPED_MS : 0);
    },
    user: (c, from) => choose(c, { user: from.value }),
    only: (c, from) => choose(c, { state: from.value }),
    inner: (c, from) => choose(c, { inner: from.checked ? "yes" : "" }),
    older: (c) => {
      c.state.pages += 1;
      c.reload();
    },
    more: (c) => {
      c.state.rows *= 3;
      c.redraw();
    },
  },
};

function chosen(c) {
  const [user, only, text, inner] = ["user", "state", "text", "inner"].map((name) => c.query.get(name) || "");
  Object.assign(c.state, { user, only, text, inner: inner !== "" });
}

function choose(c, changes, wait = 0) {
  c.choose(changes);
  chosen(c);
  c.redraw();
  c.state.typing = setTimeout(() => show(c), wait);
}

/** Show those that are chosen, also those that were not listed. */
function show(c) {
  c.redraw();
  if (c.state.cut) c.reload();
}

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
        el("span", { class: "clamp" }, depth ? `${"  ".repeat(depth - 1)}↳ ` : "", workflowLink(w.id, w.name || w.id)),
        el(
          "small",
          { class: "clamp" },
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
            { datetime: stamp(w.at), title: clock(w.at, now) },
            ago(w.at, now),
          )
        : "–",
    ],
  };
}
