// Relays: hosts at switches that carry the connections of transfers.

import { get } from "../base/api.js";
import { state } from "../base/parts.js";
import { records } from "../base/records.js";

export const relays = records({
  title: "Relays",
  word: "relay",
  order: "name",
  filters: [{ name: "ready", label: "State", options: [["yes", "ok"], ["no", "away"]] }],
  columns: [
    { name: "name", value: (r) => r.name },
    { name: "state", half: true, value: (r) => (r.unready ? "away" : "ok"), cell: (r) => state(r.unready ? "away" : "ok", r.unready) },
    { name: "switch", value: (r) => r.switch },
    { name: "address", value: (r) => r.address },
    { name: "transfers", unit: "1", value: (r) => r.transits },
    { name: "connections", unit: "1", value: (r) => r.connections },
    { name: "why it is not ready", full: true, value: (r) => r.unready },
  ],
  key: (r) => r.name,
  ask: (c) => get("/v1/relays", {}, c.signal),
  pick: (r, { ready }) => !ready || (ready === "yes") === !r.unready,
  nothing: "This network has no relays.",
});
