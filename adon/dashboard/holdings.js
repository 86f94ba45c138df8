// Who holds how much of which direction of a link, and when: from what the broker keeps of the time
// to come, and from the transits of the time that is past, which nobody keeps a ledger of.

import { rate } from "./format.js";

export const hopOf = (from, to) => `${from}>${to}`;

/** All holdings by direction: {id, bps, from, to, src, dst, job, user, past}. `topology` was asked
 * with `until`; of `transits` those that held something before now count. */
export function holdings(topology, transits, now) {
  const found = new Map();
  const told = new Map(transits.map((t) => [t.id, t]));
  const put = (hop, one) => {
    if (!found.has(hop)) found.set(hop, []);
    found.get(hop).push(one);
  };
  const ahead = new Set();
  for (const link of topology.links) {
    for (const load of link.load) {
      const hop = hopOf(load.from, load.to);
      for (const h of load.holders || []) {
        const t = told.get(h.id);
        const since = t && t.installed_at ? Math.min(h.start, t.installed_at) : h.start;
        put(hop, { id: h.id, bps: h.reserved_bps, from: since, to: h.end, ...about(t), past: false });
        ahead.add(`${hop} ${h.id}`);
      }
    }
  }
  for (const t of transits) {
    if (!t.installed_at) continue;
    const to = t.released_at || (t.lease_until < now ? t.lease_until : now);
    for (const part of t.parts?.length ? t.parts : [{ path: t.path, min_bps: t.requested_bps }]) {
      for (let n = 0; n + 1 < part.path.length; n += 1) {
        const hop = hopOf(part.path[n], part.path[n + 1]);
        if (!ahead.has(`${hop} ${t.id}`)) {
          put(hop, {
            id: t.id,
            bps: part.min_bps ?? t.requested_bps,
            from: t.installed_at,
            to,
            ...about(t),
            past: true,
          });
        }
      }
    }
  }
  for (const list of found.values()) list.sort((a, b) => a.from - b.from || (a.id < b.id ? -1 : 1));
  return found;
}

const about = (t) => (t ? { src: t.src, dst: t.dst, job: t.job, user: t.user, workflow: t.workflow } : {});

/** What is in the way of a transit, in words. */
export const blocked = (t) =>
  (t.blocking || [])
    .map((b) => `${b.link} (free ${rate(b.free_bps)}, held by ${(b.holders || []).join(", ") || "nobody"})`)
    .join("; ");

/** Those that hold something at an instant. */
export const during = (list, at) => (list || []).filter((h) => h.from <= at && at < h.to);

/** What they hold together at an instant. */
export const reserved = (list, at) => during(list, at).reduce((sum, h) => sum + h.bps, 0);

/** From when to when who holds what: pieces of time in which nothing changes. */
export function pieces(list, t0, t1) {
  const instants = new Set([t0, t1]);
  for (const h of list) {
    for (const t of [h.from, h.to]) if (t > t0 && t < t1) instants.add(t);
  }
  const sorted = [...instants].sort((a, b) => a - b);
  return sorted.slice(0, -1).map((from, n) => ({ from, to: sorted[n + 1], held: during(list, from) }));
}

/** Bits per second by the switches' own counters, by direction, from two answers. */
export function measuredRates(before, after) {
  const found = new Map();
  const earlier = new Map((before || []).map((c) => [hopOf(c.a, c.b), c]));
  for (const c of after || []) {
    const old = earlier.get(hopOf(c.a, c.b));
    // A counter that has become less was begun again.
    if (old && c.at > old.at && c.bytes >= old.bytes)
      found.set(hopOf(c.a, c.b), (8 * (c.bytes - old.bytes)) / (c.at - old.at));
  }
  return found;
}
