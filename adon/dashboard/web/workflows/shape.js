// A workflow's DAG by level and kind of job, however large it is: how far it has come, which level it
// waits for, when its jobs ran, as areas or one by one, and what ADON saved it.

import { chart } from "../drawings/chart.js";
import { dag } from "../drawings/dag.js";
import { bytes, counted, duration, rate, shortName, whole } from "../base/format.js";
import { gantt } from "../drawings/gantt.js";
import { button, cards, key, scrolled, section, small, table } from "../base/parts.js";

export const EACH = 2000; // jobs that are drawn one by one
const STATES = { done: "s3", failed: "s5", "to come": "s0" };

const levels = ({ level, until }) => (until > level ? `levels ${whole(level)} to ${whole(until)}` : `level ${whole(level)}`);

/** What a workflow that runs waits for, in words; "" where nothing is left, or nobody knows its DAG. */
export function awaited({ dag: shape, w }) {
  const level = shape?.awaits;
  if (!level || w.state === "done") return "";
  const kinds = level.kinds.map(([kind, left]) => `${whole(left)} ${kind}`).join(", ");
  const verb = w.state === "running" ? "It waits for" : "It came as far as";
  return `${verb} ${levels(level)} of ${whole(shape.levels)}: ${whole(level.left)} of ${counted(level.jobs, "job")} left (${kinds})`;
}

/** The DAG from top to bottom, with what became of the jobs in each box. */
export function shaped({ dag: shape }) {
  if (!shape?.boxes.length) return null;
  const boxes = shape.boxes.map((box, n) => ({
    job: String(n),
    name: box.job || box.kind,
    sites: [
      ["done", box.done],
      ["failed", box.failed],
      ["to come", box.count - box.done - box.failed],
    ].filter(([, count]) => count > 0),
  }));
  const edges = shape.edges.map((edge) => edge.map(String));
  const { drawing } = dag({ jobs: boxes, edges, grouped: shape.jobs }, STATES);
  return section("dag", "Its jobs, level by level",
    key(Object.entries(STATES).map(([name, cls]) => [cls, name])),
    scrolled("The DAG", drawing, "dag"),
  );
}

/** Areas of what ran and lines of what waited; below them each job, where that is asked for. */
export function ran(state, width, now) {
  const { timeline, each, jobs } = state;
  const { start, width_s: wide, sites, attempts } = timeline;
  if (!attempts) return null;
  const points = (values) => values.map((n, bin) => [start + (bin + 0.5) * wide, n]);
  const tone = (n) => `t${(n % 8) + 1}`;
  const waits = (site) => site.waiting.some((n) => n > 0);
  return section("ran", "When its jobs ran",
    key(
      sites.flatMap((site, n) => [
        [`line ${tone(n)}`, `running at ${site.site || "no site"}`],
        ...(waits(site) ? [[`line ${tone(n)} dash2`, `waiting for ${site.site || "a slot"}`]] : []),
      ]),
    ),
    chart({
      key: "ran",
      title: `Jobs at once, of ${counted(attempts, "attempt")} that ended; means of ${duration(wide)}`,
      width,
      height: 200,
      unit: "1",
      floor: 0,
      now,
      series: sites.flatMap((site, n) => [
        { name: `running at ${site.site}`, cls: tone(n), points: points(site.running), area: true },
        ...(waits(site) ? [{ name: `waiting for ${site.site}`, cls: `${tone(n)} dash2`, points: points(site.waiting) }] : []),
      ]),
    }),
    button("choose", attempts > EACH ? `The last ${counted(EACH, "job")} one by one` : "Each job", {
      name: "each",
      value: each ? "" : "yes",
      "aria-pressed": String(each === "yes"),
    }),
    each && jobs.length ? bars(jobs, sites) : kinds(state),
  );
}

