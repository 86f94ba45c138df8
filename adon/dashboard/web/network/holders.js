// Who holds a direction of a link, and who waits for room.

import { ago, clock, counted, rate } from "../base/format.js";
import { blocked, during } from "../drawings/holdings.js";
import { entry, listed, workflowLink } from "../base/parts.js";

/** Who holds a direction at an instant. */
export function holders(c, one, at, now, when) {
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
export function waiting(s, now) {
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
