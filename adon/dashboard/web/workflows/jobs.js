// What a workflow moved between sites, and its jobs one by one.

import { el } from "../base/dom.js";
import { bytes, clock, counted, duration, percent, rate, shortName, whole } from "../base/format.js";
import { choice, empty, fold, section, small, state, table } from "../base/parts.js";

const ROWS = 200;
const OUTCOMES = [["", "all"], ...["done", "failed", "removed"].map((name) => [name, name])];

/** By pair of sites, and one by one to unfold. */
export function transfers({ analysis, transfers: list }, now) {
  const pairs = analysis?.transfers || [];
  if (!pairs.length && !list.length) return null;
  const columns = ["between", "transfers #", "moved #", "goodput #", "median #", "retries #", "failed #", "path ="];
  const single = ["job", "between |", "ended #", "moved #", "time #", "goodput #", "retries #", "path ="];
  const way = (p) => (p?.length ? p.join(" → ") : "best effort");
  return section("transfers", "Transfers",
    table(
      "by pair of sites",
      columns,
      pairs.map((t) => ({
        key: `${t.src}>${t.dst}:${t.tool}`,
        cells: [
          [`${t.src} → ${t.dst}`, small(t.tool)],
          whole(t.count),
          bytes(t.bytes),
          rate(t.goodput_bps),
          rate(t.median_bps),
          whole(t.retries),
          whole(t.failed),
          el(
            "ul",
            { class: "plain" },
            (t.paths || []).map((p) => el("li", {}, `${p.count} × ${way(p.path)}`)),
            t.best_effort > 0 && el("li", {}, `${t.best_effort} × best effort`),
          ),
        ],
      })),
    ),
    list.length
      ? fold(
          "transfers",
          `Each transfer (${list.length})`,
          table(
            "the newest first",
            single,
            list.map((t, n) => ({
              key: `${t.job}:${t.src}>${t.dst}:${t.ended_at}:${n}`,
              cells: [
                t.job,
                `${t.src} → ${t.dst}`,
                clock(t.ended_at, now),
                bytes(t.bytes),
                duration(t.seconds),
                rate(t.goodput_bps),
                whole(t.retries),
                way(t.path),
              ],
            })),
            { titled: true },
          ),
        )
      : null,
  );
}

/** The attempts that ended last, each with why it ran where it did. */
export function jobs(c, now) {
  const list = c.state.jobs.slice(0, ROWS);
  const columns = ["job", "outcome |", "site |", "ended #", "ran #", "waited #", "cpu #", "why there ="];
  return section("jobs", "Jobs that ended",
    el(
      "div",
      { class: "filters" },
      choice("outcome", "Outcome", OUTCOMES, c.query.get("outcome") || ""),
    ),
    list.length
      ? table(
          list.length < c.state.ended
            ? `the last ${list.length} of ${counted(c.state.ended, "attempt")}`
            : counted(list.length, "attempt"),
          columns,
          list.map((j) => ({
            key: `${j.workflow}:${j.job}:${j.attempt}`,
            cells: [
              [j.job, small(shortName(j.transformation || ""), j.attempt > 0 && `, attempt ${j.attempt + 1}`)],
              [state(j.outcome), j.exitcode ? small(`exit code ${j.exitcode}`) : null],
              [j.site, j.host && small(j.host)],
              clock(j.ended_at, now),
              duration(j.seconds),
              duration(j.queued_s),
              Number.isFinite(j.cpu_s)
                ? [duration(j.cpu_s), j.seconds > 0 && small(percent(j.cpu_s / j.seconds))]
                : "–",
              j.placement
                ? [j.placement.reason, j.placement.seconds > 0 && small(`expected ${duration(j.placement.seconds)}`)]
                : "–",
            ],
          })),
        )
      : empty("None."),
  );
}
