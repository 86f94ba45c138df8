// Who measures what, when next, and how their runs ended.

import { get, post } from "../base/api.js";
import { el } from "../base/dom.js";
import { ago, clock, counted, duration, percent, rate, subjectText, whole, words } from "../base/format.js";
import { addressOf } from "./anomalies.js";
import { bar, button, cards, empty, heading, listed, marked, note, small, state } from "../base/parts.js";
import { timeline } from "../drawings/runs.js";

const COMING = 20;
const BEFORE_S = 900;
const AFTER_S = 300; // so far ahead agents are told what to do
const RUNS = 2000;

export const agents = {
  title: "Agents",
  every: 2000,

  begin(c) {
    c.state = { agents: [], tasks: [], runs: [], schedule: null, told: new Map(), away: new Set() };
  },

  async load(c) {
    const s = c.state;
    const now = c.now();
    const [list, book, schedule, runs] = await Promise.all([
      get("/v1/agents", {}, c.signal),
      get("/v1/tasks", {}, c.signal),
      get("/v1/schedule", {}, c.signal),
      get("/v1/runs", { since: Math.floor(now - BEFORE_S), until: Math.ceil(now + AFTER_S), limit: RUNS }, c.signal),
    ]);
    const away = new Set(list.filter((a) => !a.present).map((a) => a.name));
    for (const name of away) if (c.loaded && !s.away.has(name)) c.say(`Agent ${name} is away`);
    Object.assign(s, { agents: list, tasks: book, schedule, runs: runs.runs, away });
  },

  view(c) {
    const s = c.state;
    const now = c.now();
    if (!s.agents.length && !s.tasks.length) {
      return [
        heading("Agents"),
        empty(
          "There are no agents. Configure them in adon.yml under `monitoring.agents`, and what they measure under " +
            "`monitoring.tasks`; `adon agent run --config agent.yml` starts one on its host, and " +
            "`adon measure add` adds what is to be measured.",
        ),
      ];
    }
    const sum = (name) => whole(s.tasks.reduce((all, t) => all + (t.counts?.[name] || 0), 0));
    const names = s.agents.map((a) => a.name);
    const unheard = s.agents.filter((a) => !a.last_seen).map((a) => a.name);
    const { slots, hyperperiod_s: repeats } = s.schedule || {};
    return [
      heading("Agents", "who measures what, and when"),
      cards({
        agents: [whole(s.agents.length), s.away.size ? `${s.away.size} away` : "all connected"],
        tasks: whole(s.tasks.length),
        "runs done": sum("done"),
        failed: sum("failed"),
        missed: sum("missed"),
        ...(slots && { "schedule repeats": [duration(repeats), `with ${counted(slots, "run")}`] }),
      }),
      unheard.length > 0 &&
        note(
          `${unheard.join(", ")}: never connected to the broker. `,
          marked("`adon agent run --config agent.yml` starts an agent on its host."),
        ),
      people(s, now),
      tasks(s, now),
      timeline(s.runs, names, now - BEFORE_S, now + AFTER_S, now, c.width),
      coming(s, now),
      use(s),
    ];
  },

  actions: {
    async run(c, from) {
      const { task } = from.dataset;
      c.state.told.set(task, "asking …");
      c.redraw();
      try {
        const answer = await post(`/v1/tasks/${encodeURIComponent(task)}/run`);
        c.state.told.set(task, `runs at ${clock(answer.at, c.now())}`);
      } catch (error) {
        c.state.told.set(task, error.message);
      }
      c.say(`${task}: ${c.state.told.get(task)}`);
      await c.reload();
    },
  },
};

function people(s, now) {
  const columns = [
    "agent", "state |", "address |", "last asked #", "clock off by #", "to do #", "unsent #", "version",
    "last error =",
  ];
  const rows = s.agents.map((a) => ({
    key: a.name,
    cells: [
      [a.name, a.tools && small(a.tools.map(words).join(", "))],
      state(a.present ? "ok" : "away"),
      a.address || "–",
      a.last_seen ? ago(a.last_seen, now) : "never",
      Number.isFinite(a.offset_s) ? [duration(a.offset_s), a.error_s > 0 && small(`± ${duration(a.error_s)}`)] : "–",
      whole(a.to_do),
      a.dropped ? [whole(a.unsent), el("small", { class: "bad" }, `${whole(a.dropped)} lost`)] : whole(a.unsent),
      a.version || "–",
      a.last_error ? [a.last_error, small(ago(a.last_error_at, now))] : "–",
    ],
  }));
  return listed("people", "Agents", counted(s.agents.length, "agent"), columns, rows);
}

function tasks(s, now) {
  const columns = ["task", "of |", "next |", "every #", "takes #", "load #", "done #", "failed #", "missed #", "now ="];
  const rows = s.tasks.map((t) => ({
    key: t.name,
    cells: [
      [t.name, small([words(t.tool), t.by && `by ${t.by}`].filter(Boolean).join(", "))],
      t.metrics?.length
        ? el("a", { href: addressOf(t.metrics[0], t.subject) }, subjectText(t.subject))
        : subjectText(t.subject),
      t.problem
        ? el("span", { class: "bad" }, `not: ${t.problem}`)
        : t.next
          ? [ago(t.next, now), small(clock(t.next, now))]
          : "–",
      duration(t.every_s),
      duration(t.for_s),
      t.load_bps ? rate(t.load_bps) : "–",
      whole(t.counts?.done || 0),
      t.counts?.failed ? el("strong", { class: "bad" }, whole(t.counts.failed)) : "0",
      t.counts?.missed ? el("strong", { class: "warn" }, whole(t.counts.missed)) : "0",
      [
        button("run", "Measure now", { "data-task": t.name, "aria-label": `Measure now: ${t.name}` }),
        el("span", { class: "soft" }, " ", s.told.get(t.name)),
      ],
    ],
  }));
  const caption = counted(s.tasks.length, "task");
  return listed("tasks", "What is measured", caption, columns, rows, "Nothing is measured regularly.");
}

/** What is done next, of all agents: both ends of a run are one. */
function coming(s, now) {
  const runs = new Map();
  for (const a of s.agents)
    for (const run of a.next || [])
      runs.set(run.run, { ...run, agents: [...(runs.get(run.run)?.agents || []), a.name] });
  const list = [...runs.values()].sort((a, b) => a.at - b.at).slice(0, COMING);
  const rows = list.map((run) => ({
    key: run.run,
    cells: [
      [clock(run.at, now), small(ago(run.at, now))],
      words(run.tool),
      subjectText(run.subject),
      run.agents.join(", "),
    ],
  }));
  return listed("coming", "Next", "the next runs", ["at", "what |", "of |", "agents ="], rows);
}

/** How much of the time hosts and links are taken by measurements. */
function use(s) {
  const hosts = Object.entries(s.schedule?.hosts || {}).map(([name, share]) => [name, share, "host"]);
  const links = (s.schedule?.links || []).map((one) => [one.link.join(" – "), one.use, "link"]);
  const busiest = [...hosts, ...links].sort((a, b) => b[1] - a[1]).slice(0, 40);
  const rows = busiest.map(([name, share, kind]) => ({
    key: `${kind}:${name}`,
    cells: [name, kind, bar([[share, "t1"]], `${percent(share)} of the time`), percent(share)],
  }));
  const columns = ["what", "kind |", "taken |", "share of the time #"];
  return listed("use", "How busy measurements keep hosts and links", "the busiest first", columns, rows);
}
