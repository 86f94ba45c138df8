// Links and switches that are out of service for maintenance, or will be.

import { form, given, instant } from "../base/form.js";
import { clock, counted, whole } from "../base/format.js";
import { section, soft, table } from "../base/parts.js";

const elements = (topology) => [
  ...new Set([
    ...topology.links.map((each) => each.label || `${each.a}-${each.b}`),
    ...topology.nodes.filter(({ kind }) => kind === "switch" || kind === "router").map(({ name }) => name),
  ]),
];

/** The section; `drains` is null for who may not see them. */
export function maintenance(c, { drains, topology }) {
  if (drains === null) return null;
  const now = c.now();
  return section("maintenance", "Maintenance",
    drains.length
      ? table(
          "drains",
          ["link or switch", "from # |", "until # |", "active |", "transfers on it #", "reserved #", "note ="],
          drains.map((d) => ({
            key: d.element,
            cells: [
              d.element,
              d.at ? clock(d.at, now) : "now",
              d.until ? clock(d.until, now) : "cancelled",
              d.active ? (d.on.length ? "yes" : "yes: it can be switched off") : "not yet",
              whole(d.on.length),
              whole(d.reserved.length),
              [d.note, d.user].filter(Boolean).join(", "),
            ],
          })),
          { titled: true },
        )
      : soft("No link or switch is out of service, or will be."),
    form(c, drained(topology)),
    drains.length ? form(c, cancelled(drains)) : null,
  );
}

const drained = (topology) => ({
  name: "drain",
  title: "Take a link or switch out of service",
  about: "A minute before, transfers move to other paths; advance reservations move at once.",
  may: "manage",
  button: "Drain it",
  fields: [
    { name: "element", label: "Link or switch", options: ["", ...elements(topology)], required: true },
    { name: "at", label: "From (default: now)", kind: "instant" },
    { name: "until", label: "Until (default: cancelled)", kind: "instant" },
    { name: "note", label: "Note", hint: "new optics" },
  ],
  call: (body) => ({ method: "POST", path: "/v1/drains", body }),
  command: (t) => [
    "topology", "drain", t.element, ...given("--start", instant(t.at)), ...given("--end", instant(t.until)),
    ...given("--note", t.note),
  ],
  done: (d) =>
    `${d.element} ${d.active ? "is" : "will be"} out of service; ${counted(d.on.length, "transfer")} on it, ${counted(d.reserved.length, "reservation")} cannot move`,
});

const cancelled = (drains) => ({
  name: "cancel",
  title: "Put one back into service",
  may: "manage",
  button: "Put it back",
  fields: [{ name: "element", label: "Link or switch", options: ["", ...drains.map((d) => d.element)], required: true }],
  call: ({ element = "" }) => ({ method: "DELETE", path: `/v1/drains/${encodeURIComponent(element)}` }),
  command: (typed) => ["topology", "drain", "--undo", typed.element],
  done: (d) => `${d.element} is back in service`,
});
