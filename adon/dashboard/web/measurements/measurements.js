// Measurements over time, with what is unusual in them.

import { get, maybe } from "../base/api.js";
import { el } from "../base/dom.js";
import { KINDS, addressOf, fromFeed, labelled, unusual, withEnds } from "./anomalies.js";
import { counted, subjectText, words } from "../base/format.js";
import { check, choice, empty, heading, reaching, spans } from "../base/parts.js";
import { plotted, tiles } from "./series.js";

const SPANS = spans(3600, 2592000);
const MOST = 10000;
const SOME = 60;
const UNUSUAL = 100; // anomalies of a page
const HOURLY_S = 604800;
// Those that say something as a line over time; what belongs to one job or workflow has pages of its own.
const FIRST = [
  "throughput", "path_throughput", "tcp_throughput", "udp_throughput", "rtt", "one_way_delay", "jitter", "loss", "hops",
  "runtime", "compute_rate", "queue_wait", "transfer_setup", "forecast", "belief_error", "cpu_use", "memory_use",
  "io_wait", "disk_io",
];
const ELSEWHERE = new Set([
  "status", "workflow", "job", "job_transfer", "placement", "anomaly", "notice", "expansion", "pool_decision",
  "pool_slots", "pool_busy", "pool_demand",
]);

export const measurements = {
  title: "Measurements",
  every: 30000, // what no feed tells: estimates
  metrics: (c) => [c.state.metric, "anomaly"].filter(Boolean),

  begin(c) {
    c.state = {
      series: [],
      metric: "",
      subject: null,
      span: 0,
      points: [],
      older: [],
      latest: [],
      anomalies: [],
      pages: 1,
      estimate: null,
      limits: [],
      dots: true,
    };
    chosen(c);
  },

  /** Another metric, subject or span, on the same page. */
  same(c) {
    const before = c.state.metric;
    chosen(c);
    if (c.state.metric !== before) c.follow(true);
    else c.reload();
  },

  async load(c) {
    const s = c.state;
    const { series } = await get("/v1/measurements/series", {}, c.signal);
    s.series = series.filter((one) => !ELSEWHERE.has(one.metric));
    const names = s.series.map((one) => one.metric);
    // What somebody asked for and nobody has measured is said, and nothing else shown in its place.
    if (!s.metric) {
      const first = [...FIRST, ...names].find((name) => names.includes(name)) || "";
      if (first && first !== s.metric) {
        s.metric = first;
        c.follow();
      }
    }
    const now = c.now();
    const [latest, recent] = await Promise.all([
      s.metric ? get("/v1/measurements/latest", { metric: s.metric }, c.signal) : { measurements: [] },
      recentAnomalies(c, now),
    ]);
    s.latest = latest.measurements.toSorted((a, b) => b.at - a.at);
    s.subject ??= s.latest[0]?.subject ?? null;
    if (!s.latest.some((m) => m.subject === s.subject)) {
      told(c, recent);
      Object.assign(s, { points: [], older: [], estimate: null, limits: [], span: s.span || SPANS[0][0] });
      return;
    }
    s.span ||= await spanOf(c, now);
    const wanted = { metric: s.metric, subject: s.subject };
    const since = Math.floor(now - s.span);
    const [found, estimate, limits, own] = await Promise.all([
      get("/v1/measurements", { ...wanted, since, order: "newest", limit: MOST }, c.signal),
      maybe("/v1/estimates", wanted, c.signal),
      maybe("/v1/anomalies/limits", wanted, c.signal),
      maybe("/v1/anomalies", { ...wanted, since, limit: 1000 }, c.signal, { anomalies: [] }),
    ]);
    told(c, withEnds([...recent, ...own.anomalies]));
    s.limits = limits?.limits || [];
    s.points = found.measurements.toReversed();
    // There may be more though none is listed: where one may not see those that were looked at.
    const until = (found.next && s.points[0]?.at) ?? now;
    s.older = await unlisted(c, since, until);
    s.estimate = estimate;
  },

  found(c, list) {
    const s = c.state;
    for (const m of list) {
      if (m.metric === "anomaly") {
        told(c, withEnds([fromFeed(m), ...s.anomalies]));
        continue;
      }
      if (m.metric !== s.metric) continue;
      const at = s.latest.findIndex((one) => one.subject === m.subject);
      if (at < 0) s.latest.push(m);
      else if (m.at >= s.latest[at].at) s.latest[at] = m;
      if (m.subject === s.subject && !s.points.some((one) => one.id === m.id)) {
        s.points.push(m);
        s.points.sort((a, b) => a.at - b.at);
      }
    }
  },

  view(c) {
    const s = c.state;
    const now = c.now();
    if (!s.series.length) {
      return [
        heading("Measurements"),
        empty(
          "Nothing has been measured yet. What fills the archive: transfers that end, jobs of workflows that " +
            "are followed (`adon monitor run`), agents (`adon agent run`, `adon measure run`), perfSONAR's " +
            "results, and `POST /v1/measurements`.",
        ),
        unusual(s.anomalies, now, s.more),
      ];
    }
    const names = [...new Set([...s.series.map((one) => one.metric), s.metric])];
    const subjects = [...new Set(s.latest.map((m) => m.subject).concat(s.subject ?? []))]
      .map((name) => [name, labelled(name)])
      .sort((a, b) => (a[1] < b[1] ? -1 : 1));
    return [
      heading("Measurements", counted(s.latest.length, "subject")),
      el(
        "div",
        { class: "filters" },
        choice("metric", "Metric", names.map((n) => [n, words(n)]), s.metric, "metric"),
        choice("subject", "Of", subjects, s.subject ?? "", "subject"),
        choice("span", "Last", SPANS, s.span),
        check("dots", "each measurement as a dot", s.dots, "dots"),
      ),
      plotted(c, s, now),
      tiles(s, now),
      unusual(
        s.anomalies.filter((a) => !(a.metric === s.metric && a.subject === s.subject)),
        now,
        s.more,
      ),
    ];
  },

  actions: {
    metric: (c, from) => go(from.value, null),
    subject: (c, from) => go(c.state.metric, from.value),
    more(c) {
      c.state.pages += 1;
      c.reload();
    },
    dots(c, from) {
      c.state.dots = from.checked;
      c.redraw();
    },
  },
};

