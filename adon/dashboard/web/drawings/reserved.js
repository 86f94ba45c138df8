// Who holds how much of one direction of a link over time, as a drawing.

import { instantLine, levelAxis, levels, round, timeAxis, timeScale } from "./chart.js";
import { el, image, svg } from "../base/dom.js";
import { clock, counted, rate } from "../base/format.js";
import { peak, pieces } from "./holdings.js";

/** Reservations on one direction from `t0` to `t1`, one block for each; `now` where that is between
 * them, and `at` the time that the load is of. */
export function blocks({ link, load, hop }, list, { t0, t1, now, at }, width) {
  const height = 104;
  const [top, floor] = [8, height - 24];
  const x = timeScale(t0, t1, width);
  const spans = pieces(list, t0, t1);
  const high = Math.max(link.capacity_bps, peak(spans)) * 1.04;
  const y = (v) => floor - (v / high) * (floor - top);
  const parts = [...timeAxis(x, top, floor), ...levelAxis(x, y, levels(0, high, 2).at, (v) => (v ? rate(v) : "0"))];
  for (const piece of spans) {
    let below = 0;
    for (const h of piece.held) {
      parts.push(
        svg(
          "rect",
          {
            x: round(x(piece.from)),
            y: round(y(below + h.bps)),
            width: round(Math.max(1, x(piece.to) - x(piece.from))),
            height: round(Math.max(1, y(below) - y(below + h.bps))),
            class: h.past ? "block past t1" : "block t1",
          },
          svg("title", {}, `${h.id}: ${rate(h.bps)}, ${clock(h.from, now ?? at)} to ${clock(h.to, now ?? at)}`),
        ),
      );
      below += h.bps;
    }
  }
  parts.push(svg("path", { d: `M${x.left} ${round(y(link.capacity_bps))}H${x.end}`, class: "cut" }));
  if (now !== undefined) parts.push(instantLine(x, now, top, floor, "nowline"));
  if (now !== undefined && at !== now) parts.push(instantLine(x, at, top, floor, "axis"));
  const words = `${load.from} → ${load.to}: ${counted(list.length, "reservation")}, ${now === undefined ? "first" : "now"} ${rate(load.reserved_bps)} of ${rate(link.capacity_bps)}`;
  return el(
    "figure",
    { "data-key": `blocks:${hop}` },
    el(
      "figcaption",
      {},
      el("strong", {}, `${load.from} → ${load.to}`),
      ` ${link.layer}, ${rate(load.reserved_bps)} of ${rate(link.capacity_bps)} ${now === undefined ? "at first" : "now"}`,
    ),
    image(width, height, words, parts),
  );
}
