// What applications need from the network, and one template: its figures to change, its history.

import { get } from "../base/api.js";
import { el } from "../base/dom.js";
import { form, given, parsed } from "../base/form.js";
import { bytes, clock, duration, number, percent, rate, whole, words } from "../base/format.js";
import { back, entry, facts, heading, link, listed, note, small, table } from "../base/parts.js";
import { records } from "../base/records.js";

const ACTIONS = ["move", "split", "reduce", "report", "ignore"];
const METRICS = ["throughput", "delay", "jitter", "loss"];
const YES_NO = ["", "no", "yes"];
const path = (name, rest = "") => `/v1/templates/${encodeURIComponent(name)}${rest}`;
const weights = (template) =>
  METRICS.filter((name) => template.weights?.[name])
    .map((name) => `${name} ${number(template.weights[name])}`)
    .join(", ");

export const templates = records({
  changes: true,
  title: "Templates",
  word: "template",
  order: "name",
  filters: [{ name: "text", label: "Search" }],
  columns: [
    { name: "name", value: (t) => t.name, cell: (t) => entry("templates", t.name) },
    { name: "version", unit: "1", value: (t) => t.version },
    { name: "origin", value: (t) => t.origin },
    { name: "by", value: (t) => t.by },
    { name: "minimum", unit: "bit/s", value: (t) => t.template.qspec.min_throughput },
    { name: "maximum", unit: "bit/s", value: (t) => t.template.rspec.max_throughput },
    { name: "priority", unit: "1", value: (t) => t.template.priority },
    { name: "weights", half: true, value: (t) => weights(t.template) },
    { name: "applications", full: true, value: (t) => t.template.applications.join(" ") },
  ],
  key: (t) => t.name,
  ask: (c) => get("/v1/templates", {}, c.signal),
  pick: (t, { text }) =>
    `${t.name} ${t.by} ${t.origin} ${t.template.applications.join(" ")}`.toLowerCase().includes(text.toLowerCase()),
  above: (c) => [form(c, saved(c, null)), tried(c)],
});

export const template = {
  title: "Template",
  back: () => back("templates"),
  changes: true,
  every: 60000,

  begin(c) {
    c.state = {};
  },

  async load(c) {
    const [current, history] = await Promise.all([
      get(path(c.id), {}, c.signal),
      get(path(c.id, "/history"), {}, c.signal),
    ]);
    document.title = `${current.name} – ADON`;
    Object.assign(c.state, { current, history });
  },

  view(c) {
    const { current, history } = c.state;
    const { name, template: t, learned, source } = current;
    const now = c.now();
    return [
      template.back(),
      heading(name, `version ${current.version}, ${current.origin}${current.by ? ` by ${current.by}` : ""}`),
      current.lowered.map((each) => note(each)),
      facts({
        "needs at least": needs(t.qspec),
        "may have": t.rspec.max_throughput ? rate(t.rspec.max_throughput) : "all that its path has",
        weights: weights(t),
        priority: whole(t.priority),
        applications: t.applications.join(" "),
        "waits at most": duration(t.patience),
        "when queued": words(t.when_queued),
        "smallest with a path": t.break_even === null ? "as computed" : `${whole(t.break_even)} B`,
        "fastest transfer": t.peak ? rate(t.peak) : "",
        "learned from": learned.transit && entry("transfers", learned.transit),
        "saved from": source.transit && entry("transfers", source.transit),
      }),
      el("p", {}, link(`#/transfers?${new URLSearchParams({ text: name })}`, "Transfers that used it")),
      form(c, saved(c, current)),
      tried(c),
      form(c, restored(c, history)),
      form(c, removed(c)),
      el("h2", {}, "History"),
      table(
        "the latest first",
        ["version", "saved #", "by", "needs =", "may have #"],
        [...history].reverse().map((doc) => ({
          key: String(doc.version),
          cells: [
            String(doc.version),
            clock(doc.at, now),
            doc.entry?.by || doc.entry?.origin || "deleted",
            doc.entry ? needs(doc.entry.template.qspec) : "–",
            doc.entry?.template.rspec.max_throughput ? rate(doc.entry.template.rspec.max_throughput) : "–",
          ],
        })),
        { titled: true },
      ),
    ];
  },
};

