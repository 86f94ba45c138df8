// One workflow: its most recent status (Figure 14 of the thesis) and its analysis (Figure 15).

import { get, maybe, post } from "../base/api.js";
import { analysed, failures, heldJobs, inside } from "./analysis.js";
import { chart } from "../drawings/chart.js";
import { el } from "../base/dom.js";
import { ago, clock, counted, number, whole, words } from "../base/format.js";
import {
  back, button, cards, check, code, facts, fold, heading, key, link, meter, meterKey, note, soft, state, workflowLink,
} from "../base/parts.js";
import { jobs, transfers } from "./jobs.js";
import { EACH, awaited, ran, saved, shaped } from "./shape.js";
import { apply, tell } from "./workflows.js";

const HISTORY = 1000;
const JOBS = 200;
const CHILDREN = 50;
const FAILURES = 20; // shown at once: hundreds of them mostly say the same
const HEAVY = 5; // all that jobs did is asked for again after so many times what the last answer took
const COUNTS = ["unready", "ready", "pre", "in_queue", "post", "done"];
const path = (c, rest = "") => `/v1/workflows/${encodeURIComponent(c.id)}${rest}`;

export const workflow = {
  title: "Workflow",
  back: () => back("workflows"),
  every: 15000,
  metrics: () => ["status", "workflow", "held", "job", "job_transfer", "placement"],

  begin(c) {
    c.state = {
      w: null,
      analysis: null,
      jobs: [],
      transfers: [],
      inside: [],
      told: "",
      failures: FAILURES,
      asked: "",
      news: 0, // changes of it, and how many of them its jobs were asked for after
      known: 0,
      heavyAt: 0,
      heavyMs: 0,
    };
  },

  async load(c) {
    const s = c.state;
    const w = await get(path(c), { history: HISTORY }, c.signal);
    document.title = `${w.name || w.id} – ADON`;
    tell(c, w);
    if (w !== s.w) s.news += 1;
    s.w = w;
    // A workflow of 10,000 jobs has an analysis of seconds: where it stands is shown meanwhile.
    if (!s.asked) c.early();
    const { outcome, whole: all, each } = c.chosen("outcome", "whole", "each");
    const asked = `${outcome} ${all} ${each}`;
    const began = performance.now();
    if (asked === s.asked) {
      const rest = s.heavyAt + HEAVY * s.heavyMs - began;
      clearTimeout(s.resting);
      if (s.news > s.known && rest > 0) s.resting = setTimeout(c.later, rest);
      if (s.news === s.known || rest > 0) return;
    }
    const known = s.news;
    await heavy(c, w, outcome, all, each);
    Object.assign(s, { asked, each, known, heavyAt: performance.now(), heavyMs: performance.now() - began });
  },
  found(c, list) {
    const s = c.state;
    if (!s.w) return false;
    const own = list.filter(
      (m) => m.workflow === s.w.id || m.subject === s.w.id || s.w.children?.includes(m.workflow),
    );
    for (const m of own) {
      if (m.metric !== "status" || m.subject !== s.w.id || m.at < (s.w.at || 0)) continue;
      apply(s.w, m);
      tell(c, s.w);
      s.w.history = [...(s.w.history || []), { at: m.at, ...m.details }].slice(-HISTORY);
    }
    s.news += own.length;
    if (own.length) c.later();
    return own.length > 0;
  },

  view(c) {
    const { w } = c.state;
    const now = c.now();
    const title = w.name || w.id;
    return [
      back(
        "workflows",
        w.parent && w.parent !== w.id ? [" ", workflowLink(w.parent, "← the workflow around it")] : null,
      ),
      heading(title, [state(w.stuck ? "stuck" : w.state), w.at ? ` ${ago(w.at, now)}` : ""]),
      w.stuck && note(`It is stuck: ${w.stuck}`),
      w.reason && note(w.reason),
      awaited(c.state) && el("p", { "data-key": "awaits" }, awaited(c.state)),
      latest(c, w, now),
      heldJobs(w, now),
      inside(c.state),
      w.children.length > 0 &&
        el("div", { class: "filters" }, check("whole", "count those inside it too", c.query.has("whole"))),
      c.state.asked
        ? [
            failures(c.state, now),
            shaped(c.state),
            ran(c.state, c.width, now),
            saved(c.state),
            analysed(c.state),
            transfers(c.state, now),
            jobs(c, now),
          ]
        : el("p", { class: "soft", "data-key": "wait" }, "Its jobs are being looked at …"),
    ];
  },

  actions: {
    async measure(c, from) {
      from.disabled = true;
      c.state.told = "asking …";
      c.redraw();
      try {
        const answer = await post(path(c, "/refresh"));
        c.state.told = answer.refreshed
          ? "measured just now"
          : "no process follows it now; the request stays open";
      } catch (error) {
        c.state.told = error.message;
      }
      from.disabled = false;
      c.say(c.state.told);
      await c.reload();
    },
    failures(c) {
      c.state.failures *= 5;
      c.redraw();
    },
  },
};

