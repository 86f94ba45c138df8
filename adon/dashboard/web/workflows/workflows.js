// All workflows of a user (Figure 13 of the thesis), live.

import { get } from "../base/api.js";
import { el } from "../base/dom.js";
import { ago, clock, counted, number, whole } from "../base/format.js";
import {
  button, check, choice, empty, heading, meter, moment, search, small, state, table, workflowLink,
} from "../base/parts.js";

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
  },
  /** What is chosen is among those that are listed, or the broker finds it. */
  same(c) {
    if (c.state.cut) c.reload();
  },

  async load(c) {
    const s = c.state;
    // Where there are more than can be listed, the broker finds those that are looked for.
    const { user, state: only, text } = c.chosen("user", "state", "text");
    const wanted = s.cut ? { user: user || null, state: only || null, text: text.toLowerCase() || null } : {};
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
    const { user, state: only, text, inner } = c.chosen("user", "state", "text", "inner");
    const ids = new Set(s.list.map((w) => w.id));
    const wanted = s.list.filter(
      (w) =>
        (!user || w.user === user) &&
        (inner || !w.parent || !ids.has(w.parent)) &&
        `${w.name} ${w.id} ${w.submit_dir} ${w.user}`.toLowerCase().includes(text.toLowerCase()),
    );
    const matches = wanted.filter((w) => !only || stateOf(w) === only);
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
    const matching = counted(matches.length, "workflow");
    const of = s.more ? `${matching} among the ${whole(s.list.length)} that changed last` : matching;
    return [
      heading("Workflows", counts.length ? counts.map(([name, n]) => `${whole(n)} ${name}`).join(", ") : ""),
      el(
        "div",
        { class: "filters", role: "search" },
        search("text", "Search", text),
        choice("user", "User", all([...s.users].sort()), user),
        choice("state", "State", all(STATES), only),
        check("inner", "with workflows inside others", inner),
      ),
      rows.length
        ? table(rows.length < matches.length ? `${whole(rows.length)} of ${of}` : of, COLUMNS, rows, { sparse: true })
        : s.list.length || s.cut
          ? empty("Nothing matches.")
          : empty(
              `No workflow has been followed yet. \`adon monitor run SUBMIT_DIR --broker ${location.origin}\` follows ` +
                "one and reports to this broker, with `--mine --keep` instead of a directory all of yours. What " +
                "`monitoring.workflows` in adon.yml names, the broker follows by itself.",
            ),
      s.more && el("p", {}, button("older", `${whole(MOST)} more`), " Search, user and state look among all of them."),
      rows.length < matches.length && el("p", {}, button("more", "More of them")),
    ];
  },

  actions: {
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

/** Options with one for all of them. */
const all = (names) => [["", "all"], ...names.map((name) => [name, name])];

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
  const inside = w.totals && w.totals.total !== s.total;
  const planned = w.planned_at ? `planned ${clock(w.planned_at, now, false)}` : "";
  return {
    key: w.id,
    cls: isFresh(c, w) ? "fresh" : "",
    cells: [
      [
        el("span", { class: "clamp" }, depth ? `${"  ".repeat(depth - 1)}↳ ` : "", workflowLink(w.id, w.name || w.id)),
        el("small", { class: "clamp" }, [w.user, planned].filter(Boolean).join(", ")),
      ],
      [state(stateOf(w), w.stuck), w.stuck && small(w.stuck)],
      meter(s),
      [number(w.percent_done), inside && small(`${number(w.totals.percent_done)} with those inside`)],
      ...[s.unready, s.ready, s.pre, s.in_queue, s.post, s.done].map((n) => (n ? whole(n) : "0")),
      s.fail ? el("strong", { class: "bad" }, whole(s.fail)) : "0",
      w.at ? moment(w.at, now) : "–",
    ],
  };
}
