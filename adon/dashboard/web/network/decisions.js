// Every decision with its reason: paths of transits, sites of jobs, leases and machines of the pool.

import { get, maybe } from "../base/api.js";
import { el } from "../base/dom.js";
import { bytes, clock, counted, duration, number, quantity, rate, shortName, words } from "../base/format.js";
import { blocked } from "../drawings/holdings.js";
import {
  button, choice, code, empty, facts, heading, moment, search, small, table, why, workflowLink,
} from "../base/parts.js";

const KINDS = [
  ["", "all"],
  ["transit", "paths of transits"],
  ["placement", "sites of jobs"],
  ["expansion", "leases of slots"],
  ["pool", "machines of the pool"],
];
const NAMES = { transit: "path", placement: "site", expansion: "lease", pool: "pool" };
const ROWS = { transit: "path", placement: "site", pool: "reason" };
const TABLES = { transit: candidates, placement: alternatives, pool: steps };
const CHOSEN = ["kind", "workflow", "text"];
const SOME = 50;
const MOST = 1000; // in one answer
const NAMES_MS = 30000; // workflows get no other names; there may be new ones

export const decisions = {
  title: "Decisions",
  changes: true,
  metrics: () => ["placement", "expansion", "pool_decision"],
  every: 60000,

  begin(c) {
    c.state = { list: [], limit: SOME, newest: "", names: new Map(), namedAt: -1e9 };
  },
  same(c) {
    Object.assign(c.state, { newest: "", limit: SOME });
    c.reload();
  },
  found(c) {
    c.later();
    return false;
  },

  async load(c) {
    const s = c.state;
    if (performance.now() - s.namedAt > NAMES_MS) {
      const flows = await maybe("/v1/workflows", { limit: 1000 }, c.signal, []);
      s.names = new Map(flows.filter((w) => w.name).map((w) => [w.id, w.name]));
      s.namedAt = performance.now();
    }
    const list = await newestDecisions(c, s.limit);
    const newest = list.length ? `${list[0].kind}:${list[0].id}` : "";
    if (s.newest && newest !== s.newest) c.say(`New: ${list[0].subject}, ${list[0].outcome}`);
    Object.assign(s, { list, newest });
  },

  view(c) {
    const s = c.state;
    const now = c.now();
    const { kind, workflow, text } = c.chosen(...CHOSEN);
    const own = workflow && workflowLink(workflow, s.names.get(workflow));
    return [
      heading("Decisions", [own ? ["of ", own, ", "] : null, "the newest first, each with its reason"]),
      el(
        "div",
        { class: "filters", role: "search" },
        choice("kind", "Kind", KINDS, kind),
        search("text", "Search", text),
        workflow && button("choose", "Of all workflows", { name: "workflow", value: "" }),
      ),
      s.list.length
        ? el("ol", { class: "plain" }, s.list.map((d) => item(d, s.names, now)))
        : text
          ? empty("Nothing matches.")
          : kind || workflow
            ? empty("There is none of this kind, or you may not see it.")
            : empty(
                "Nothing has been decided yet. `adon transit request` asks for a path, as the hooks do for each " +
                  "transfer of a workflow; `adon plan` or the planner plug-in maps jobs to sites, which appears " +
                  "when their workflow is followed; `adon pool enlarge` leases slots.",
              ),
      s.list.length >= s.limit && el("p", {}, button("more", "Older ones")),
    ];
  },

  actions: {
    more(c) {
      c.state.limit *= 2;
      c.reload();
    },
  },
};

/** So many that are chosen, a page at a time: the next one begins where the last one ends. */
async function newestDecisions(c, limit) {
  const wanted = Object.fromEntries(Object.entries(c.chosen(...CHOSEN)).filter(([, value]) => value));
  const list = new Map();
  for (let [full, until] = [true, null]; full && list.size < limit; ) {
    const before = list.size;
    const most = Math.min(MOST, limit - before + 1);
    const { decisions: page } = await get("/v1/decisions", { ...wanted, until, limit: most }, c.signal);
    for (const d of page) list.set(`${d.kind}:${d.id}`, d);
    until = page.at(-1)?.at;
    full = page.length === most && list.size > before;
  }
  return [...list.values()].slice(0, limit);
}