/** What became of its jobs, and of those inside it. */
async function heavy(c, w, outcome, all, each) {
  const own = await get(path(c, "/analysis"), {}, c.signal);
  const ended = outcome ? own.outcomes[outcome] || 0 : own.attempts;
  const last = { newest: true, limit: JOBS };
  const [endedJobs, timeline, dag, savings, placed, sent, analysis, within] = await Promise.all([
    get(path(c, "/jobs"), { ...last, limit: each ? EACH : JOBS, outcome: outcome || null }, c.signal),
    get(path(c, "/timeline"), {}, c.signal),
    get(path(c, "/dag"), {}, c.signal),
    get(path(c, "/savings"), {}, c.signal),
    get("/v1/measurements", { metric: "placement", workflow: c.id, order: "newest", limit: 1 }, c.signal),
    get(path(c, "/transfers"), last, c.signal),
    all ? get(path(c, "/analysis"), { whole: true }, c.signal) : own,
    Promise.all(
      w.children.slice(0, CHILDREN).map((id) => maybe(`/v1/workflows/${encodeURIComponent(id)}`, {}, c.signal)),
    ),
  ]);
  Object.assign(c.state, {
    analysis,
    ended,
    jobs: endedJobs,
    timeline,
    dag,
    savings,
    plan: placed.measurements[0]?.details,
    transfers: sent,
    inside: within.filter(Boolean),
  });
}

const RUN = /\/run(\d+)\/?$/;

/** Its percentage of done jobs at each change. */
const progress = (w) =>
  (w.history || [])
    .map((h) => [h.at, h.percent_done ?? (h.total ? (100 * h.done) / h.total : null)])
    .filter(([, done]) => done !== null);

/** When it is expected to end, and why; "" where nobody can say. As its plan says, as long as that is
 * not over; else as fast as until now; its range is as fast as each half of what is done. */
function expected(c, w, now) {
  const { plan, analysis } = c.state;
  const began = analysis?.first_at;
  if (w.state !== "running" || !began) return "";
  const planned = plan?.workflow_range_s;
  if (typeof plan?.workflow_s === "number" && began + plan.workflow_s > now) {
    const [first, last] = Array.isArray(planned) ? planned.map((s) => clock(began + s, now, false)) : [];
    return [clock(began + plan.workflow_s, now, false), first ? `by its plan, ${first} to ${last} with 90 % probability` : "by its plan"];
  }
  const share = (w.percent_done || 0) / 100;
  if (share < 0.1) return "";
  const late = plan?.workflow_s ? "later than planned; " : "";
  const points = progress(w);
  const half = points.findIndex(([, done]) => done >= 50 * share);
  const [middle] = points[half] || [];
  const ends = [middle - began, now - middle].map((took) => now + (2 * took * (1 - share)) / share).sort((a, b) => a - b);
  const range = ends.map((at) => clock(at, now, false)).join(" to ");
  const pace = half > 0 ? `${range}, as fast as either half` : "as fast as until now";
  return [clock(began + (now - began) / share, now, false), late + pace];
}

function latest(c, w, now) {
  const s = w.status || {};
  const points = progress(w);
  const failed = (w.history || [])
    .filter((h) => h.fail)
    .map((h) => [h.at, h.total ? (100 * h.fail) / h.total : 0]);
  const figures = Object.fromEntries(COUNTS.map((name) => [words(name), whole(s[name] || 0)]));
  figures.failed = whole(s.fail || 0);
  if (s.futile) figures.futile = [whole(s.futile), "wait for failed ones"];
  const inner = w.totals && w.totals.total !== s.total ? `${number(w.totals.percent_done)} % with those inside` : "";
  const end = expected(c, w, now);
  const running = w.state === "running" ? now : undefined;
  return el(
    "section",
    { "aria-label": "Status", "data-key": "status" },
    cards({
      ...(RUN.test(w.submit_dir) && { run: Number(w.submit_dir.match(RUN)[1]) }),
      ...figures,
      ...(end && { "expected end": end }),
      "done of all": [`${number(w.percent_done)} %`, inner || `of ${counted(s.total || 0, "job")}`],
    }),
    meter(s, true),
    meterKey(),
    el(
      "div",
      { class: "row" },
      button("measure", "Measure it now"),
      link(
        `#/decisions?${new URLSearchParams({ workflow: w.id })}`,
        "Why its jobs and transfers are where they are",
      ),
      el("span", { class: "soft" }, c.state.told),
    ),
    w.history?.length === HISTORY && soft(`The last ${whole(HISTORY)} changes are shown.`),
    points.length > 1
      ? chart({
          key: "progress",
          title: "Jobs done over time",
          width: c.width,
          height: 190,
          unit: "%",
          step: true,
          floor: 0,
          top: 100,
          now,
          t1: running,
          series: [
            { name: "done", cls: "t3", points, area: true, to: running },
            ...(failed.length ? [{ name: "failed", cls: "t5 dash1", points: failed }] : []),
          ],
        })
      : null,
    failed.length > 0 && points.length > 1 && key([["line t3", "done"], ["line t5 dash1", "failed"]]),
    fold(
      "about",
      "About this workflow",
      facts({
        id: code(w.id),
        user: w.user,
        "submit directory": w.submit_dir && code(w.submit_dir),
        "submit host": w.host,
        planned: w.planned_at ? clock(w.planned_at, now) : "",
        "last change": w.at ? clock(w.at, now) : "",
        "told by": w.source,
      }),
    ),
  );
}
