// Runs of measurements over time, one line for each agent: what was made, what is to come.

import { instantLine, round, timeAxis, timeScale } from "./chart.js";
import { el, image, svg } from "../base/dom.js";
import { clock, counted, subjectText, words } from "../base/format.js";
import { key, section } from "../base/parts.js";

const HIGH = 26;
const TOP = 6;
const LEFT = 96;
const LOOKS = {
  planned: ["block t1", ""],
  done: ["block t3", ""],
  failed: ["block t5", "✗"],
  missed: ["block t2", "!"],
  dropped: ["block past t0", ""],
};

/** The drawing; nothing where there is no run between `t0` and `t1`. */
export function timeline(runs, names, t0, t1, now, width) {
  const shown = runs.filter((run) => run.until > t0 && run.at < t1);
  if (!shown.length || !names.length) return null;
  const height = TOP + HIGH * names.length + 24;
  const x = timeScale(t0, t1, width, Math.min(LEFT, width / 4));
  const parts = timeAxis(x, TOP, height - 24);
  names.forEach((name, n) => {
    const y = TOP + n * HIGH;
    const short = name.length > 13 ? `${name.slice(0, 12)}…` : name;
    parts.push(
      svg("text", { x: x.left - 8, y: y + 17, "text-anchor": "end", class: "small" }, svg("title", {}, name), short),
      svg("path", { d: `M${x.left} ${y + HIGH}H${x.end}`, class: "gridline" }),
    );
    for (const run of shown.filter((one) => one.agents.some((a) => a.agent === name))) {
      const from = Math.max(x.left, x(run.at));
      const wide = Math.max(3, Math.min(x.end, x(run.until)) - from);
      const [cls, sign] = LOOKS[run.state] || LOOKS.planned;
      const tip = `${words(run.tool)} ${subjectText(run.subject)}, ${clock(run.at, now)} to ${clock(run.until, now)}: ${run.state}${run.error ? `, ${run.error}` : ""}`;
      parts.push(
        svg(
          "g",
          {},
          svg("title", {}, tip),
          svg("rect", { x: round(from), y: y + 4, width: round(wide), height: HIGH - 8, rx: 2, class: cls }),
          sign && svg("text", { x: round(from + wide / 2), y: y + 17, "text-anchor": "middle", class: "label halo" }, sign),
        ),
      );
    }
  });
  parts.push(instantLine(x, now, TOP, height - 24, "nowline"));
  const counts = Object.keys(LOOKS)
    .map((name) => [name, shown.filter((run) => run.state === name).length])
    .filter(([, n]) => n);
  const label = `${counted(shown.length, "run")}: ${counts.map(([name, n]) => `${n} ${name}`).join(", ")}`;
  return section("runs", "Runs",
    key([
      ["block t1", "planned"],
      ["block t3", "done"],
      ["block t5", "✗ failed"],
      ["block t2", "! missed"],
      ["line t0 dash2", "now"],
    ]),
    el("figure", {}, el("figcaption", {}, label), image(width, height, label, parts)),
  );
}
