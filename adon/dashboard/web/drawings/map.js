// The network as a drawing: each direction of a link is a pipe as wide as its capacity, filled as far
// as it is reserved, with the share beside it.

import { round } from "./chart.js";
import { image, svg } from "../base/dom.js";
import { percent, rate } from "../base/format.js";
import { hopOf } from "./holdings.js";
import { key } from "../base/parts.js";

const ABOVE = 34;
const AROUND = 16;
const CROWD = 24; // nodes
const GAP = 4;
const ROUNDS = 60;
const LETTER = 6.4;

/** How full something is, as a word that styles know. */
export const fullness = (share) => (share >= 0.85 ? "full" : share >= 0.5 ? "half" : "");

/** What its colours mean. */
export const fullnessKey = () =>
  key([
    ["fill t1", "reserved, below 50 %"],
    ["fill t2", "50 % and more"],
    ["fill t5", "85 % and more"],
  ]);

/** Move what lies over something else aside, until nothing does or it takes too long. `boxes`: {x, y,
 * half, tall}; always the same for the same. */
export function apart(boxes) {
  for (let turn = 0; turn < ROUNDS; turn += 1) {
    let moved = false;
    for (let n = 1; n < boxes.length; n += 1) {
      for (let m = 0; m < n; m += 1) {
        const [a, b] = [boxes[m], boxes[n]];
        const overX = a.half + b.half + GAP - Math.abs(a.x - b.x);
        const overY = a.tall + b.tall + GAP - Math.abs(a.y - b.y);
        if (overX <= 0 || overY <= 0) continue;
        const along = overX < overY ? "x" : "y";
        const push = (Math.min(overX, overY) / 2) * (a[along] > b[along] ? 1 : -1);
        a[along] += push;
        b[along] -= push;
        moved = true;
      }
    }
    if (!moved) return;
  }
}

/** Where each node is drawn, and how large: in a crowd, smaller. */
function placed(topology, layout, width, zoom) {
  const crowded = topology.nodes.length > CROWD;
  const letter = crowded ? 3.4 : 4.2;
  const sized = (n) => {
    const named = n.kind === "site" || n.kind === "relay";
    const half = named ? Math.min(56, 10 + n.name.length * letter) : Math.max(crowded ? 11 : 15, n.name.length * letter);
    return { half, tall: crowded ? 10 : 15 };
  };
  const places = new Map(layout.nodes.map((n) => [n.name, n]));
  const shown = topology.nodes.filter((n) => places.has(n.name));
  const left = Math.max(30, ...shown.map((n) => sized(n).half)) + AROUND;
  const inner = Math.max(80, width - 2 * left);
  // A network that is all in one row still needs room for names; a deep one must fit the screen.
  const most = Math.max(480, 10 * shown.length) * zoom;
  const high = Math.min(Math.max(layout.height * inner, shown.length > 2 ? 110 : 40), most);
  const scale = layout.height > 0 ? high / layout.height : 0;
  const boxes = shown.map((n) => {
    const { x, y } = places.get(n.name);
    return { node: n, x: left + x * inner, y: ABOVE + y * scale, ...sized(n) };
  });
  apart(boxes);
  const [first, last] = [Math.min(ABOVE, ...boxes.map((b) => b.y)), Math.max(...boxes.map((b) => b.y), ABOVE)];
  for (const box of boxes) {
    box.x = Math.min(width - box.half - 2, Math.max(box.half + 2, box.x));
    box.y += ABOVE - first;
  }
  return { boxes, crowded, height: last - first + 2 * ABOVE + 10 };
}

/** `layout` is the broker's; `shareOf(hop)` how much of a direction is taken; `picked` a hop; `zoom`
 * how many times as large as the page it is. */
