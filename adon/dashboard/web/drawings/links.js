// Every direction of a link in a table.

import { counted, duration, percent, rate, whole } from "../base/format.js";
import { button, table } from "../base/parts.js";

const ROWS = 200;

/** `loads`: {link, load, hop}; `shares`: what of a direction is reserved, by hop. What differs from the
 * broker's answer where another time is `shown`: {bps(one), transits(one), when, granted}. `measured`:
 * bits per second by hop; `picked`: a hop, where one can be chosen. */
export function linkTable(loads, shares, shown = {}, measured = new Map(), picked = null) {
  const { bps = (one) => one.load.reserved_bps, transits = (one) => one.load.transits.length } = shown;
  const { when = "", granted = true } = shown;
  const columns = [
    "direction", "layer", "capacity #", "reserved #", "share #", "granted #",
    ...(measured.size ? [{ name: "measured", n: true }] : []),
    "delay #", "transits #",
  ];
  const count = counted(loads.length / 2, "link");
  return table(
    `each direction of ${count}, the fullest first${when && `, ${when}`}`,
    columns,
    [...loads]
      .sort((a, b) => shares.get(b.hop) - shares.get(a.hop))
      .slice(0, ROWS)
      .map((one) => ({
        key: one.hop,
        cls: one.hop === picked ? "picked" : "",
        cells: [
          picked === null ? named(one) : choice(one, picked),
          one.link.vlan ? `${one.link.layer}, VLAN ${one.link.vlan}` : one.link.layer,
          rate(one.link.capacity_bps),
          rate(bps(one)),
          percent(shares.get(one.hop)),
          granted ? rate(one.load.granted_bps ?? 0) : "–",
          ...(measured.size ? [measured.has(one.hop) ? rate(measured.get(one.hop)) : "–"] : []),
          duration(one.link.delay_s),
          whole(transits(one)),
        ],
      })),
  );
}

const named = ({ load }) => `${load.from} → ${load.to}`;

const choice = (one, picked) =>
  button("pick", named(one), {
    class: "plain",
    "data-hop": one.hop,
    "aria-pressed": String(one.hop === picked),
  });
