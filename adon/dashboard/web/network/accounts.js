// Who used how much of the network.

import { get } from "../base/api.js";
import { spans } from "../base/parts.js";
import { records } from "../base/records.js";

export const accounts = records({
  changes: true,
  title: "Accounts",
  word: "account",
  order: "-moved",
  filters: [
    { name: "by", label: "By", options: (c) => (c.may("measure") ? ["user", "experiment"] : ["user"]), without: (c) => (c.may("measure") ? "project" : "user") },
    { name: "last", label: "Ended in the last", options: spans(86400, 31536000), without: "any time" },
  ],
  columns: [
    { name: "name", value: (row) => row.name, cell: (row) => row.name || "none" },
    { name: "transfers", unit: "1", value: (row) => row.transits },
    { name: "moved", unit: "byte", value: (row) => row.bytes },
    { name: "granted", unit: "byte", value: (row) => row.byte_seconds },
    { name: "time", unit: "s", value: (row) => row.seconds },
    { name: "mean rate", unit: "bit/s", value: (row) => (row.seconds ? (8 * row.bytes) / row.seconds : "") },
    { name: "promises kept", unit: "%", value: (row) => (row.judged_s ? 100 * (1 - row.broken_s / row.judged_s) : "") },
  ],
  key: (row) => row.name || "none",
  ask: (c, { by, last }) =>
    get(
      "/v1/accounting",
      {
        by: by || (c.may("measure") ? "project" : "user"),
        since: last ? 60 * Math.floor((c.now() - Number(last)) / 60) : null,
      },
      c.signal,
    ),
  nothing: "No transfer has ended in this time.",
  beside: () => "granted: what transfers could have moved at their granted rates",
});