export function map(topology, layout, room, shareOf, picked, zoom = 1) {
  const width = Math.round(room * zoom);
  const { boxes, crowded, height } = placed(topology, layout, width, zoom);
  const at = new Map(boxes.map((box) => [box.node.name, [box.x, box.y]]));
  const labelled = crowded && zoom < 2 ? 0.5 : 0.0005; // where there is no room, the full ones alone
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
    const wide = (crowded ? 2 : 3) + (crowded ? 3 : 6) * Math.sqrt(link.capacity_bps / most);
    // Right of the way one goes, as on a road.
    const [ox, oy] = [(-(y1 - y0) / long) * (wide / 2 + 1.5), ((x1 - x0) / long) * (wide / 2 + 1.5)];
    const d = `M${round(x0 + ox)} ${round(y0 + oy)}L${round(x1 + ox)} ${round(y1 + oy)}`;
    const hop = hopOf(load.from, load.to);
    const share = shareOf(hop, link, load);
    const on = hop === picked;
    const words = `${load.from} → ${load.to}: ${percent(share)} of ${rate(link.capacity_bps)} (${link.layer}) reserved${link.failed ? `; ${link.failed}` : link.unknown ? "; it is unknown whether it works" : ""}`;
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
            "stroke-width": round(stroke),
            "stroke-dasharray": link.layer === "l3" ? "9 3" : null,
          }),
        ),
        share > 0
          ? svg("path", {
              d,
              class: `use ${fullness(share)}`,
              "stroke-width": round(Math.max(1.8, wide * Math.min(1, share))),
            })
          : null,
        svg("path", { d, stroke: "transparent", "stroke-width": Math.max(wide, 12), fill: "none" }),
      ),
    );
    if (share > labelled) {
      const aside = wide / 2 + 11;
      const [lx, ly] = [middle[0] + (-(y1 - y0) / long) * aside, middle[1] + ((x1 - x0) / long) * aside];
      const turned = Math.abs(y1 - y0) > Math.abs(x1 - x0);
      const way = Math.abs(x1 - x0) >= Math.abs(y1 - y0) ? (x1 > x0 ? "→" : "←") : y1 > y0 ? "↓" : "↑";
      const words = `${way} ${percent(share)}`;
      const [room, anchor] = [words.length * LETTER, turned ? (lx > (x0 + x1) / 2 ? "start" : "end") : "middle"];
      const left = lx - { start: 0, middle: room / 2, end: room }[anchor];
      over.push({ share, x: lx, y: ly + 4, anchor, words, box: { x: left + room / 2, y: ly, half: room / 2, tall: 7 } });
    }
  }

  const nodes = boxes.map(node);
  const used = topology.links.flatMap((link) => link.load).filter((load) => shareOf(hopOf(load.from, load.to)) > 0);
  const taken = used.length ? `${used.length} directions of links are reserved in part` : "nothing is reserved";
  const size = `${topology.nodes.length} nodes and ${topology.links.length} links`;
  return image(
    width,
    round(height),
    `Map of ${size}; ${taken}. The table below has the same.`,
    pipes,
    nodes,
    (crowded ? free(labels, boxes) : labels).map(({ x, y, anchor, words }) =>
      svg("text", { x: round(x), y: round(y), class: "halo label", "text-anchor": anchor }, words),
    ),
  );
}

const over = (a, b) => Math.abs(a.x - b.x) < a.half + b.half && Math.abs(a.y - b.y) < a.tall + b.tall;

/** Of labels those that lie over no node and no other label, the fullest first: the rest is in tooltips. */
function free(labels, boxes) {
  const taken = [...boxes];
  return labels
    .sort((a, b) => b.share - a.share)
    .filter(({ box }) => !taken.some((one) => over(one, box)) && taken.push(box));
}

function node({ node: n, x, y, half, tall }) {
  const label = svg(
    "text",
    { x: round(x), y: round(y + 4), "text-anchor": "middle", class: tall < 15 ? "label halo crowd" : "label halo" },
    n.name,
  );
  const tip = svg("title", {}, `${n.kind} ${n.name}${n.dmz ? ", in a Science DMZ" : ""}`);
  const box = (rx) => svg("rect", { x: round(x - half), y: round(y - tall), width: round(2 * half), height: 2 * tall, rx });
  const shapes = {
    link: () => null,
    router: () => svg("circle", { cx: round(x), cy: round(y), r: tall }),
    site: () => box(7),
    relay: () => box(tall),
    switch: () => box(2),
  };
  return svg("g", { class: `node ${n.kind}`, "data-key": `node:${n.name}` }, tip, (shapes[n.kind] || shapes.switch)(), label);
}
