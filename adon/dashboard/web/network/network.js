// The network: what is reserved on every link now, before and later, by whom, and what is measured.

import { get, maybe } from "../base/api.js";
import { el } from "../base/dom.js";
import { maintenance } from "./drains.js";
import { ago, clock, counted, duration, percent, rate, whole } from "../base/format.js";
import {
  blocked, during, endedSince, holdings, hopOf, measuredRates, peak, pieces, reserved,
} from "../drawings/holdings.js";
import { linkTable } from "../drawings/links.js";
import { fullnessKey, map } from "../drawings/map.js";
import {
  button, cards, entry, heading, key, listed, note, RECENT, scrolled, section, select, soft, TYPED_MS, usualSpan,
  workflowLink,
} from "../base/parts.js";
import { blocks } from "../drawings/reserved.js";

const WAITING = 200;
const AGAIN_S = 60; // without any change, so that the time to come is known far enough
const CHARTS = 4;
const ZOOMS = [1, 1.5, 2, 3, 4];

export const network = {
  title: "Network",
  changes: true,
  every: 5000,

  begin(c) {
    c.state = { usual: 0, layout: null, rates: new Map(), counters: null, ids: "", pastAt: 0 };
    c.state.off = offOf(c);
  },
  same(c) {
    Object.assign(c.state, { off: offOf(c), pastAt: 0 });
    c.reload();
  },

  async load(c) {
    const s = c.state;
    const now = c.now();
    s.span = Number(c.query.get("span")) || (s.usual ||= await spanOf(c, now));
    s.off = Math.max(-s.span, Math.min(s.span, s.off));
    const [topology, past, queued, drains] = await Promise.all([
      get("/v1/topology", { until: Math.ceil(now + s.span + AGAIN_S) }, c.signal),
      now - s.pastAt > AGAIN_S ? get("/v1/topology/past", { since: Math.floor(now - s.span) }, c.signal) : null,
      get("/v1/transits", { state: "queued", limit: WAITING }, c.signal),
      c.may("manage") ? maybe("/v1/drains", {}, c.signal) : null,
      network.poll(c, true),
    ]);
    s.layout ||= await get("/v1/topology/layout", {}, c.signal);
    const ids = topology.links
      .flatMap((l) => l.load.flatMap((d) => d.transits))
      .sort()
      .join(" ");
    if (ids !== s.ids && s.ids !== "") c.say("Reservations have changed");
    Object.assign(s, { topology, queued, drains, ids, loadedAt: now });
    // To look back takes the broker long: what ends meanwhile is seen from here.
    if (past) Object.assign(s, { past: past.held, since: past.since, pastAt: now, ended: [] });
    else s.ended.push(...endedSince(s.held, holdings(topology, s.past, []), now));
    s.held = holdings(topology, s.past, s.ended);
  },

  /** What no feed tells: how switches and links are, and what they count. */
  async poll(c, alone = false) {
    const s = c.state;
    if (!alone && c.now() - s.loadedAt > AGAIN_S) return network.load(c);
    const [health, counters] = await Promise.all([
      get("/v1/health", {}, c.signal),
      s.blind ? null : maybe("/v1/counters", {}, c.signal).catch(() => null),
    ]);
    s.blind ||= counters === null;
    if (counters) {
      if (s.counters !== counters.counters) s.rates = measuredRates(s.counters, counters.counters);
      s.counters = counters.counters;
    }
    s.health = health;
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
    const picked = c.query.get("link") || "";
    const zoom = zoomOf(c);
    return [
      heading("Network", `${s.health.controller.name} controller`),
      health ? el("p", { class: "note bad-note" }, `Degraded: ${health}`) : null,
      s.health.switches
        .filter((one) => one.problem)
        .map(({ label, transits, since }) =>
          note(`${label}: transits that pass it: ${whole(transits)}`, since ? `, away since ${clock(since, now)}` : ""),
        ),
      (s.topology.warnings || []).map((words) => note(words)),
      cards({
        "on the switches": whole(s.health.live),
        waiting: whole(s.health.queued),
        links: whole(s.topology.links.length),
        "fullest direction": percent(most),
      }),
      slider(s, at, now, when),
      earliest(s, now) < s.span &&
        note(`What was reserved before ${clock(s.since, now)} is not shown: there were too many transfers since.`),
      scrolled(
        "Map of the network",
        map(s.topology, s.layout, c.width, (hop) => shares.get(hop) || 0, picked, zoom),
        "map",
        "map",
      ),
      el(
        "div",
        { class: "row" },
        fullnessKey(),
        zoom > 1 && zoomButton("−", "Smaller map", -1),
        zoom < ZOOMS.at(-1) && zoomButton("+", "Larger map", 1),
      ),
      soft(
        "A pipe is as wide as its link's capacity, one for each direction, on the right of the way. ",
        "Dashed: routed (layer 3). Choose one to see who holds it.",
      ),
      holders(c, loads.find((one) => one.hop === picked), at, now, when),
      waiting(s, now),
      charted(c, loads, picked, at, now),
      links(s, loads, shares, taken, when, picked),
      maintenance(c, s),
    ];
  },

  actions: {
    pick(c, from) {
      const { hop } = from.dataset;
      const picked = c.query.get("link") === hop ? "" : hop;
      c.choose({ link: picked });
      if (picked) c.say(`${picked.replace(">", " to ")} chosen`);
      c.redraw();
    },
    zoom(c, from) {
      const seen = document.querySelector(".map");
      const middle = [
        (seen.scrollLeft + seen.clientWidth / 2) / seen.scrollWidth,
        (seen.scrollTop + seen.clientHeight / 2) / seen.scrollHeight,
      ];
      const zoom = ZOOMS[ZOOMS.indexOf(zoomOf(c)) + Number(from.dataset.by)];
      c.choose({ zoom: zoom > 1 ? zoom : "" });
      c.redraw();
      seen.scrollLeft = middle[0] * seen.scrollWidth - seen.clientWidth / 2;
      seen.scrollTop = middle[1] * seen.scrollHeight - seen.clientHeight / 2;
      c.say(`The map is ${zoom} times as large as the page`);
    },
    at: (c, from) => looked(c, Number(from.value)),
    now(c) {
      const range = document.querySelector('[data-act="at"]');
      if (range) range.value = "0";
      looked(c, 0);
    },
  },
};

