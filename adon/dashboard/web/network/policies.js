// How links are divided between users, projects or experiments.

import { get } from "../base/api.js";
import { el, image, svg } from "../base/dom.js";
import { form, given, instant } from "../base/form.js";
import { clock } from "../base/format.js";
import { key, soft, state } from "../base/parts.js";
import { records } from "../base/records.js";

const WIDE = 220;
const STRATEGIES = ["10-3", "7-3", "computed"];
const pairOf = (text) => (text ? text.split(/[\s,]+/).filter(Boolean) : null);

/** What two queues have of a link: what is theirs for certain, and up to where they may go. */
function shares(strategy, parts) {
  const [first, second] = parts?.length === 2 && parts.every((n) => n > 0) ? parts : [7, 3];
  const share = first / (first + second);
  if (strategy === "7-3") return [[0, 0.7, 0.7], [0.7, 1, 1]];
  if (strategy === "10-3") return [[0, 0.7, 1], [0.7, 1, 1]];
  return [[0, share / 2, 1], [share, share + (1 - share) / 2, 1]];
}

const WORDS = {
  "7-3": "the first queue has 70 % of each link, the second 30 %; neither borrows",
  "10-3": "the first queue may use the whole link; the second up to 30 %, and makes room for the first",
  computed: "each has its guarantee, what is reserved in it, and a part of the rest; each may use what the other leaves",
};

const explained = (strategy, [first, second]) =>
  `${first || "first"} and ${second || "second"}: ${WORDS[strategy] || `as ${strategy} says`}`;

/** A link as a bar, divided between the two queues: filled is certain, pale may be used. */
function drawn(strategy, specs, parts) {
  const words = explained(strategy, specs);
  if (!WORDS[strategy]) return words;
  const [one, two] = shares(strategy, parts);
  const bar = (y, [from, sure, most], tone) => [
    svg("rect", { x: from * WIDE, y, width: Math.max(0, most - from) * WIDE, height: 9, class: `block ${tone}` }),
    svg("rect", { x: from * WIDE, y, width: (sure - from) * WIDE, height: 9, class: `fill ${tone}` }),
  ];
  return image(
    WIDE,
    22,
    words,
    svg("title", {}, words),
    bar(1, strategy === "computed" ? [0, one[1], 1] : one, "t1"),
    bar(12, strategy === "computed" ? [0, two[1] - two[0], 1] : two, "t2"),
  );
}

export const policies = records({
  changes: true,
  title: "Policies",
  word: "policy",
  words: "policies",
  filters: [
    { name: "ended", label: "State", options: [["true", "also ended"]], without: "running and scheduled" },
    { name: "type", label: "Type", options: ["user", "project", "experiment"] },
  ],
  columns: [
    { name: "name", value: (p) => p.name },
    { name: "state", half: true, value: (p) => p.state, cell: (p) => state(p.state) },
    { name: "type", value: (p) => p.type },
    { name: "strategy", value: (p) => p.strategy },
    { name: "first", value: (p) => p.specs[0] },
    { name: "second", value: (p) => p.specs[1] },
    { name: "share of a link", half: true, value: (p) => p.parts?.join(":") ?? "", cell: (p) => drawn(p.strategy, p.specs, p.parts) },
    { name: "from", n: true, half: true, value: (p) => p.time[0], cell: (p, c) => at(p.time[0], c) },
    { name: "until", n: true, half: true, value: (p) => p.time[1], cell: (p, c) => at(p.time[1], c) },
    {
      name: "governs now",
      full: true,
      value: linksOf,
      cell: (p) => linksOf(p) ? el("span", { class: "clamp", title: linksOf(p) }, linksOf(p)) : null,
    },
  ],
  key: (p) => p.id,
  ask: (c, { ended }) => get("/v1/policies/", { ended: ended || null }, c.signal),
  pick: (p, { type }) => !type || p.type === type,
  below: (c) =>
    c.state.rows.length
      ? key([
          ["fill t1", "first queue, for certain"],
          ["block t1", "while the second leaves it"],
          ["fill t2", "second queue, for certain"],
          ["block t2", "while the first leaves it"],
        ])
      : null,
  nothing: "No policy divides the links: all transfers are equal. `adon policy start` begins one.",
  above: (c) => [form(c, started), form(c, stopped(c))],
});

/** The links that it governs, each in both directions. */
function linksOf(p) {
  return [...new Set((p.links || []).map((pair) => [...pair].sort().join(" – ")))].join(", ");
}

const at = (time, c) => (time ? clock(Date.parse(time) / 1000, c.now()) : "–");

const started = {
  name: "policy",
  title: "Start a policy, or replace one",
  may: "manage",
  button: "Start",
  fields: [
    { name: "name", label: "Name", required: true },
    { name: "type", label: "Divides between", options: ["user", "project", "experiment"], value: "project" },
    { name: "strategy", label: "Strategy", options: STRATEGIES, value: "10-3" },
    { name: "first", label: "First queue", required: true, hint: "soykb" },
    { name: "second", label: "Second queue", value: "*", required: true },
    { name: "start", label: "Start", kind: "instant" },
    { name: "end", label: "End", kind: "instant" },
    { name: "link", label: "Link (default: all)", kind: "words", hint: "s1 s2" },
    { name: "parts", label: "Parts (computed)", hint: "7 3" },
    { name: "guarantees", label: "Guarantees (computed)", hint: "50 Mb/s, 10 %" },
  ],
  drawn: ({ strategy, first, second, parts }) => [
    drawn(strategy, [first, second], pairOf(parts)?.map(Number)),
    soft(explained(strategy, [first, second])),
  ],
  call({ name, type, strategy, first, second, start, end, link, parts, guarantees }) {
    const body = { name, type, strategy, action: "start", specs: [first, second] };
    if (start || end) body.time = [start ?? null, end ?? null];
    if (link) body.links = [link];
    if (parts) body.parts = pairOf(parts).map(Number);
    if (guarantees) body.guarantees = amounts(guarantees);
    return { method: "POST", path: "/v1/policies/", body };
  },
  command: (t) => [
    "policy", "start", t.name, "--type", t.type, "--strategy", t.strategy, "--specs", t.first, t.second,
    ...given("--start", instant(t.start)), ...given("--end", instant(t.end)),
    ...(t.link ? ["--link", ...pairOf(t.link)] : []),
    ...(t.parts ? ["--parts", ...pairOf(t.parts)] : []),
    ...(t.guarantees ? ["--guarantees", ...amounts(t.guarantees)] : []),
  ],
  done: (answer) => `${answer.name} is ${answer.state}`,
};

const amounts = (text) => text.split(",").map((part) => part.trim());

const stopped = (c) => {
  const names = c.state.rows.filter((p) => p.state !== "ended").map((p) => p.name);
  return names.length
    ? {
        name: "stop",
        title: "Stop a policy",
        may: "manage",
        button: "Stop",
        fields: [{ name: "name", label: "Policy", options: ["", ...names], required: true }],
        call: (values) => ({ method: "POST", path: "/v1/policies/", body: { ...values, action: "stop" } }),
        command: (typed) => ["policy", "stop", typed.name],
        done: (answer) => `${answer.name} has ended`,
      }
    : null;
};
