// The network: what is reserved on every link now, before and later, by whom, and what is measured.

import { get, maybe } from "./api.js";
import { el } from "./dom.js";
import { maintenance } from "./drains.js";
import { ago, clock, duration, percent, whole } from "./format.js";
import { holders, waiting } from "./holders.js";
import { during, holdings, hopOf, measuredRates, reserved } from "./holdings.js";
import { linkTable } from "./links.js";
import { fullnessKey, map } from "./map.js";
import { SPANS, cards, heading, key, usualSpan } from "./parts.js";
import { blocks } from "./reserved.js";

const MOST = 2000;
const SLOW_MS = 5000; // for what changes less often than load: past transits, counters
const CHARTS = 4;

export const network = {
  title: "Network",
  every: 1000,

  begin(c) {
    c.state = {
      span: 0,
      off: 0,
      picked: "",
      transits: [],
      layout: null,
      rates: new Map(),
      counters: null,
      slowAt: -1e9,
      ids: "",
    };
  },

  async load(c) {
    const s = c.state;
    const now = c.now();
    s.span ||= await spanOf(c, now);
    const [topology, health, drains] = await Promise.all([
      get("/v1/topology", { until: Math.ceil(now + s.span) }, c.signal),
      get("/v1/health", {}, c.signal),
      c.may("manage") ? maybe("/v1/drains", {}, c.signal) : null,
    ]);
    s.layout ||= await get("/v1/topology/layout", {}, c.signal);
    const ids = topology.links
      .flatMap((l) => l.load.flatMap((d) => d.transits))
      .sort()
      .join(" ");
    if (ids !== s.ids || performance.now() - s.slowAt > SLOW_MS) {
      const [transits, counters] = await Promise.all([
        get("/v1/transits", { since: Math.max(0, Math.floor(now - s.span - 86400)), limit: MOST }, c.signal),
        s.blind ? null : maybe("/v1/counters", {}, c.signal).catch(() => null),
      ]);
      s.blind ||= counters === null;
      if (counters) {
        s.rates = measuredRates(s.counters, counters.counters);
        s.counters = counters.counters;
      }
      if (ids !== s.ids && s.ids !== "") c.say("Reservations have changed");
      Object.assign(s, { transits, ids, slowAt: performance.now() });
    }
    Object.assign(s, { topology, health, drains });
    s.held = holdings(topology, s.transits, now);
  },

  view(c) {
    const s = c.state;
    const now = c.now();
    const at = now + s.off;
    s.at = at;
    const loads = s.topology.links.flatMap((link) =>
      link.load.map((load) => ({ link, load, hop: hopOf(load.from, load.to) })),
    );
    // The ledger knows best what is reserved at this very moment.
    const taken = (one) => (s.off === 0 ? one.load.reserved_bps : reserved(s.held.get(one.hop), at));
    const shares = new Map(loads.map((one) => [one.hop, taken(one) / one.link.capacity_bps]));
    const health = s.health.status === "ok" ? "" : s.health.problem || s.health.status;
    const when = s.off === 0 ? "now" : `${ago(at, now)} (${clock(at, now)})`;
    const most = [...shares.values()].reduce((a, b) => Math.max(a, b), 0);
    return [
      heading("Network", `${s.health.controller.name} controller`),
      health ? el("p", { class: "note bad-note" }, `Degraded: ${health}`) : null,
      s.health.switches
        .filter((one) => one.problem)
        .map((one) =>
          el(
            "p",
            { class: "note" },
            `${one.label}: transits that pass it: ${whole(one.transits)}` +
              (one.since ? `, away since ${clock(one.since, now)}` : ""),
          ),
        ),
      (s.topology.warnings || []).map((w) => el("p", { class: "note" }, w)),
      cards({
        "on the switches": whole(s.health.live),
        waiting: whole(s.health.queued),
        links: whole(s.topology.links.length),
        "fullest direction": percent(most),
      }),
      slider(s, at, now, when),
      el(
        "div",
        { class: "wide", tabindex: "0", role: "region", "aria-label": "Map of the network" },
        map(s.topology, s.layout, c.width, (hop) => shares.get(hop) || 0, s.picked),
      ),
      fullnessKey(),
      el(
        "p",
        { class: "soft" },
        "A pipe is as wide as its link's capacity, one for each direction, on the right of the way. Dashed: routed (layer 3). Choose one to see who holds it.",
      ),
      s.picked
        ? holders(
            c,
            loads.find((one) => one.hop === s.picked),
            at,
            now,
            when,
          )
        : null,
      waiting(s, now),
      charted(c, s, loads, at, now),
      links(s, loads, shares, taken, when),
      maintenance(c, s),
    ];
  },

  actions: {
    pick(c, from) {
      c.state.picked = c.state.picked === from.dataset.hop ? "" : from.dataset.hop;
      if (c.state.picked) c.say(`${c.state.picked.replace(">", " to ")} chosen`);
      c.redraw();
    },
    at(c, from) {
      c.state.off = Number(from.value);
      c.redraw();
    },
    now(c) {
      c.state.off = 0;
      const range = document.querySelector('[data-act="at"]');
      if (range) range.value = "0";
      c.redraw();
    },
    span(c, from) {
      Object.assign(c.state, { span: Number(from.value), off: 0, slowAt: -1e9 });
      c.reload();
    },
  },
};

