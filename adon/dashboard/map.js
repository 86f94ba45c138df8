// The network as a drawing: each direction of a link is a pipe as wide as its capacity, filled as far
// as it is reserved, with the share beside it.

import { svg } from "./dom.js";
import { percent, rate } from "./format.js";
import { hopOf } from "./holdings.js";
import { key } from "./parts.js";

const ABOVE = 34;
const AROUND = 16;

/** How full something is, as a word that styles know. */
export const fullness = (share) => (share >= 0.85 ? "full" : share >= 0.5 ? "half" : "");

/** What its colours mean. */
export const fullnessKey = () =>
  key([
    ["fill t1", "reserved, below 50 %"],
    ["fill t2", "50 % and more"],
    ["fill t5", "85 % and more"],
  ]);

/** `layout` is the broker's; `shareOf(hop)` how much of a direction is taken; `picked` a hop. */
export function map(topology, layout, width, shareOf, picked) {
  const half = (name) => Math.min(56, 14 + name.length * 4.2);
  const widest = Math.max(30, ...topology.nodes.map((n) => half(n.name)));
  const left = widest + AROUND;
  const inner = Math.max(80, width - 2 * left);
  // A network that is all in one row still needs room for names; a deep one must fit the screen.
  const high = Math.min(Math.max(layout.height * inner, topology.nodes.length > 2 ? 110 : 40), 480);
  const scale = layout.height > 0 ? high / layout.height : 0;
  const at = new Map(layout.nodes.map((n) => [n.name, [left + n.x * inner, ABOVE + n.y * scale]]));
  const most = Math.max(1, ...topology.links.map((l) => l.capacity_bps));
  const pipes = [];
  const labels = [];
  for (const link of topology.links) {
    if (!at.has(link.a) || !at.has(link.b)) continue;
    for (const load of link.load) draw(link, load, pipes, labels);
  }

  function draw(link, load, under, over) {
    const [x0, y0] = at.get(load.from);
    const [x1, y1] = at.get(load.to);
    const long = Math.hypot(x1 - x0, y1 - y0) || 1;
    const wide = 3 + 6 * Math.sqrt(link.capacity_bps / most);
    // Right of the way one goes, as on a road.
    const [ox, oy] = [(-(y1 - y0) / long) * (wide / 2 + 1.5), ((x1 - x0) / long) * (wide / 2 + 1.5)];
    const d = `M${r(x0 + ox)} ${r(y0 + oy)}L${r(x1 + ox)} ${r(y1 + oy)}`;
    const hop = hopOf(load.from, load.to);
    const share = shareOf(hop, link, load);
    const on = hop === picked;
    const words = `${load.from} → ${load.to}: ${percent(share)} of ${rate(link.capacity_bps)} (${link.layer}) reserved${link.failed ? `; ${link.failed}` : link.unknown ? "; nobody knows whether it works" : ""}`;
    const middle = [x0 + (x1 - x0) * 0.5 + ox, y0 + (y1 - y0) * 0.5 + oy];
    under.push(
      svg(
        "g",
        { class: `pick${on ? " on" : ""}${link.failed ? " failed" : link.unknown ? " unknown" : ""}`, "data-act": "pick", "data-hop": hop, "data-key": hop },
        svg("title", {}, words),
        // An edge that is seen against the page, and a filling that its use is seen against.
        ...[
          ["edge", on ? wide + 2.5 : wide],
          ["pipe", wide - 1.6],
        ].map(([cls, stroke]) =>
          svg("path", {
            d,
            class: cls,
            "stroke-width": r(stroke),
            "stroke-dasharray": link.layer === "l3" ? "9 3" : null,
          }),
        ),
        share > 0
          ? svg("path", {
              d,
              class: `use ${fullness(share)}`,
              "stroke-width": r(Math.max(1.8, wide * Math.min(1, share))),
            })
          : null,
        svg("path", { d, stroke: "transparent", "stroke-width": Math.max(wide, 12), fill: "none" }),
      ),
    );
    if (share > 0.0005) {
      const aside = wide / 2 + 11;
      const [lx, ly] = [middle[0] + (-(y1 - y0) / long) * aside, middle[1] + ((x1 - x0) / long) * aside];
      const turned = Math.abs(y1 - y0) > Math.abs(x1 - x0);
      const way = Math.abs(x1 - x0) >= Math.abs(y1 - y0) ? (x1 > x0 ? "→" : "←") : y1 > y0 ? "↓" : "↑";
      over.push(
        svg(
          "text",
          {
            x: r(lx),
            y: r(ly + 4),
            class: "halo label",
            "text-anchor": turned ? (lx > (x0 + x1) / 2 ? "start" : "end") : "middle",
          },
          `${way} ${percent(share)}`,
        ),
      );
    }
  }

  const nodes = topology.nodes
    .filter((n) => at.has(n.name))
    .map((n) => node(n, at.get(n.name), half(n.name)));
  const height = ABOVE * 2 + high + 10;
  const taken = labels.length
    ? `${labels.length} directions of links are reserved in part`
    : "nothing is reserved";
  return svg(
    "svg",
    {
      width,
      height: r(height),
      viewBox: `0 0 ${width} ${r(height)}`,
      role: "img",
      "aria-label": `Map of ${topology.nodes.length} nodes and ${topology.links.length} links; ${taken}. The table below has the same.`,
    },
    pipes,
    nodes,
    labels,
  );
}

const r = (v) => Math.round(v * 10) / 10;

function node(n, [x, y], half) {
  const label = (dy) =>
    svg("text", { x: r(x), y: r(y + dy), "text-anchor": "middle", class: "label halo" }, n.name);
  const tip = svg("title", {}, `${n.kind} ${n.name}${n.dmz ? ", in a Science DMZ" : ""}`);
  const g = (cls, ...children) =>
    svg("g", { class: `node ${cls}`, "data-key": `node:${n.name}` }, tip, children);
  if (n.kind === "site" || n.kind === "relay") {
    return g(
      n.kind,
      svg("rect", { x: r(x - half), y: r(y - 15), width: r(2 * half), height: 30, rx: n.kind === "site" ? 7 : 15 }),
      label(4.5),
    );
  }
  if (n.kind === "link") return g("link", label(4.5));
  if (n.kind === "router") return g("router", svg("circle", { cx: r(x), cy: r(y), r: 15 }), label(4.5));
  return g("switch", svg("rect", { x: r(x - 15), y: r(y - 13), width: 30, height: 26, rx: 2 }), label(4.5));
}
