// A page that lists records of one kind: filtered by the broker, sorted here, with all that is chosen
// in the address, and as CSV.

import { el } from "./dom.js";
import { counted, quantity, whole } from "./format.js";
import { button, choice, empty, heading, search, table } from "./parts.js";

const SOME = 200; // asked for and drawn at once
const MOST = 100_000; // in a file
const FORMULA = /^(\s*[=+\-@＝＋－＠]|[\t\r\n])/; // also in full width

const plain = (value) => value ?? "";
const shownAs = (value, unit) => (unit ? quantity(value, unit) : String(plain(value)) || "–");

/** Rows as CSV, with units in its header. What a spreadsheet would read as a formula has an apostrophe
 * before it. */
export function csv(columns, rows) {
  const field = (value) => {
    const text = String(plain(value));
    const safe = typeof value === "string" && FORMULA.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const named = ({ name, unit }) => (unit && unit !== "1" ? `${name} (${unit})` : name);
  const lines = [columns.map(named), ...rows.map((row) => columns.map((c) => c.value(row)))];
  return lines.map((line) => `${line.map(field).join(",")}\r\n`).join("");
}

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(plain(a)).localeCompare(String(plain(b)), "en", { numeric: true });
}

/** Rows by the column that `order` names, "-" before it for the other way round. */
export function ordered(rows, columns, order) {
  const column = columns.find((c) => c.name === order.replace(/^-/, ""));
  if (!column) return rows;
  const way = order.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => way * compared(column.value(a), column.value(b)));
}

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A page. `spec`: {title, word and words (of one record, of several), filters: [{name, label, options,
 * without}] (options of a choice, and the words for none of them; or functions of `c`; without options, a
 * text), columns: [{name, value(row), its unit or cell(row, c) for what is shown of it, n, full, half,
 * hidden (in the file alone)}], order, ask(c, chosen, limit) for the rows and `c.state` of what else it
 * needs, key(row), pick(row, chosen) where the broker has no such filter, above(c), below(c), nothing,
 * paged (the broker lists the newest alone)}, and what else a page has. */
export function records(spec) {
  const { columns, filters = [], ask, key, actions = {}, above, below, nothing, pick, ...page } = spec;
  const listed = columns.filter((column) => !column.hidden);
  const chosen = (c) => c.chosen(...filters.map(({ name }) => name));
  const order = (c) => c.query.get("order") || spec.order || "";

  async function rowsOf(c, limit) {
    const rows = await ask(c, chosen(c), limit);
    return { all: rows.length, rows: pick ? rows.filter((row) => pick(row, chosen(c))) : rows };
  }

  return {
    every: page.changes ? 60000 : 5000,
    ...page,

    begin(c) {
      c.state = { rows: [], all: 0, limit: SOME };
    },
    same(c) {
      c.state.limit = SOME;
      c.reload();
    },
    async load(c) {
      Object.assign(c.state, await rowsOf(c, c.state.limit));
    },

    view(c) {
      const s = c.state;
      const by = order(c);
      const sorted = (name) => (by === name ? "ascending" : by === `-${name}` ? "descending" : "");
      const rows = ordered(s.rows, columns, by);
      const cut = spec.paged && s.all >= s.limit;
      const count = counted(rows.length, spec.word, spec.words);
      const caption = cut ? `the newest ${count}` : count;
      return [
        heading(spec.title, spec.beside?.(c)),
        above?.(c),
        el(
          "div",
          { class: "filters", role: "search" },
          filters.map((filter) => filtered(c, filter)),
          button("csv", "CSV of all"),
        ),
        rows.length
          ? table(
              caption,
              listed.map((column) => ({ n: Boolean(column.unit), ...column, sorted: sorted(column.name) })),
              rows.map((row) => ({
                key: key(row),
                cells: listed.map(({ cell, value, unit }) => cell?.(row, c) ?? shownAs(value(row), unit)),
              })),
              { sparse: true },
            )
          : empty(Object.values(chosen(c)).some(Boolean) ? "Nothing matches." : nothing || "There is none."),
        cut &&
          el(
            "p",
            {},
            button("more", `More than ${whole(s.limit)}`),
            " The columns sort those that are listed; the filters search all.",
          ),
        below?.(c),
      ];
    },

    actions: {
      order(c, from) {
        const { column } = from.dataset;
        c.choose({ order: order(c) === column ? `-${column}` : column });
        c.redraw();
      },
      more(c) {
        c.state.limit *= 5;
        c.reload();
      },
      async csv(c) {
        const { rows } = await rowsOf(c, MOST);
        save(`${spec.title.toLowerCase().replaceAll(" ", "-")}.csv`, csv(columns, ordered(rows, columns, order(c))));
        c.say(`${counted(rows.length, spec.word, spec.words)} saved`);
      },
      ...actions,
    },
  };
}

const called = (value, c) => (typeof value === "function" ? value(c) : value);

function filtered(c, { name, label, options, without = "all" }) {
  const value = c.query.get(name) || "";
  if (options) {
    const all = called(options, c).map((each) => (Array.isArray(each) ? each : [each, each]));
    return choice(name, label, [["", called(without, c)], ...all], value);
  }
  return search(name, label, value);
}
