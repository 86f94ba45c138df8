// Every transfer that asked for a path: what it wants, what it got, how it ended and why.

import { get } from "../base/api.js";
import { el } from "../base/dom.js";
import { clock, words } from "../base/format.js";
import { form, given, instant } from "../base/form.js";
import { entry, small, spans, state } from "../base/parts.js";
import { records } from "../base/records.js";

const STATES = ["queued", "held", "installed", "active", "released", "expired", "failed", "best_effort"];

const succeeded = (t) => !t.outcome || t.outcome === "success";

export const sitesOf = (topology) => topology.nodes.filter((node) => node.kind === "site").map((node) => node.name);

const columns = [
  { name: "id", value: (t) => t.id, cell: (t) => entry("transfers", t.id) },
  {
    name: "state",
    half: true,
    value: (t) => t.state,
    cell: (t) => state(succeeded(t) ? words(t.state) : "failed", t.outcome),
  },
  { name: "from", value: (t) => t.src },
  { name: "to", value: (t) => t.dst },
  { name: "requested", n: true, value: (t) => t.requested_at, cell: (t, c) => clock(t.requested_at, c.now()) },
  { name: "size", unit: "byte", value: (t) => t.size_bytes },
  { name: "granted", unit: "bit/s", value: (t) => t.granted_bps || "" },
  { name: "goodput", unit: "bit/s", value: (t) => t.goodput_bps || "" },
  { name: "promise", half: true, value: (t) => t.kept?.state ?? "", cell: (t) => t.kept?.state && el("span", { title: t.kept.why }, t.kept.state) },
  { name: "user", half: true, value: (t) => t.user, cell: (t) => [t.user, t.project && small(t.project)] },
  {
    name: "reason",
    full: true,
    value: (t) => t.reason,
    cell: (t) => el("span", { class: "clamp", title: t.reason }, succeeded(t) ? t.reason : t.outcome),
  },
  ...["project", "outcome", "requested_bps", "max_bps", "bytes", "seconds", "workflow", "job"].map((name) => ({
    name,
    hidden: true,
    value: (t) => t[name],
  })),
];

export const transfers = records({
  changes: true,
  paged: true,
  title: "Transfers",
  word: "transfer",
  order: "-requested",
  filters: [
    { name: "text", label: "Search" },
    { name: "state", label: "State", options: STATES.map((name) => [name, words(name)]) },
    { name: "failed", label: "Success", options: [["true", "failed"], ["false", "not failed"]] },
    { name: "user", label: "User" },
    { name: "project", label: "Project" },
    { name: "site", label: "Site", options: (c) => c.state.sites || [] },
    { name: "last", label: "Requested in the last", options: spans(3600, 2592000) },
  ],
  columns,
  key: (t) => t.id,
  nothing: "No path has been requested yet. `adon transit request` and the form above do.",

  async ask(c, { last, ...asked }, limit) {
    const filters = Object.entries(asked).filter(([, value]) => value);
    c.state.sites ||= sitesOf(await get("/v1/topology", {}, c.signal));
    // By the minute, so that an answer that is the same has the same address.
    const since = last ? 60 * Math.floor((c.now() - Number(last)) / 60) : null;
    return get("/v1/transits", { ...Object.fromEntries(filters), since, limit }, c.signal);
  },

  above: (c) => form(c, requested(c)),
});

const requested = (c) => ({
  name: "request",
  title: "Request a transfer",
  may: "request",
  fields: [
    { name: "src", label: "From", options: ["", ...(c.state.sites || [])], required: true },
    { name: "dst", label: "To", options: ["", ...(c.state.sites || [])], required: true },
    { name: "size_bytes", label: "Size", kind: "size", hint: "25 GB" },
    { name: "min_bps", label: "Minimum", kind: "rate", hint: "the template's" },
    { name: "max_bps", label: "Maximum", kind: "rate", hint: "the template's" },
    { name: "template", label: "Template", hint: "default" },
    { name: "start", label: "Start", kind: "instant" },
    { name: "end", label: "End", kind: "instant" },
    { name: "lease_s", label: "Lease", kind: "seconds", hint: "15 min" },
    { name: "project", label: "Project" },
    { name: "id", label: "Id", value: (c.state.id ||= `web:${Math.random().toString(36).slice(2, 10)}`), required: true },
  ],
  call: (values) => ({ method: "POST", path: "/v1/transits", body: values }),
  command: (t) => [
    "transit", "request", t.src, t.dst,
    ...given("--size", t.size_bytes), ...given("--min", t.min_bps), ...given("--max", t.max_bps),
    ...given("--template", t.template), ...given("--start", instant(t.start)), ...given("--end", instant(t.end)),
    ...given("--lease", t.lease_s), ...given("--project", t.project), ...given("--id", t.id),
  ],
  done(t) {
    c.state.id = "";
    return `${t.id}: ${words(t.state)}${t.reason ? `, ${t.reason}` : ""}`;
  },
});
