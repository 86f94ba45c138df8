// Draws a page's figures where they belong, from the data that is in the page. Each is what its
// module takes, by its kind and number.

import { chart } from "./drawings/chart.js";
import { WIDTH, dag, dots } from "./drawings/dag.js";
import { el } from "./base/dom.js";
import { gantt } from "./drawings/gantt.js";
import { holdings, hopOf, peak, pieces } from "./drawings/holdings.js";
import { linkTable } from "./drawings/links.js";
import { fullnessKey, map } from "./drawings/map.js";
import { key } from "./base/parts.js";
import { blocks } from "./drawings/reserved.js";

const MOST = 24; // directions whose reservations are drawn; all are in the table

const FIGURES = {
  dag({ workflow, classes }, place) {
    const { drawing, each } = dag(workflow, classes);
    place.append(drawing);
    if (each) return;
    const every = el("div", { class: "wide" }, dots(workflow, classes));
    place.parentElement.after(el("details", {}, el("summary", {}, "Every job as a dot"), every));
  },
  gantt(figure, place) {
    if (figure.key) place.append(key(figure.key));
    place.append(gantt(figure));
  },
  chart(figure, place) {
    if (figure.legend) place.append(key(figure.legend));
    place.append(chart({ width: WIDTH, height: 160, ...figure }) || "");
  },
  /** What the broker told of its network at one time, and where it lays the nodes; and where it told
   * who holds what until another time, that, the fullest directions first. */
  network({ topology, layout }, place) {
    const loads = topology.links.flatMap((link) =>
      link.load.map((load) => ({ link, load, hop: hopOf(load.from, load.to) })),
    );
    const shares = new Map(loads.map((one) => [one.hop, one.load.reserved_bps / one.link.capacity_bps]));
    place.append(map(topology, layout, WIDTH, (hop) => shares.get(hop), ""), fullnessKey());
    if (topology.until) place.append(...held(topology, loads));
    place.append(linkTable(loads, shares));
  },
};

function held(topology, loads) {
  const { at, until } = topology;
  const holders = holdings(topology);
  const fullest = (one) => peak(pieces(holders.get(one.hop), at, until)) / one.link.capacity_bps;
  const shown = loads.filter((one) => holders.has(one.hop));
  shown.sort((a, b) => fullest(b) - fullest(a) || (a.hop < b.hop ? -1 : 1));
  const times = { t0: at, t1: until, at };
  const drawn = shown.slice(0, MOST).map((one) => blocks(one, holders.get(one.hop), times, WIDTH));
  return [el("h2", {}, "Reservations over time"), ...drawn];
}

const data = JSON.parse(document.getElementById("data").textContent);
for (const place of document.querySelectorAll("[data-draw]")) {
  const { draw, number } = place.dataset;
  FIGURES[draw](data[draw][Number(number)], place);
}
