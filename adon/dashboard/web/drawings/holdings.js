// Who holds how much of which direction of a link, and when: from what the broker keeps of the time
// to come, and from what it finds of the time that is past.

import { rate } from "../base/format.js";

export const hopOf = (from, to) => `${from}>${to}`;

/** All holdings by direction: {id, bps, from, to, src, dst, job, user, past}. `topology` was asked
 * with `until`; `past` is what the broker knows of the time before; `ended` what has ended since that
 * was asked for. */
export function holdings(topology, past = [], ended = []) {
  const found = new Map();
  const told = new Map(past.map((row) => [row.id, row]));
  const put = (hop, one) => {
    if (!found.has(hop)) found.set(hop, []);
    found.get(hop).push(one);
  };
  for (const link of topology.links) {
    for (const load of link.load) {
      for (const h of load.holders || []) {
        const row = h.id && told.get(h.id);
        const from = row ? Math.min(h.start, row.from) : h.start;
        put(hopOf(load.from, load.to), { id: h.id, bps: h.reserved_bps, from, to: h.end, ...about(row), past: false });
      }
    }
  }
  for (const row of past) {
    if (!row.until) continue; // it still holds it, as the topology says
    for (const { path, bps } of row.parts) {
      for (let n = 0; n + 1 < path.length; n += 1) {
        put(hopOf(path[n], path[n + 1]), { id: row.id, bps, from: row.from, to: row.until, ...about(row), past: true });
      }
    }
  }
  for (const { hop, ...one } of ended) put(hop, one);
  for (const list of found.values()) list.sort((a, b) => a.from - b.from || (a.id < b.id ? -1 : 1));
  return found;
}

/** What was held in the one answer and is not in the next, and so has ended `now`. */
export function endedSince(before, after, now) {
  const name = (hop, one) => `${hop} ${one.id} ${one.bps}`;
  const held = [...after].flatMap(([hop, list]) => list.filter((h) => !h.past).map((h) => name(hop, h)));
  const still = new Set(held);
  return [...before].flatMap(([hop, list]) =>
    list
      .filter((h) => !h.past && h.from <= now && h.to > now && !still.has(name(hop, h)))
      .map((h) => ({ ...h, hop, to: now, past: true })),
  );
}

const about = (row) =>
  row ? { src: row.src, dst: row.dst, job: row.job, user: row.user, workflow: row.workflow } : {};

/** What is in the way of a transit, in words. */
export const blocked = (t) =>
  (t.blocking || [])
    .map((b) => `${b.link} (free ${rate(b.free_bps)}, held by ${(b.holders || []).join(", ") || "nobody"})`)
    .join("; ");

/** Those that hold something at an instant. */
export const during = (list, at) => (list || []).filter((h) => h.from <= at && at < h.to);

/** What they hold together at an instant. */
export const reserved = (list, at) => during(list, at).reduce((sum, h) => sum + h.bps, 0);

/** From when to when who holds how much (`bps`): pieces of time in which nothing changes. `list` begins
 * with what began first. */
export function pieces(list, t0, t1) {
  const inside = list.flatMap((h) => [h.from, h.to]).filter((t) => t > t0 && t < t1);
  const instants = [...new Set([t0, ...inside, t1])].sort((a, b) => a - b);
  let next = 0;
  let held = [];
  return instants.slice(0, -1).map((from, n) => {
    const before = next;
    while (next < list.length && list[next].from <= from) next += 1;
    held = [...held, ...list.slice(before, next)].filter((h) => h.to > from);
    return { from, to: instants[n + 1], held, bps: held.reduce((sum, h) => sum + h.bps, 0) };
  });
}

/** The most that is held at once. */
export const peak = (parts) => parts.reduce((most, part) => Math.max(most, part.bps), 0);

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
