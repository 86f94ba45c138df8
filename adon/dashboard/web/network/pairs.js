// Every pair of sites: what was measured between them last, and the last transfer that failed.

import { get, maybe } from "../base/api.js";
import { el } from "../base/dom.js";
import { ago, duration, percent, rate, whole } from "../base/format.js";
import { entry, link, moment, small, table } from "../base/parts.js";
import { records } from "../base/records.js";
import { sitesOf } from "./transfers.js";

const METRICS = ["rtt", "loss", "throughput", "tcp_throughput"]; // rates of transfers, else of probes
const MOST_FAILED = 1000;
const WIDEST = 12; // sites; a larger matrix is read as a list

export const pairs = records({
  changes: true,
  metrics: () => METRICS,
  found(c) {
    c.later();
    return false;
  },
  title: "Site pairs",
  word: "pair",
  order: "from",
  filters: [
    { name: "site", label: "Site", options: (c) => c.state.sites || [] },
    { name: "trouble", label: "Failures", options: [["failed", "with a failed transfer"]] },
  ],
  columns: [
    { name: "from", value: (p) => p.src },
    { name: "to", value: (p) => p.dst },
    { name: "rate", unit: "bit/s", value: (p) => p.rate?.value, cell: (p) => measured(p.rate, rate, p) },
    { name: "measured", n: true, value: (p) => p.rate?.at, cell: (p, c) => ago(p.rate?.at, c.now()) },
    { name: "round trip", unit: "s", value: (p) => p.rtt?.value, cell: (p) => measured(p.rtt, duration, p) },
    { name: "loss", unit: "1", value: (p) => p.loss?.value, cell: (p) => measured(p.loss, percent, p) },
    { name: "last failure", n: true, value: (p) => p.failed?.at, cell: (p, c) => failure(p, c) },
    { name: "why", full: true, value: (p) => p.failed?.why },
  ],
  key: (p) => `${p.src}>${p.dst}`,
  beside: (c) => c.state.some && `failures: among the last ${whole(MOST_FAILED)}`,

  async ask(c) {
    const latest = (metric) => maybe("/v1/measurements/latest", { metric }, c.signal, { measurements: [] });
    const [topology, failed, rtt, loss, ...rates] = await Promise.all([
      get("/v1/topology", {}, c.signal),
      get("/v1/transits", { failed: true, limit: MOST_FAILED }, c.signal),
      ...METRICS.map(latest),
    ]);
    c.state.sites = sitesOf(topology);
    c.state.some = failed.length === MOST_FAILED;
    const by = (answer) => new Map(answer.measurements.map((m) => [m.subject, m]));
    const [delays, losses, ...speeds] = [rtt, loss, ...rates].map(by);
    const failures = new Map(failed.map((t) => [`${t.src}>${t.dst}`, t])); // the newest is last
    c.state.pairs = c.state.sites.flatMap((src) =>
      c.state.sites
        .filter((dst) => dst !== src)
        .map((dst) => {
          const name = `${src}>${dst}`;
          const t = failures.get(name);
          const why = t && (t.outcome && t.outcome !== "success" ? t.outcome : t.reason || t.state);
          return {
            src,
            dst,
            rate: speeds.map((known) => known.get(name)).find(Boolean),
            rtt: delays.get(name),
            loss: losses.get(name),
            failed: t && { at: t.released_at || t.requested_at, why, id: t.id },
          };
        }),
    );
    return c.state.pairs;
  },
  pick: (p, { site, trouble }) => (!site || [p.src, p.dst].includes(site)) && (!trouble || p.failed),

  above(c) {
    const { sites = [], pairs: all } = c.state;
    if (sites.length < 2 || sites.length > WIDEST) return null;
    const of = new Map(all.map((p) => [`${p.src}>${p.dst}`, p]));
    const cell = (src, dst) => {
      const p = of.get(`${src}>${dst}`);
      if (!p) return "–";
      return [
        measured(p.rate, rate, p),
        p.loss && small(`loss ${percent(p.loss.value)}`),
        p.failed ? el("small", { class: "bad" }, "✗ ", failure(p, c)) : null,
      ];
    };
    return table(
      "rate, loss and last failure; rows send, columns receive",
      [{ name: "from" }, ...sites.map((name) => ({ name, n: true }))],
      sites.map((src) => ({ key: src, cells: [src, ...sites.map((dst) => cell(src, dst))] })),
    );
  },
});

const measured = (m, words, p) =>
  m ? link(`#/measurements?${new URLSearchParams({ metric: m.metric, subject: `${p.src}>${p.dst}` })}`, words(m.value)) : "–";

const failure = (p, c) => (p.failed ? entry("transfers", p.failed.id, moment(p.failed.at, c.now())) : "–");