const needs = (qspec) =>
  [
    rate(qspec.min_throughput),
    qspec.max_delay && `round trip ${duration(qspec.max_delay)}`,
    qspec.max_jitter && `jitter ${duration(qspec.max_jitter)}`,
    qspec.max_loss && `loss ${percent(qspec.max_loss)}`,
  ]
    .filter(Boolean)
    .join(", ");

const filled = (values) => {
  const known = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return known.length ? Object.fromEntries(known) : undefined;
};

/** Save a new template, or other figures of one, or see what they would have chosen. What the form
 * has no field for stays. */
function saved(c, current) {
  const t = current?.template;
  const seconds = (value) => (value ? `${value} s` : "");
  // Rounded where that is the same, for what is not changed is saved again.
  const exact = (kind, rounded, value, unit) =>
    value && (parsed(kind, rounded(value)) === value ? rounded(value) : `${value} ${unit}`);
  const flag = (value) => (value ? "yes" : "");
  const choice = (name, label, options) => ({
    name, label, options: ["", ...options.map((each) => [each, words(each)])], value: t?.[name],
  });
  return {
    name: "template",
    title: current ? "Change its figures" : "Save a template",
    about: "Quantities have units. What is empty has its default. Running transfers keep their version.",
    may: "save_templates",
    button: "Save",
    fields: [
      current ? null : { name: "name", label: "Name", required: true },
      { name: "applications", label: "Applications (patterns)", kind: "words", value: t?.applications.join(" ") },
      {
        name: "min_throughput", label: "QSpec: minimum", required: true, hint: "25 Mb/s",
        value: t && exact("rate", rate, t.qspec.min_throughput, "b/s"),
      },
      { name: "max_delay", label: "Longest round trip", hint: "200 ms", value: seconds(t?.qspec.max_delay) },
      { name: "max_jitter", label: "Highest jitter", hint: "10 ms", value: seconds(t?.qspec.max_jitter) },
      { name: "max_loss", label: "Highest loss", kind: "number", hint: "0.01", value: t?.qspec.max_loss },
      {
        name: "max_throughput", label: "RSpec: maximum", hint: "all of the path",
        value: t && exact("rate", rate, t.rspec.max_throughput, "b/s"),
      },
      { name: "sites", label: "RSpec: sites of its jobs", kind: "words", hint: "all", value: t?.rspec.sites?.join(" ") },
      { name: "cores", label: "Most cores of a site", kind: "number", hint: "all", value: t?.rspec.cores },
      { name: "memory", label: "Memory of each", hint: "4 GB", value: t && exact("size", bytes, t.rspec.memory, "B") },
      ...METRICS.map((name) => ({
        name: `trigger_${name}`, label: `When its path has worse ${name}`, options: ["", ...ACTIONS],
        value: t?.triggers[name]?.action,
      })),
      ...METRICS.map((name) => ({
        name: `weight_${name}`, label: `Weight of ${name}`, kind: "number", value: t?.weights[name],
      })),
      { name: "priority", label: "Priority", kind: "number", hint: "0", value: t?.priority || "" },
      { name: "patience", label: "Waits at most", hint: "20 s", value: t && seconds(t.patience) },
      choice("when_queued", "When queued", ["wait", "defer", "best_effort"]),
      { name: "break_even", label: "Smallest with a path", hint: "as computed", value: t?.break_even ?? "" },
      choice("small", "Smaller ones", ["best_effort", "share"]),
      choice("better_path", "When a better path has room", ["stay", "move"]),
      { name: "io_aware", label: "Follow the disks", options: YES_NO, value: flag(t?.io_aware) },
      choice("relay", "Relays", ["never", "auto", "always"]),
      { name: "paths", label: "Paths", kind: "number", hint: "1", value: t?.paths },
      { name: "max_age", label: "Measurements are old after", hint: "15 min", value: t && seconds(t.max_age) },
    ],
    call({ name = current?.name || "NAME", ...v }) {
      const { min_throughput, max_delay, max_jitter, max_loss, max_throughput, io_aware, ...others } = v;
      const { sites, cores, memory, ...rest } = others;
      const plain = Object.entries(rest).filter(([key]) => !/^(weight|trigger)_/.test(key));
      // Limits and times that the form has no field for stay.
      const triggers = METRICS.map((metric) => [metric, v[`trigger_${metric}`]])
        .filter(([, action]) => action)
        .map(([metric, action]) => [metric, { ...t?.triggers[metric], action }]);
      const given = filled({
        ...(t && { tables: t.tables, tuning: t.tuning, relay_tls: t.relay_tls }),
        ...Object.fromEntries(plain),
        qspec: filled({ min_throughput, max_delay, max_jitter, max_loss }),
        rspec: filled({ max_throughput, sites, cores, memory }),
        triggers: triggers.length ? Object.fromEntries(triggers) : undefined,
        weights: filled(Object.fromEntries(METRICS.map((metric) => [metric, v[`weight_${metric}`]]))),
        io_aware: io_aware && io_aware === "yes",
      });
      return { method: "PUT", path: path(name), body: given };
    },
    command: (typed) => ["template", "save", current?.name || typed.name || "NAME", "--file", "/dev/stdin"],
    input: JSON.stringify,
    done: (answer) => [`version ${answer.version} is saved`, ...answer.lowered].join("; "),
    also: {
      button: "Try it on my last ten transfers",
      call(values) {
        const { path: saving, body } = saved(c, current).call(values);
        return { method: "POST", path: `${saving}/try`, body };
      },
      command: (typed) => ["template", "try", current?.name || typed.name || "NAME", "--file", "/dev/stdin"],
      input: JSON.stringify,
      done(answer) {
        c.state.tried = answer;
        return answer.length
          ? `${answer.filter((trial) => trial.differs).length} of ${answer.length} would take another path`
          : "No path was compared for you yet";
      },
    },
  };
}