/** An hour or, where the last transit is over, as far as back to it: of a time without any there is
 * nothing to see. */
async function spanOf(c, now) {
  const [last] = await get("/v1/transits", { limit: 1 }, c.signal);
  const over = last && (last.released_at || (last.lease_until && last.lease_until < now));
  return usualSpan(over ? now - last.requested_at : 0);
}

function slider(s, at, now, when) {
  return el(
    "section",
    { class: "slider", "aria-label": "Time", "data-key": "slider" },
    el(
      "div",
      { class: "row" },
      el("label", { for: "at" }, "Shown: ", el("strong", {}, when)),
      el("button", { type: "button", "data-act": "now", "aria-pressed": String(s.off === 0) }, "Now"),
      el(
        "label",
        { class: "soft" },
        "before and after ",
        el(
          "select",
          { "data-act": "span" },
          SPANS.map(([v, t]) => el("option", { value: v, selected: v === s.span }, t)),
        ),
      ),
    ),
    el("input", {
      id: "at",
      type: "range",
      "data-act": "at",
      min: -s.span,
      max: s.span,
      step: Math.max(1, s.span / 360),
      value: s.off,
      "aria-valuetext": when,
    }),
    el(
      "div",
      { class: "ends", "aria-hidden": "true" },
      el("span", {}, `− ${duration(s.span)}`),
      el("span", {}, "now"),
      el("span", {}, `+ ${duration(s.span)}`),
    ),
  );
}

/** Reservations of the time around now: of the direction that is chosen, then of the fullest. */
function charted(c, s, loads, at, now) {
  const around = (one) =>
    (s.held.get(one.hop) || []).filter((h) => h.to > now - s.span && h.from < now + s.span);
  const full = (one) => Math.max(0, ...around(one).map((h) => h.bps)) / one.link.capacity_bps;
  const first = (a, b) => (b.hop === s.picked) - (a.hop === s.picked);
  const shown = loads.filter((one) => around(one).length || one.hop === s.picked);
  shown.sort((a, b) => first(a, b) || full(b) - full(a) || (a.hop < b.hop ? -1 : 1));
  const times = { t0: now - s.span, t1: now + s.span, now, at };
  const looks = [
    ["block t1", "reserved, each block one transit"],
    ["block past t1", "has ended"],
    ["cut", "capacity"],
    ["line t0 dash2", "now"],
  ];
  return el(
    "section",
    { "data-key": "charts" },
    el("h2", {}, "Reservations over time"),
    shown.length ? key(looks) : el("p", { class: "soft" }, "Nothing was or is reserved in this time."),
    shown.slice(0, CHARTS).map((one) => blocks(one, around(one), times, c.width)),
  );
}

function links(s, loads, shares, taken, when) {
  const isNow = s.off === 0;
  const shown = {
    bps: taken,
    transits: (one) => (isNow ? one.load.transits.length : during(s.held.get(one.hop), s.at).length),
    when,
    granted: isNow,
  };
  const measured = isNow ? s.rates : new Map();
  return el(
    "section",
    { "data-key": "links" },
    el("h2", {}, "Links"),
    linkTable(loads, shares, shown, measured, s.picked),
  );
}