function bars(jobs, sites) {
  const known = jobs.filter((j) => j.started_at);
  const start = Math.min(...known.map((j) => j.submitted_at ?? j.started_at));
  const bar = (j, n) => ({
    submit: (j.submitted_at ?? j.started_at) - start,
    start: j.started_at - start,
    end: j.ended_at - start,
    label: j.job,
    tip: `${j.job} (${shortName(j.transformation || "")}) at ${j.site}: ${j.outcome}, ran ${duration(j.seconds)}, waited ${duration(j.queued_s)}`,
    cls: `s${(n % 8) + 1}${j.outcome === "done" ? "" : " failed"}`,
    held: [],
  });
  const groups = sites.map(({ site }, n) => [
    site,
    known.filter((j) => (j.site || "") === site).map((j) => bar(j, n)),
  ]);
  const end = Math.max(...known.map((j) => j.ended_at)) - start;
  return scrolled("Each job over time", gantt({ groups: groups.filter(([, list]) => list.length), end }));
}

/** A bar for each kind of job at each level, by site, from its first start to its last end. */
function kinds({ dag: shape }) {
  const runs = (shape?.boxes || []).flatMap((box) => box.runs.map((run) => ({ ...run, box })));
  if (!runs.length) return null;
  const start = Math.min(...runs.map((run) => run.started_at));
  const end = Math.max(...runs.map((run) => run.ended_at)) - start;
  const sites = [...new Set(runs.map((run) => run.site))].sort();
  const bar = (n) => ({ site, box, attempts, failed, started_at: from, ended_at: to, busy_s: busy, waited_s: waited }) => {
    const label = `${box.job || `${box.kind} × ${whole(attempts)}`}${failed ? `, ${whole(failed)} ✗ failed` : ""}`;
    return {
      submit: from - start,
      start: from - start,
      end: to - start,
      label,
      tip: `${label} at ${site}: ${duration(to - from)}; on average each waited ${duration(waited / attempts)} and ran ${duration(busy / attempts)}`,
      cls: `s${(n % 8) + 1}${failed ? " failed" : ""}`,
      held: [],
    };
  };
  const groups = sites.map((site, n) => [site || "no site", runs.filter((run) => run.site === site).map(bar(n))]);
  return scrolled("Each kind of job over time", gantt({ groups, end }));
}

/** Time that its jobs' places and its transfers' paths saved; nothing where neither is known. */
export function saved({ savings }) {
  const { placement, paths = [] } = savings || {};
  if (!placement && !paths.length) return null;
  const known = paths.filter((pair) => pair.saved_s !== null);
  const less = (seconds) => (seconds < 0 ? `${duration(-seconds)} lost` : duration(seconds));
  return section("saved", "What ADON saved",
    (placement || known.length > 0) && cards({
      ...(placement && {
        "by where its jobs are": [
          less(placement.saved_s),
          `expected ${duration(placement.expected_s)} by ${placement.policy}, ${duration(placement.other_s)} by Pegasus's ${placement.other}`,
        ],
      }),
      ...(known.length && {
        "by paths": [less(known.reduce((sum, pair) => sum + pair.saved_s, 0)), "of its transfers' time, together"],
      }),
    }),
    paths.length
      ? table(
          "transfers with a path, beside the median of those without one",
          ["between", "transfers #", "moved #", "took #", "goodput #", "without a path #", "saved #"],
          paths.map((pair) => ({
            key: `${pair.src}>${pair.dst}`,
            cells: [
              `${pair.src} → ${pair.dst}`,
              whole(pair.transfers),
              bytes(pair.bytes),
              duration(pair.seconds),
              rate((8 * pair.bytes) / pair.seconds),
              pair.usual_bps === null
                ? small(pair.compared ? `only ${counted(pair.compared, "transfer")}` : "none known")
                : [rate(pair.usual_bps), small(`of ${counted(pair.compared, "transfer")}`)],
              pair.saved_s === null ? "–" : less(pair.saved_s),
            ],
          })),
        )
      : null,
  );
}
