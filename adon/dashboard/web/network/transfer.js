// One transfer: why it has its path or waits, and what its owner may change.

import { get } from "../base/api.js";
import { candidates } from "./decisions.js";
import { el } from "../base/dom.js";
import { bytes, clock, duration, percent, rate, words } from "../base/format.js";
import { form, given } from "../base/form.js";
import { blocked } from "../drawings/holdings.js";
import { back, cards, entry, facts, heading, note, soft, state, table, why, workflowLink } from "../base/parts.js";

const LIVE = ["queued", "held", "installed", "active"];
const path = (c, rest = "") => `/v1/transits/${c.id.split("/").map(encodeURIComponent).join("/")}${rest}`;

export const transfer = {
  title: "Transfer",
  back: () => back("transfers"),
  changes: true,
  every: 60000,

  begin(c) {
    c.state = { t: null };
  },

  async load(c) {
    const t = await get(path(c), {}, c.signal);
    document.title = `${t.id} – ADON`;
    if (c.state.t && c.state.t.state !== t.state) c.say(`${t.id} is ${t.state}`);
    c.state.t = t;
  },

  view(c) {
    const { t } = c.state;
    const now = c.now();
    return [
      back("transfers"),
      heading(t.id, [state(words(t.state)), ` ${t.src} → ${t.dst}`]),
      t.reason && why(t.reason),
      t.blocking?.length > 0 && note(`There is no room on ${blocked(t)}.`),
      (t.warnings || []).map((each) => note(each)),
      cards({
        minimum: rate(t.requested_bps),
        maximum: t.uncapped ? ["no ceiling", `${rate(t.max_bps)} on its path`] : rate(t.max_bps),
        granted: t.granted_bps ? rate(t.granted_bps) : "–",
        moved: [bytes(t.bytes || t.switch_bytes), t.size_bytes ? `of ${bytes(t.size_bytes)}` : ""],
        goodput: t.goodput_bps ? rate(t.goodput_bps) : "–",
      }),
      LIVE.includes(t.state) ? [form(c, changed(c, t)), form(c, released(c))] : null,
      facts({
        path: (t.parts?.length ? t.parts : [t]).map((part) => part.path.join(" → ")).join("; ") || "best effort",
        requested: clock(t.requested_at, now),
        "could start": t.earliest ? clock(t.earliest, now) : "",
        "reserved from": t.start ? clock(t.start, now) : "",
        "reserved until": t.end ? clock(t.end, now) : "",
        "on the switches since": t.installed_at ? clock(t.installed_at, now) : "",
        "released": t.released_at ? clock(t.released_at, now) : "",
        "lease until": t.lease_until && !t.released_at ? clock(t.lease_until, now) : "",
        outcome: t.outcome,
        took: t.seconds ? duration(t.seconds) : "",
        doubt: t.doubt,
        promise: t.kept?.state ? promise(t.kept) : "",
        user: t.user,
        project: t.project,
        template: t.template && entry("templates", t.template),
        tuning: t.tuning?.why,
        workflow: t.workflow && workflowLink(t.workflow),
        job: t.job,
      }),
      el("h2", {}, "Paths that were compared"),
      candidates({ choices: t.candidates || [], details: { path: t.path } }) ||
        soft("None: nothing was reserved for it."),
      t.changes?.length ? rates(t, now) : null,
    ];
  },
};

const promise = (kept) => {
  const seen = kept.kept_s + kept.less_s + kept.broken_s;
  const share = seen ? `, kept for ${percent(1 - kept.broken_s / seen)} of ${duration(seen)}` : "";
  return `${kept.state}${share}${kept.why ? `: ${kept.why}` : ""}`;
};

const rates = (t, now) => [
  el("h2", {}, "Changes of its rates"),
  table(
    "the latest first",
    ["at", "minimum #", "maximum #", "why ="],
    [...t.changes].reverse().map((change) => ({
      key: String(change.at),
      cells: [
        clock(change.at, now),
        `${rate(change.was_min_bps)} → ${rate(change.min_bps)}`,
        `${rate(change.was_max_bps)} → ${rate(change.max_bps)}`,
        change.why || "its owner",
      ],
    })),
    { titled: true },
  ),
];

const changed = (c, t) => ({
  name: "change",
  title: "Change its rates",
  may: "request",
  any: "A minimum or a maximum",
  fields: [
    { name: "min_bps", label: "Minimum", kind: "rate", hint: rate(t.requested_bps) },
    { name: "max_bps", label: "Maximum", kind: "rate", hint: rate(t.max_bps) },
  ],
  call: (body) => ({ method: "PATCH", path: path(c), body }),
  command: (typed) => ["transit", "change", c.id, ...given("--min", typed.min_bps), ...given("--max", typed.max_bps)],
  done: (answer) => `${rate(answer.requested_bps)} to ${rate(answer.max_bps)}`,
});

const released = (c) => ({
  name: "release",
  title: "Release it",
  about: "Others get its bandwidth, and queued transfers may start.",
  may: "release",
  fields: [],
  call: () => ({ method: "POST", path: path(c, "/release"), body: {} }),
  command: () => ["transit", "release", c.id],
  done: (answer) => `it is ${answer.state}`,
});
