// What is unusual in measurements, and what they are judged by.

import { el } from "../base/dom.js";
import { ago, clock, duration, number, percent, quantity, shortName, subjectText, whole, words } from "../base/format.js";
import { button, facts, fold, section, soft, why } from "../base/parts.js";

export const KINDS = { level: "change of level", dip: "dip", outage: "outage" };
const UNITS = {
  throughput: "bit/s",
  path_throughput: "bit/s",
  tcp_throughput: "bit/s",
  udp_throughput: "bit/s",
  rtt: "s",
  one_way_delay: "s",
  jitter: "s",
  runtime: "s",
  queue_wait: "s",
  compute_rate: "byte/s",
};

/** Where the measurements of a subject are plotted. */
export const addressOf = (metric, subject) =>
  `#/measurements?${new URLSearchParams({ metric, ...(subject !== null && { subject }) })}`;

/** A subject as people read it: a transformation without namespace and version. */
export const labelled = (subject) =>
  subjectText(subject.includes("::") ? subject.replace(/^[^@]*/, shortName) : subject);

/** An anomaly as the feed tells it, in the shape of the route. */
export const fromFeed = (m) => ({
  id: m.id,
  subject: m.subject,
  metric: "",
  why: "",
  since: m.at,
  until: null,
  change: m.value,
  ...m.details,
});

/** One entry for each, the latest first, by when they began; one with an end replaces one without. */
export function withEnds(list) {
  const found = new Map();
  for (const a of list) {
    const name = `${a.metric} ${a.subject} ${Math.floor(a.since)}`;
    if (!found.has(name) || (a.until && !found.get(name).until)) found.set(name, a);
  }
  return [...found.values()].sort((a, b) => b.since - a.since);
}

const shown = (value, unit, metric) =>
  value === null || value === undefined ? "nothing" : quantity(value, unit, metric);

/** An anomaly in words; `letter` marks it on the plot. */
export function item(a, unit, now, letter = "") {
  const share = Number.isFinite(a.change)
    ? ` (${a.change > 0 ? "+" : "−"}${percent(Math.abs(a.change))})`
    : "";
  const until = a.until
    ? `until ${clock(a.until, now)}`
    : a.kind === "level"
      ? ago(a.since, now)
      : "and it lasts";
  return el(
    "article",
    { class: "item", "data-key": `anomaly:${a.id}` },
    el(
      "div",
      { class: "head" },
      el("strong", { class: "bad" }, `▲ ${letter ? `${letter}: ` : ""}${KINDS[a.kind] || a.kind || "anomaly"}`),
      el("a", { href: addressOf(a.metric, a.subject) }, `${words(a.metric)} ${labelled(a.subject)}`),
      el("span", {}, `${shown(a.before, unit, a.metric)} → ${shown(a.after, unit, a.metric)}${share}`),
      el("span", { class: "soft" }, `since ${clock(a.since, now)}, ${until}`),
    ),
    a.why &&
      why(a.why, a.confidence !== undefined && el("span", { class: "soft" }, ` (confidence ${percent(a.confidence)})`)),
  );
}

/** Those of other series than the one that is plotted; `more`: whether older ones can be shown. */
export function unusual(list, now, more) {
  return section("unusual", "Other anomalies of the last 30 days",
    list.length
      ? list.map((a) => item(a, UNITS[a.metric] || "1", now))
      : soft("None."),
    more && el("p", {}, button("more", "Older ones")),
  );
}

/** What the series is judged by just now: how sensitive detection is, and why. */
export function limitsOf(limits, metric, unit, now) {
  if (!limits.length) return null;
  const q = (value) => quantity(value, unit, metric);
  return fold(
    "limits",
    "What would be an anomaly now",
    limits.map((l) =>
      facts({
        "measured by": l.source,
        expected: l.ready ? q(l.expected) : "",
        "an anomaly":
          l.ready &&
          `a median of ${whole(l.samples)} measurements below ${q(l.lower)} or above ${q(l.upper)}`,
        because:
          l.ready &&
          `a change counts from ${percent(l.threshold)} on: at least ${percent(l.min_change)}, and ${number(l.noise_factor)} times the noise of such a median (one measurement varies by ${percent(l.noise)})`,
        "daily cycle": !l.ready
          ? ""
          : l.cycle
            ? `${percent(l.cycle)} from its lowest to its highest`
            : "none is known",
        "learnt from": `${whole(l.measured)} measurements in ${duration(l.learnt_s)}${l.ready ? "" : "; not enough yet to say anything but outages"}`,
        "an outage": l.period_s ? `when measurements, usually ${duration(l.period_s)} apart, stay away` : "",
        at: clock(l.at, now),
      }),
    ),
  );
}
