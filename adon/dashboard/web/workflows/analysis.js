// What became of a workflow's jobs (Figure 15 of the thesis): failures with what they said, times, waits.

import { el } from "../base/dom.js";
import { clock, counted, duration, number, shortName, whole } from "../base/format.js";
import { button, cards, code, empty, listed, meter, section, small, soft, state, table, workflowLink } from "../base/parts.js";

/** Those inside it, with where each stands. */
export function inside({ inside: list }) {
  const rows = list.map((w) => ({
    key: w.id,
    cells: [
      workflowLink(w.id, w.name || w.id),
      state(w.stuck ? "stuck" : w.state),
      meter(w.status || {}),
      number(w.percent_done),
      whole(w.status?.total),
    ],
  }));
  const columns = ["workflow", "state |", "progress |", "% done #", "jobs #"];
  return listed("inside", "Workflows inside it", counted(list.length, "workflow"), columns, rows);
}

const codes = (hold) => (hold.code || hold.subcode ? `code ${hold.code}.${hold.subcode}` : "");
const reasonOf = (hold) => el("pre", { tabindex: "0" }, hold.reason || "HTCondor gives no reason");

/** Where a job's files are. */
const files = (place, host) =>
  place && soft("Its files: ", code(place), host && ` on ${host}`);

/** A job that went wrong: what about it is known, and more. */
const problem = (kind, n, job, known, ...more) =>
  el(
    "article",
    { class: "item", "data-key": `${kind}:${n}` },
    el(
      "div",
      { class: "head" },
      el("strong", { class: "bad" }, job),
      el("span", { class: "soft" }, known.filter(Boolean).join(", ")),
    ),
    more,
  );

/** Jobs that are on hold, and why. */
export function heldJobs({ held: list = [], host, submit_dir: folder }, now) {
  if (!list.length) return null;
  return section(
    "held",
    `Held (${list.length})`,
    list.map((h) => {
      const known = [h.site && `at ${h.site}`, `since ${clock(h.since, now)}`, codes(h)];
      return problem("held", `${h.job}:${h.since}`, h.job, known, reasonOf(h), files(folder, host));
    }),
  );
}

/** Each job that failed, with the end of what it said on standard error. */
export function failures({ analysis, failures: most, w }, now) {
  const list = analysis?.failures || [];
  if (!list.length) return null;
  return section(
    "failures",
    `Failures (${list.length})`,
    list.slice(0, most).map((f, n) => problem("failure", `${f.job}:${n}`, `✗ ${f.job}`, ended(f, now), said(f, w))),
    list.length > most &&
      el(
        "p",
        { class: "row" },
        button("failures", "More of them"),
        el("span", { class: "soft" }, `${whole(most)} of ${whole(list.length)} are shown`),
      ),
  );
}

/** Where and how it failed. */
const ended = (f, now) => [
  shortName(f.transformation || ""),
  [f.site && `at ${f.site}`, f.host && `on ${f.host}`].filter(Boolean).join(" "),
  f.exitcode === null || f.exitcode === undefined ? f.outcome : `exit code ${f.exitcode}`,
  f.attempts > 1 && `${f.attempts} attempts`,
  ...(f.failed_tasks || []).map((t) => `task ${t.task} (${shortName(t.transformation)})`),
  clock(f.at, now),
];

const said = (f, w) => [
  f.reason && el("p", {}, f.reason),
  f.hold && [
    el("p", {}, [`It was on hold for ${duration(f.hold.seconds)} before`, codes(f.hold)].filter(Boolean).join(", ")),
    reasonOf(f.hold),
  ],
  f.not_found && soft(`Its output ${f.not_found} is not there.`),
  f.retried && soft("It was or will be retried; the workflow does not fail because of it."),
  f.stderr
    ? el("pre", { tabindex: "0", role: "region", "aria-label": `End of the output of ${f.job}` }, f.stderr)
    : soft("Its standard error is empty."),
  files(f.output || w.submit_dir, w.host),
];

/** Times of its jobs by transformation and site, and what they waited. */
export function analysed({ analysis: a }) {
  if (!a?.attempts) return section("analysis", "Analysis", empty("No job of it has ended yet."));
  const runtimes = [
    "transformation", "site |", "done #", "failed #", "min #", "median #", "mean #", "max #", "sum #",
  ];
  const waits = ["site", "jobs #", "min #", "median #", "mean #", "max #"];
  return section("analysis", "Analysis",
    cards({
      makespan: duration(a.makespan_s),
      "jobs' time": [duration(a.cumulative_s), "of all that succeeded"],
      "lost time": [duration(a.lost_s), `attempts that did not; ${duration(a.lost_slot_s)} of slots`],
      attempts: whole(a.attempts),
      retries: whole(a.retries),
      ...Object.fromEntries(Object.entries(a.outcomes || {}).map(([name, n]) => [name, whole(n)])),
    }),
    el("h3", {}, "How long jobs ran"),
    table(
      "by transformation and site, on a worker; of those that succeeded",
      runtimes,
      (a.runtimes || []).map((r) => ({
        key: `${r.transformation}@${r.site}`,
        cells: [
          [shortName(r.transformation), small(r.kind === "compute" ? r.transformation : r.kind)],
          r.site,
          whole(r.count),
          r.failed ? el("strong", { class: "bad" }, whole(r.failed)) : "0",
          // Where none succeeded there is no run time.
          ...[r.min_s, r.median_s, r.mean_s, r.max_s, r.total_s].map((s) => (r.count ? duration(s) : "–")),
        ],
      })),
    ),
    (a.waits || []).length
      ? [
          el("h3", {}, "How long jobs waited"),
          table(
            "from submission to start, by site",
            waits,
            a.waits.map((r) => ({
              key: r.site,
              cells: [r.site, whole(r.count), ...[r.min_s, r.median_s, r.mean_s, r.max_s].map(duration)],
            })),
          ),
        ]
      : null,
  );
}