const go = (metric, subject) => {
  location.hash = addressOf(metric, subject);
};

/** How far to look back so that a few dozen measurements are seen, where nobody has said. */
async function spanOf(c, now) {
  const { metric, subject } = c.state;
  const some = await get("/v1/measurements", { metric, subject, order: "newest", limit: SOME }, c.signal);
  const age = now - (some.measurements.at(-1)?.at ?? now);
  return reaching(SPANS, age);
}

/** Of hours or days with more measurements than are listed one by one (of some only roll-ups are
 * left, or they are too many): their median, and how many more there were. */
async function unlisted(c, since, until) {
  const { metric, subject, span, points } = c.state;
  const by = span > HOURLY_S ? "day" : "hour"; // days are kept the longest
  const asked = { metric, subject, by, since, until };
  // Who may see what belongs to own workflows may not be shown the whole.
  const { rollups } = await maybe("/v1/measurements/rollups", asked, c.signal, { rollups: [] });
  const listed = new Map();
  const start = (m) => Math.floor(m.at / (by === "day" ? 86400 : 3600));
  for (const m of points) if (m.at < until) listed.set(start(m), (listed.get(start(m)) || 0) + 1);
  return rollups
    .filter((r) => r.start >= since) // of the first one a part is not asked for
    .map((r) => {
      const count = r.count - (listed.get(start({ at: r.start })) || 0);
      return { at: (r.start + Math.min(r.start + r.width_s, until)) / 2, value: r.median, count, by };
    })
    .filter((one) => one.count > 0);
}

/** The anomalies of the last 30 days, as many pages as were asked for. */
async function recentAnomalies(c, now) {
  const s = c.state;
  const since = Math.floor(now - 2592000);
  const list = [];
  for (let page = 1; page <= s.pages && list.length === (page - 1) * UNUSUAL; page += 1) {
    const last = list.at(-1);
    const asked = { since, limit: UNUSUAL, cursor: last ? `${last.since}:${last.id}` : null };
    list.push(...(await maybe("/v1/anomalies", asked, c.signal, { anomalies: [] })).anomalies);
  }
  s.more = list.length === UNUSUAL * s.pages;
  return withEnds(list);
}

/** Take what is known of anomalies now, and say what is new: later than all that was known. */
function told(c, list) {
  const word = (a) => `${a.metric} ${a.subject} ${Math.floor(a.since)} ${a.until}`;
  const before = new Set(c.state.anomalies.map(word));
  const at = (a) => a.until ?? a.noticed;
  const newest = Math.max(0, ...c.state.anomalies.map(at));
  const news = list.find((a) => !before.has(word(a)) && at(a) > newest);
  if (c.loaded && news)
    c.say(
      `${KINDS[news.kind] || "anomaly"} of ${words(news.metric)} ${subjectText(news.subject)}${news.until ? " is over" : ""}`,
    );
  c.state.anomalies = list;
}

function chosen(c) {
  const [metric, subject] = [c.query.get("metric"), c.query.get("subject")];
  if (metric && metric !== c.state.metric)
    Object.assign(c.state, { metric, subject: null, points: [], estimate: null });
  if (subject !== null) c.state.subject = subject;
  c.state.span = Number(c.query.get("span")) || c.state.span;
}
