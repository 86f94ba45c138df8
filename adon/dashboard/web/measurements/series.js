// One series over time with its anomalies, and the last value of every subject.

import { KINDS, addressOf, item, labelled, limitsOf } from "./anomalies.js";
import { chart } from "../drawings/chart.js";
import { el } from "../base/dom.js";
import { ago, counted, duration, number, quantity, whole, words } from "../base/format.js";
import { cards, empty, key, section, soft } from "../base/parts.js";

const TILES = 60;

/** The series that is chosen: the newest figures, the plot, its anomalies, what they are judged by. */
export function plotted(c, s, now) {
  if (!s.latest.some((m) => m.subject === s.subject)) {
    const what = s.subject === null ? "" : ` of ${labelled(s.subject)}`;
    return empty(`No ${words(s.metric)}${what} has been measured yet, or you may not see it.`);
  }
  const unit = s.latest.find((m) => m.subject === s.subject)?.unit || "";
  const from = now - s.span;
  const points = s.points.filter((m) => m.at >= from).map((m) => [m.at, m.value]);
  const older = s.older.filter((m) => m.at >= from).map((m) => [m.at, m.value]);
  const many = s.older.reduce((sum, m) => sum + m.count, points.length);
  const medians = `median of each ${s.older[0]?.by}`;
  const own = s.anomalies.filter(
    (a) => a.metric === s.metric && a.subject === s.subject && (a.until || now) >= from,
  );
  const lettered = own.map((a, n) => [a, own.length <= 26 ? String.fromCharCode(64 + own.length - n) : ""]);
  const title = `${words(s.metric)} ${labelled(s.subject)}`;
  const e = s.estimate;
  const looks = [["line t1", "measured"]];
  if (older.length) looks.push(["line t1 dash1", `${medians}: what is older, or too much to show one by one`]);
  if (own.length) looks.push(["mark", "an anomaly begins; its letter is in the list"], ["band", "while it lasted"]);
  return section("plot", title,
    cards({
      last: [
        quantity(points.at(-1)?.[1], unit, s.metric),
        points.length ? ago(points.at(-1)[0], now) : "nothing in this time",
      ],
      ...(e?.count && {
        estimate: [
          quantity(e.value, unit, s.metric),
          `± ${quantity(e.spread, unit, s.metric)}, from ${counted(e.count, "measurement")}, the newest ${ago(e.at, now)}`,
        ],
      }),
      measured: [whole(many), `in ${duration(s.span)}`],
      anomalies: whole(own.length),
    }),
    points.length || older.length
      ? chart({
          key: "one",
          title: `${title}, last ${duration(s.span)}`,
          width: c.width,
          height: 260,
          unit,
          metric: s.metric,
          t0: from,
          t1: now,
          now,
          series: [
            { name: "measured", cls: "t1", points, dots: s.dots, area: points.length > 1 },
            { name: medians, cls: "t1 dash1", points: older },
          ],
          bands: own
            .filter((a) => a.kind !== "level")
            .map((a) => ({ from: a.since, to: a.until || now, words: a.why })),
          marks: lettered.map(([a, letter]) => ({
            at: a.since,
            value: a.after ?? a.before,
            letter,
            words: `${KINDS[a.kind] || a.kind}: ${a.why}`,
          })),
        })
      : empty(`Nothing was measured in the last ${duration(s.span)}.`),
    looks.length > 1 && key(looks),
    lettered.map(([a, letter]) => item(a, unit, now, letter)),
    limitsOf(s.limits, s.metric, unit, now),
  );
}

/** The newest value of each subject, as links to its plot. */
export function tiles(s, now) {
  if (s.latest.length < 2) return null;
  return section("tiles", `Last ${words(s.metric)} of each`,
    el(
      "ul",
      { class: "tiles" },
      s.latest.slice(0, TILES).map((m) =>
        el(
          "li",
          { "data-key": m.subject },
          el(
            "a",
            {
              href: addressOf(s.metric, m.subject),
              "aria-current": m.subject === s.subject ? "true" : null,
            },
            el("strong", {}, labelled(m.subject)),
            el("span", { class: "value" }, quantity(m.value, m.unit, s.metric)),
            el("span", { class: "soft" }, ` ${ago(m.at, now)}, ${m.source}`),
          ),
        ),
      ),
    ),
    s.latest.length > TILES && soft(`and ${number(s.latest.length - TILES)} more, in the list above`),
  );
}