function item(d, names, now) {
  const [told, flow] = [d.details.transformation, names.get(d.workflow)];
  const kind = typeof told === "string" ? shortName(told) : ""; // somebody wrote it down
  return el(
    "li",
    { class: "item", "data-key": `${d.kind}:${d.id}` },
    el(
      "div",
      { class: "head" },
      el("span", { class: "tag" }, NAMES[d.kind] || d.kind),
      el("strong", {}, d.subject),
      kind && !d.subject.includes(kind) ? el("span", {}, kind) : null,
      el("span", {}, d.outcome),
      el("span", { class: "soft" }, moment(d.at, now)),
      flow ? el("span", { class: "soft" }, "for ", workflowLink(d.workflow, flow)) : null,
    ),
    why(d.why),
    el(
      "details",
      { "data-key": "more" },
      el(
        "summary",
        { class: "soft" },
        d.choices.length ? `${counted(d.choices.length, ROWS[d.kind] || "alternative")} and details` : "Details",
      ),
      TABLES[d.kind]?.(d),
      facts(about(d, names, now)),
    ),
  );
}

export function candidates(d) {
  if (!d.choices.length) return null;
  const names = [...new Set(d.choices.flatMap((one) => Object.keys(one.scores || {})))];
  const chosen = (d.details.path || []).join(" ");
  const columns = [
    "path", "layer", "Q #", "free #", "expected #",
    ...names.map((n) => ({ name: n, n: true })),
    "left out because =",
  ];
  return table(
    "candidates, the best first",
    columns,
    d.choices.map((one, n) => ({
      key: String(n),
      cls: one.path.join(" ") === chosen ? "chosen" : "",
      cells: [
        one.path.join(" → "),
        one.layer,
        number(one.q),
        rate(one.free_bps),
        rate(one.expected_bps),
        ...names.map((name) => score(name, one.scores?.[name])),
        one.rejected || "–",
      ],
    })),
  );
}

function steps(d) {
  if (!d.choices.length) return null;
  return table(
    "what was done, and why",
    ["flavour, machine or limit", "done", "why ="],
    d.choices.map((one, n) => ({ key: String(n), cells: [one.what, one.done || "–", one.why || "–"] })),
  );
}

const UNITS = { throughput: "bit/s", delay: "s", jitter: "s", loss: "1" };

function score(name, s) {
  if (!s || s.value === null) return "–";
  const value = `${quantity(s.value, UNITS[name], name)}, ${s.source}`;
  return [`${number(s.score)} × ${number(s.weight)}`, small(value)];
}

function alternatives(d) {
  if (!d.choices.length) return null;
  const columns = ["site", "T_t, in all #", "T_q, waiting #", "T_c, computing #", "T_n, moving data #"];
  const term = (seconds) => (seconds === null ? "never" : duration(seconds));
  return table(
    "what the job was expected to take at each site: T_t = T_q + T_c + T_n",
    columns,
    d.choices.map((a, n) => ({
      key: `${a.site} ${n}`,
      cls: a.site === d.details.site ? "chosen" : "",
      cells: [a.site, term(a.seconds), term(a.wait_s), term(a.compute_s), term(a.transfer_s)],
    })),
  );
}

function about(d, names, now) {
  const t = d.details;
  const common = {
    id: code(d.id),
    decided: clock(d.at, now),
    workflow: d.workflow && workflowLink(d.workflow, names.get(d.workflow)),
    job: d.kind === "placement" ? "" : d.job,
  };
  if (d.kind === "transit") {
    return {
      ...common,
      user: t.user,
      project: t.project,
      template: t.template,
      priority: String(t.priority),
      size: t.size_bytes ? bytes(t.size_bytes) : "",
      rates: t.requested_bps
        ? `at least ${rate(t.requested_bps)}, at most ${rate(t.max_bps)}, granted ${rate(t.granted_bps)}`
        : "",
      "asked for": t.start || t.end ? wanted(t, now) : "",
      installed: t.installed_at ? clock(t.installed_at, now) : "",
      ended: t.released_at ? clock(t.released_at, now) : "",
      goodput: t.goodput_bps ? rate(t.goodput_bps) : "",
      "could start": t.earliest ? clock(t.earliest, now) : "",
      "no room on": blocked(t),
      "up to the disk": t.knee,
      relay: t.relay,
      "given back": t.given_back_bps ? rate(t.given_back_bps) : "",
      moved: t.moves ? counted(t.moves, "time") : "",
    };
  }
  const other = Object.entries(t).filter(
    ([name, v]) => !["site", "seconds"].includes(name) && v !== null && typeof v !== "object",
  );
  return {
    ...common,
    ...Object.fromEntries(
      other.map(([name, v]) => [words(name), name === "until" ? clock(v, now) : String(v)]),
    ),
  };
}

const wanted = (t, now) =>
  [t.start && `from ${clock(t.start, now)}`, t.end && `until ${clock(t.end, now)}`].filter(Boolean).join(" ");
