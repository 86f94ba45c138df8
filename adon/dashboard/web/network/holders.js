// Who holds a direction of a link, and who waits for room.

import { el } from "../base/dom.js";
import { ago, clock, counted, rate } from "../base/format.js";
import { blocked, during } from "../drawings/holdings.js";
import { section, table, workflowLink } from "../base/parts.js";
import { transferLink } from "./transfers.js";

/** Who holds a direction at an instant. */
export function holders(c, one, at, now, when) {
  if (!one) return null;
  const list = during(c.state.held.get(one.hop), at);
  const columns = ["transit", "between |", "reserved #", "from # |", "until # |", "for ="];
  return section("holders", `Who holds ${one.load.from} → ${one.load.to}, ${when}`,
    list.length
      ? table(
          counted(list.length, "transit"),
          columns,
          list.map((h) => ({
            key: h.id,
            cells: [
              h.id ? transferLink(h.id) : "another’s",
              h.src ? `${h.src} → ${h.dst}` : "–",
              rate(h.bps),
              clock(h.from, now),
              h.to > 1e17 ? "open" : clock(h.to, now),
              [h.user, h.job, h.workflow && [" ", workflowLink(h.workflow, "workflow")]]
                .filter(Boolean)
                .flatMap((p, n) => (n && typeof p === "string" ? [", ", p] : [p])),
            ],
          })),
        )
      : el("p", { class: "soft" }, "Nobody."),
  );
}

/** Requests that have no path yet: what they want, what is in their way, and when they could start. */
export function waiting(s, now) {
  const list = s.queued;
  if (!list.length) return null;
  const columns = ["transit", "between |", "wants #", "asked #", "could start #", "no room on ="];
  return section("waiting", "Who waits now",
    table(
      counted(list.length, "request"),
      columns,
      list.map((t) => ({
        key: t.id,
        cells: [
          transferLink(t.id),
          `${t.src} → ${t.dst}`,
          rate(t.requested_bps),
          ago(t.requested_at, now),
          t.earliest ? clock(t.earliest, now) : "–",
          blocked(t) || t.reason || "–",
        ],
      })),
    ),
  );
}