/** How far from now what is shown is, seconds. */
function offOf(c) {
  const at = Number(c.query.get("at"));
  return at ? at - c.now() : 0;
}

/** Show the network so many seconds from now. */
function looked(c, off) {
  const s = c.state;
  s.off = off;
  clearTimeout(s.moving); // browsers refuse many addresses in a short time
  s.moving = setTimeout(() => c.signal.aborted || c.choose({ at: s.off ? Math.round(c.now() + s.off) : "" }), TYPED_MS);
  c.redraw();
}

/** An hour or, where the last transit is over, as far as back to it: of a time without any there is
 * nothing to see. */
async function spanOf(c, now) {
  const [last] = await get("/v1/transits", { limit: 1 }, c.signal);
  const over = last && (last.released_at || (last.lease_until && last.lease_until < now));
  return usualSpan(over ? now - last.requested_at : 0);
}

const zoomOf = (c) => ZOOMS.find((zoom) => String(zoom) === c.query.get("zoom")) || 1;

const zoomButton = (sign, words, by) =>
  button("zoom", sign, { "data-by": by, "data-key": `zoom${by}`, "aria-label": `${sign} ${words}` });

/** How far back everything is known, in seconds. */
const earliest = (s, now) =>
  s.since > s.pastAt - s.span + 1 ? Math.max(60, Math.min(s.span, Math.round(now - s.since))) : s.span;

