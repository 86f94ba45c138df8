// How large the pool is, and how large it would have to be.

import { get } from "../base/api.js";
import { chart } from "../drawings/chart.js";
import { el } from "../base/dom.js";
import { ago, clock, counted, number, percent, subjectText, whole } from "../base/format.js";
import { bar, cards, choice, empty, heading, key, listed, note, RECENT, usualSpan } from "../base/parts.js";

const METRICS = ["pool_slots", "pool_busy", "pool_demand"];
const MOST = 10000;
const AGAIN_S = 120; // one that stays is recorded each minute: what is older is no more said of now

export const pool = {
  title: "Pool",
  every: 30000,
  metrics: () => [...METRICS, "expansion", "pool_decision"],

  begin(c) {
    const points = Object.fromEntries(METRICS.map((metric) => [metric, []]));
    c.state = { usual: 0, site: "", latest: new Map(), points, leases: [], decisions: [] };
  },

  async load(c) {
    const s = c.state;
    const now = c.now();
    const latest = await Promise.all(
      METRICS.map((metric) => get("/v1/measurements/latest", { metric }, c.signal)),
    );
    s.latest = new Map(latest.flatMap((a) => a.measurements).map((m) => [`${m.metric} ${m.subject}`, m]));
    // Who may see some sites alone does not see the whole pool, whose name is empty and comes first.
    const sites = sitesOf(s);
    const chosen = c.query.get("site") || "";
    s.site = sites.includes(chosen) ? chosen : (sites[0] ?? "");
    // An hour, or as far as somebody has looked: there is nothing to see of a time without.
    s.span = Number(c.query.get("span")) || (s.usual ||= usualSpan(now - newest(s, now)));
    const since = Math.floor(now - s.span - AGAIN_S);
    const [points, leases, decisions] = await Promise.all([
      Promise.all(
        METRICS.map((metric) =>
          get("/v1/measurements", { metric, subject: s.site, since, order: "newest", limit: MOST }, c.signal),
        ),
      ),
      get("/v1/decisions", { kind: "expansion", limit: 50 }, c.signal),
      get("/v1/decisions", { kind: "pool", limit: 20 }, c.signal),
    ]);
    METRICS.forEach((metric, n) => {
      s.points[metric] = points[n].measurements.toReversed();
    });
    s.leases = leases.decisions;
    s.decisions = decisions.decisions;
  },

  found(c, list) {
    const s = c.state;
    for (const m of list) {
      if (!METRICS.includes(m.metric)) c.reload();
      else {
        s.latest.set(`${m.metric} ${m.subject}`, m);
        if (m.subject === s.site && !s.points[m.metric].some((one) => one.id === m.id))
          s.points[m.metric].push(m);
      }
    }
  },

  view(c) {
    const s = c.state;
    const now = c.now();
    const sites = sitesOf(s);
    if (!sites.length) {
      return [
        heading("Pool"),
        empty(
          "The pool's size has not been recorded. The broker does so every 5 s where adon.yml has a section " +
            "`pool`; `adon pool enlarge` and `adon pool shrink` record leases, and " +
            "`adon pool run` what it did.",
        ),
        decided(s, now),
        leased(s, now),
      ];
    }
    const value = (metric, site) => s.latest.get(`${metric} ${site}`)?.value;
    const [slots, busy, demand] = METRICS.map((metric) => value(metric, s.site));
    const missing = Math.max(0, (demand ?? 0) - (slots ?? 0));
    const at = newest(s, 0);
    return [
      heading("Pool", s.site ? `at ${s.site}` : "all sites together"),
      el(
        "div",
        { class: "filters" },
        choice("site", "Site", sites.map((name) => [name, subjectText(name)]), s.site),
        choice("span", "Last", RECENT, s.span),
      ),
      now - at > AGAIN_S &&
        note(
          `The pool was last read ${clock(at, now)}, ${ago(at, now)}. `,
          "The broker does so where adon.yml has a section pool.",
        ),
      cards({
        slots: [whole(slots), ago(at, now)],
        busy: [whole(busy), slots ? percent(busy / slots) : ""],
        demand: [number(demand), "jobs that run or wait"],
        "slots missing": [number(missing), missing ? "for all to run at once" : "room for all"],
      }),
      plot(c, s, now),
      bySite(s, sites.filter(Boolean), value, now),
      decided(s, now),
      leased(s, now),
    ];
  },
};

/** When the pool was looked at last, or ``otherwise``. */
const newest = (s, otherwise) =>
  METRICS.reduce((at, metric) => Math.max(at, s.latest.get(`${metric} ${s.site}`)?.at ?? 0), 0) || otherwise;

const sitesOf = (s) => [...new Set([...s.latest.values()].map((m) => m.subject))].sort();

function plot(c, s, now) {
  // Of each metric the newest are asked for: all of them are known from where the shortest begins.
  const cut = METRICS.map((metric) => s.points[metric]).filter((points) => points.length >= MOST);
  const from = Math.max(now - s.span, ...cut.map((points) => points[0].at));
  const line = (metric, name, cls, area) => ({
    name,
    cls,
    area,
    to: Math.min(now, (s.points[metric].at(-1)?.at ?? now) + AGAIN_S),
    points: s.points[metric].filter((m) => m.at >= from - AGAIN_S).map((m) => [m.at, m.value]),
  });
  const lines = [
    line("pool_demand", "demand", "t2 dash1"),
    line("pool_slots", "slots", "t3"),
    line("pool_busy", "busy", "t1", true),
  ];
  return el(
    "section",
    { "data-key": "plot" },
    key([
      ["line t3", "slots"],
      ["line t1", "busy"],
      ["line t2 dash1", "demand: jobs that run or wait"],
    ]),
    from > now - s.span && note(`What was before ${clock(from, now)} is not shown: too much was recorded since.`),
    chart({
      key: "pool",
      title: "Size against demand",
      width: c.width,
      height: 240,
      unit: "1",
      step: true,
      t0: from,
      t1: now,
      now,
      series: lines,
    }) || empty("Nothing was recorded in this time."),
  );
}

function bySite(s, sites, value, now) {
  const rows = sites.map((name) => {
    const [slots, busy, demand] = METRICS.map((metric) => value(metric, name));
    const words = `${number(busy)} of ${number(slots)} slots are busy`;
    return {
      key: name,
      cells: [
        name,
        slots ? bar([[(busy ?? 0) / slots, "t1"]], words) : "–",
        whole(slots),
        whole(busy),
        number(demand),
        ago(s.latest.get(`pool_slots ${name}`)?.at, now),
      ],
    };
  });
  const columns = ["site", "busy of slots |", "slots #", "busy #", "demand #", "as of #"];
  return listed("sites", "By site", counted(sites.length, "site"), columns, rows);
}

function decided(s, now) {
  const columns = ["pool", "what =", "why =", "demand", "machines", "when #"];
  const rows = s.decisions.map((d) => ({
    key: d.id,
    cells: [d.subject, d.outcome, d.why, d.details.demand || "–", d.details.machines || "–", ago(d.at, now)],
  }));
  const title = "Machines started and removed";
  return listed("decided", title, "the newest first", columns, rows, "No machine was started or removed.");
}

function leased(s, now) {
  const columns = ["for", "what =", "why =", "when #", "until #"];
  const rows = s.leases.map((d) => ({
    key: d.id,
    cells: [d.subject, d.outcome, d.why, ago(d.at, now), clock(d.details.until, now, false)],
  }));
  return listed("leased", "Slots requested", "the newest first", columns, rows, "No slots were requested.");
}
