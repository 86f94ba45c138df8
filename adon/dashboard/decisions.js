// Every decision with its reason: paths of transits, sites of jobs, sizes of the pool.

import { get } from "./api.js";
import { el } from "./dom.js";
import { ago, bytes, clock, counted, duration, number, quantity, rate, words } from "./format.js";
import { choice, empty, facts, heading, table, workflowLink } from "./parts.js";

const KINDS = [
  ["", "all"],
  ["transit", "paths of transits"],
  ["placement", "sites of jobs"],
  ["expansion", "size of the pool"],
];
const NAMES = { transit: "path", placement: "site", expansion: "pool" };
const SOME = 50;

export const decisions = {
  title: "Decisions",
  every: 1000,

  begin(c) {
    c.state = {
      list: [],
      kind: c.query.get("kind") || "",
      workflow: c.query.get("workflow") || "",
      text: "",
      limit: SOME,
      newest: "",
    };
  },

  async load(c) {
    const s = c.state;
    const { decisions: list } = await get(
      "/v1/decisions",
      { kind: s.kind || null, workflow: s.workflow || null, limit: s.limit },
      c.signal,
    );
    const newest = list.length ? `${list[0].kind}:${list[0].id}` : "";
    if (s.newest && newest !== s.newest) c.say(`New: ${list[0].subject}, ${list[0].outcome}`);
    Object.assign(s, { list, newest });
  },

  view(c) {
    const s = c.state;
    const now = c.now();
    const shown = s.list.filter(
      (d) =>
        !s.text ||
        `${d.subject} ${d.outcome} ${d.why} ${d.job} ${d.id} ${d.workflow}`.toLowerCase().includes(s.text),
    );
    return [
      heading("Decisions", "the newest first, each with its reason"),
      el(
        "div",
        { class: "filters", role: "search" },
        choice("kind", "Kind", KINDS, s.kind),
        el("label", {}, "Search", el("input", { type: "search", "data-act": "text", value: s.text })),
        s.workflow ? el("button", { type: "button", "data-act": "any" }, "of all workflows") : null,
      ),
      shown.length
        ? el(
            "ol",
            { class: "plain" },
            shown.map((d) => item(d, now)),
          )
        : empty(
            s.list.length
              ? "None of them is like this."
              : "Nothing has been decided yet: a request for a transit, a plan and a demand for slots show up here.",
          ),
      s.list.length >= s.limit
        ? el("p", {}, el("button", { type: "button", "data-act": "more" }, "Older ones"))
        : null,
    ];
  },

  actions: {
    kind(c, from) {
      Object.assign(c.state, { kind: from.value, newest: "", limit: SOME });
      c.reload();
    },
    text(c, from) {
      c.state.text = from.value.trim().toLowerCase();
      c.redraw();
    },
    any(c) {
      c.state.workflow = "";
      c.reload();
    },
    more(c) {
      c.state.limit = Math.min(1000, c.state.limit * 2);
      c.reload();
    },
  },
};

function item(d, now) {
  return el(
    "li",
    { class: "item", "data-key": `${d.kind}:${d.id}` },
    el(
      "div",
      { class: "head" },
      el("span", { class: "tag" }, NAMES[d.kind] || d.kind),
      el("strong", {}, d.subject),
      el("span", {}, d.outcome),
      el(
        "time",
        { class: "soft", datetime: new Date(d.at * 1000).toISOString(), title: clock(d.at, now) },
        ago(d.at, now),
      ),
    ),
    el("p", {}, el("span", { class: "soft" }, "Why: "), d.why),
    el(
      "details",
      { "data-key": "more" },
      el(
        "summary",
        { class: "soft" },
        d.choices.length ? `${counted(d.choices.length, "alternative")} and details` : "Details",
      ),
      d.kind === "transit" ? candidates(d) : d.kind === "placement" ? alternatives(d) : null,
      facts(about(d, now)),
    ),
  );
}

function candidates(d) {
  if (!d.choices.length) return null;
  const names = [...new Set(d.choices.flatMap((one) => Object.keys(one.scores || {})))];
  const chosen = (d.details.path || []).join(" ");
  const columns = [
    { name: "path" },
    { name: "layer" },
    { name: "Q", n: true },
    { name: "free", n: true },
    { name: "expected", n: true },
    ...names.map((n) => ({ name: n, n: true })),
    { name: "left out because", full: true },
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

const UNITS = { throughput: "bit/s", delay: "s", jitter: "s", loss: "1" };

function score(name, s) {
  if (!s || s.value === null) return "–";
  return [
    `${number(s.score)} × ${number(s.weight)}`,
    el("small", {}, `${quantity(s.value, UNITS[name], name)}, ${s.source}`),
  ];
}

function alternatives(d) {
  if (!d.choices.length) return null;
  const columns = [
    { name: "site" },
    { name: "T_t, in all", n: true },
    { name: "T_q, waiting", n: true },
    { name: "T_c, computing", n: true },
    { name: "T_n, moving data", n: true },
  ];
  const term = (seconds) => (seconds === null ? "never" : duration(seconds));
  return table(
    "what each site was expected to take",
    columns,
    d.choices.map((a, n) => ({
      key: `${a.site} ${n}`,
      cls: a.site === d.details.site ? "chosen" : "",
      cells: [a.site, term(a.seconds), term(a.wait_s), term(a.compute_s), term(a.transfer_s)],
    })),
  );
}

function about(d, now) {
  const t = d.details;
  const common = {
    id: el("code", {}, d.id),
    decided: clock(d.at, now),
    workflow: d.workflow && workflowLink(d.workflow),
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
      installed: t.installed_at ? clock(t.installed_at, now) : "",
      ended: t.released_at ? clock(t.released_at, now) : "",
      goodput: t.goodput_bps ? rate(t.goodput_bps) : "",
      "could start": t.earliest ? clock(t.earliest, now) : "",
      "no room on": (t.blocking || [])
        .map(
          (b) => `${b.link} (free ${rate(b.free_bps)}, held by ${(b.holders || []).join(", ") || "nobody"})`,
        )
        .join("; "),
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