/** What a template would have chosen for the last transfers, beside what they got. */
function tried(c) {
  const list = c.state.tried || [];
  const way = ({ path: nodes }) => (nodes.length ? nodes.join(" → ") : "no path");
  const scored = ({ q }) => q !== null && small(`Q ${number(q)}`);
  return listed(
    "tried",
    "What it would have chosen",
    "as their paths were when they were compared; the latest first",
    ["transfer", "took |", "would take |", "minimum #", "asked for #", "why ="],
    list.map(({ id, template: used, then, now, differs, requested_at: at, why }) => ({
      key: id,
      cells: [
        [entry("transfers", id), small(used)],
        [way(then), scored(then)],
        [differs ? el("strong", {}, way(now)) : "the same", scored(now)],
        [rate(now.min_bps), now.min_bps !== then.min_bps && small(`was ${rate(then.min_bps)}`)],
        clock(at, c.now()),
        why,
      ],
    })),
  );
}

const restored = (c, history) => ({
  name: "restore",
  title: "Restore an older version",
  may: "save_templates",
  button: "Restore",
  fields: [
    {
      name: "version", label: "Version", kind: "number", required: true,
      options: ["", ...history.filter((doc) => doc.entry).map((doc) => String(doc.version))],
    },
  ],
  call: (body) => ({ method: "POST", path: path(c.id, "/restore"), body }),
  command: (typed) => ["template", "save", c.id, ...given("--revision", typed.version)],
  done: (answer) => `version ${answer.version} is saved`,
});

const removed = (c) => ({
  name: "delete",
  title: "Delete its saved versions",
  about: "A configured or built-in template of this name applies again.",
  may: "save_templates",
  button: "Delete",
  fields: [],
  call: () => ({ method: "DELETE", path: path(c.id) }),
  command: () => ["template", "delete", c.id],
  done: () => "its saved versions are deleted",
});
