// When a workflow's jobs ran, by site: as areas however many there are, and one by one where each can
// be seen.

import { chart } from "../drawings/chart.js";
import { counted, duration, shortName } from "../base/format.js";
import { gantt } from "../drawings/gantt.js";
import { button, key, scrolled, section } from "../base/parts.js";
import { kinds } from "./shape.js";

export const EACH = 2000; // jobs that are drawn one by one

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
      "aria-pressed": String(each),
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