function slider(s, at, now, when) {
  const step = Math.max(1, s.span / 360);
  return el(
    "section",
    { class: "slider", "aria-label": "Time", "data-key": "slider" },
    el(
      "div",
      { class: "row" },
      el("label", { for: "at" }, "Shown: ", el("strong", {}, when)),
      button("now", "Now", { "aria-pressed": String(s.off === 0) }),
      el("label", { class: "soft" }, "before and after ", select("span", RECENT, s.span)),
    ),
    el("input", {
      id: "at",
      type: "range",
      "data-act": "at",
      min: -step * Math.max(1, Math.floor(earliest(s, now) / step)),
      max: s.span,
      step,
      value: s.off,
      "aria-valuetext": when,
    }),
    el(
      "div",
      { class: "ends", "aria-hidden": "true" },
      el("span", {}, `− ${duration(earliest(s, now))}`),
      el("span", {}, "now"),
      el("span", {}, `+ ${duration(s.span)}`),
    ),
  );
}

/** Reservations of the time around now: of the direction that is chosen, then of the fullest. */
function charted(c, loads, picked, at, now) {
  const s = c.state;
  const around = (one) =>
    (s.held.get(one.hop) || []).filter((h) => h.to > now - s.span && h.from < now + s.span);
  const most = (one) => peak(pieces(around(one), now - s.span, now + s.span)) / one.link.capacity_bps;
  const full = new Map(loads.map((one) => [one.hop, most(one)]));
  const first = (a, b) => (b.hop === picked) - (a.hop === picked);
  const shown = loads.filter(({ hop }) => full.get(hop) || hop === picked);
  shown.sort((a, b) => first(a, b) || full.get(b.hop) - full.get(a.hop) || (a.hop < b.hop ? -1 : 1));
  const times = { t0: now - earliest(s, now), t1: now + s.span, now, at };
  const looks = [
    ["block t1", "reserved, each block one transit"],
    ["block past t1", "has ended"],
    ["cut", "capacity"],
    ["line t0 dash2", "now"],
  ];
  return section("charts", "Reservations over time",
    shown.length ? key(looks) : soft("Nothing was or is reserved in this time."),
    shown.slice(0, CHARTS).map((one) => blocks(one, around(one), times, c.width)),
  );
}

function links(s, loads, shares, taken, when, picked) {
  const isNow = s.off === 0;
  const shown = {
    bps: taken,
    transits: (one) => (isNow ? one.load.transits.length : during(s.held.get(one.hop), s.at).length),
    when,
    granted: isNow,
  };
  const measured = isNow ? s.rates : new Map();
  return section("links", "Links", linkTable(loads, shares, shown, measured, picked));
}

/** Who holds a direction at an instant. */
function holders(c, one, at, now, when) {
  if (!one) return null;
  const list = during(c.state.held.get(one.hop), at);
  const rows = list.map((h) => ({
    key: h.id,
    cells: [
      h.id ? entry("transfers", h.id) : "another’s",
      h.src ? `${h.src} → ${h.dst}` : "–",
      rate(h.bps),
      clock(h.from, now),
      h.to > 1e17 ? "open" : clock(h.to, now),
      [[h.user, h.job].filter(Boolean).join(", "), h.workflow && [" ", workflowLink(h.workflow, "workflow")]],
    ],
  }));
  const title = `Who holds ${one.load.from} → ${one.load.to}, ${when}`;
  const columns = ["transit", "between |", "reserved #", "from # |", "until # |", "for ="];
  return listed("holders", title, counted(list.length, "transit"), columns, rows, "Nobody.", {});
}

/** Requests that have no path yet: what they want, what is in their way, and when they could start. */
function waiting(s, now) {
  const rows = s.queued.map((t) => ({
    key: t.id,
    cells: [
      entry("transfers", t.id),
      `${t.src} → ${t.dst}`,
      rate(t.requested_bps),
      ago(t.requested_at, now),
      t.earliest ? clock(t.earliest, now) : "–",
      blocked(t) || t.reason || "–",
    ],
  }));
  const columns = ["transit", "between |", "wants #", "asked #", "could start #", "no room on ="];
  return listed("waiting", "Who waits now", counted(rows.length, "request"), columns, rows, "", {});
}
