// Who used how much of the network.

import { get } from "../base/api.js";
import { bytes, duration, percent, rate, whole } from "../base/format.js";
import { records } from "../base/records.js";

const SPANS = [
  ["86400", "1 day"],
  ["604800", "1 week"],
  ["2592000", "30 days"],
  ["31536000", "1 year"],
];

export const accounts = records({
  changes: true,
  title: "Accounts",
  word: "account",
  order: "-bytes",
  filters: [
    { name: "by", label: "By", options: (c) => (c.may("measure") ? ["user", "experiment"] : ["user"]), without: (c) => (c.may("measure") ? "project" : "user") },
    { name: "last", label: "Ended in the last", options: SPANS, without: "any time" },
  ],
  columns: [
    { name: "name", value: (row) => row.name, cell: (row) => row.name || "none" },
    { name: "transfers", n: true, value: (row) => row.transits, cell: (row) => whole(row.transits) },
    { name: "bytes", n: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
    { name: "byte-seconds", n: true, value: (row) => row.byte_seconds, cell: (row) => bytes(row.byte_seconds) },
    { name: "seconds", n: true, value: (row) => row.seconds, cell: (row) => duration(row.seconds) },
    {
      name: "mean rate",
      n: true,
      value: (row) => (row.seconds ? (8 * row.bytes) / row.seconds : 0),
      cell: (row) => (row.seconds ? rate((8 * row.bytes) / row.seconds) : "–"),
    },
    {
      name: "promises kept",
      n: true,
      value: (row) => (row.judged_s ? 1 - row.broken_s / row.judged_s : 1),
      cell: (row) => (row.judged_s ? percent(1 - row.broken_s / row.judged_s) : "–"),
    },
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
  beside: () => "byte-seconds: what a transfer could have moved with what it was granted",
});
