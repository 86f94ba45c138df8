// Draws the report's figures where they belong, from the data that is in the page.

import { chart } from "./chart.js";
import { WIDTH, dag, dots } from "./dag.js";
import { el } from "./dom.js";
import { gantt } from "./gantt.js";

const data = JSON.parse(document.getElementById("data").textContent);

const DRAWN = {
  dag(place) {
    const { drawing, each } = dag(data.workflow, data.classes);
    place.append(drawing);
    if (each) return;
    const every = el("div", { class: "wide" }, dots(data.workflow, data.classes));
    place.parentElement.after(el("details", {}, el("summary", {}, "Every job as a dot"), every));
  },
  gantt(place) {
    place.append(gantt(data.gantt));
  },
  load(place) {
    const load = data.loads[Number(place.dataset.number)];
    const measured = load.measured.map((points) => ({ name: "measured", cls: "t2", points }));
    const reserved = { name: "reserved", cls: "t1", points: load.reserved, area: true };
    place.append(
      chart({
        key: `load:${load.title}`,
        title: load.title,
        width: WIDTH,
        height: 160,
        unit: "bit/s",
        elapsed: true,
        step: true,
        quiet: true,
        floor: 0,
        t0: 0,
        t1: data.gantt.end,
        series: [reserved, ...measured],
        cut: { value: load.capacity_bps, words: "capacity" },
        marks: load.short.map(([at, words]) => ({ at, value: 0, words, letter: "" })),
      }) || "",
    );
  },
};

for (const place of document.querySelectorAll("[data-draw]")) DRAWN[place.dataset.draw](place);
