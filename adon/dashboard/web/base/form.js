// A form that asks the broker for something, and shows the same as a command and as a REST call.
//
// A form is {name, title, fields, call, command, done, button}: `call(values)` gives {method, path,
// body} with bytes, b/s, seconds and Unix seconds, `command(typed)` the words of a command line with
// what was typed. A field is {name, label, kind, options, value, required, hint}. `any` says in
// words that one of them at least is needed. `also` is a second thing to do with the same fields,
// {button, call, command, input, done}, which changes nothing.

import { send } from "./api.js";
import { el } from "./dom.js";
import { fold, option } from "./parts.js";

const DECIMAL = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, p: 1e15 };
const BINARY = { ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40, pi: 2 ** 50 };
const QUANTITIES = {
  rate: [/^([0-9.]+)\s*([kmgtp]?)(?:b\/s|bit\/s|bps)?$/i, DECIMAL, "a rate such as 100 Mb/s"],
  size: [/^([0-9.]+)\s*([kmgtp]i?)?b?$/i, { ...DECIMAL, ...BINARY }, "a size such as 25 GB"],
  seconds: [/^([0-9.]+)\s*(s|min|h|d)?$/i, { "": 1, s: 1, min: 60, h: 3600, d: 86400 }, "a time such as 15 min"],
};
const TYPES = { instant: "datetime-local", number: "number" };
const KINDS = {
  instant: (text) => new Date(text).getTime() / 1000,
  number: Number,
  words: (text) => text.split(/[\s,]+/).filter(Boolean),
};

/** What a text of a kind means. Throws Error with what was found and expected. */
export function parsed(kind, text) {
  if (!QUANTITIES[kind]) return KINDS[kind] ? KINDS[kind](text) : text;
  const [pattern, scales, expected] = QUANTITIES[kind];
  const [, figure, unit = ""] = text.match(pattern) || [];
  const value = Number(figure) * scales[unit.toLowerCase()];
  if (!Number.isFinite(value)) throw new Error(`found “${text}”, expected ${expected}`);
  return value;
}

/** An instant that was typed, as commands take it. */
export const instant = (text) => text && new Date(text).toISOString().replace(".000Z", "Z");

/** The option of a command with its value, where there is one. */
export const given = (name, value) => (value ? [name, value] : []);

const stateOf = (c, name) => ((c.state.forms ||= {})[name] ||= { typed: {}, answer: "", wrong: "" });

function valueOf(c, spec, field) {
  return stateOf(c, spec.name).typed[field.name] ?? field.value ?? "";
}

const fieldsOf = (spec) => spec.fields.filter(Boolean);
const typedOf = (c, spec) =>
  Object.fromEntries(fieldsOf(spec).map((field) => [field.name, String(valueOf(c, spec, field)).trim()]));

/** What was typed, as the broker takes it; what is empty is left out. */
function valuesOf(c, spec) {
  const values = {};
  for (const [name, text] of Object.entries(typedOf(c, spec))) {
    if (text === "") continue;
    const { kind, label } = fieldsOf(spec).find((field) => field.name === name);
    try {
      values[name] = parsed(kind, text);
    } catch (error) {
      throw new Error(`${label}: ${error.message}`);
    }
  }
  return values;
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** Words as a shell takes them; one that has `input` reads it as a here-document. */
const shell = (words, input) =>
  words.map(quoted).join(" ") + (input ? ` <<'END'\n${input}\nEND` : "");

function curl({ method, path, body }) {
  const auth = `-H "Authorization: Bearer $(cat "$ADON_TOKEN_FILE")"`;
  const data = body ? ` \\\n  -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}` : "";
  return `curl -X ${method} ${auth} \\\n  ${quoted(location.origin + path)}${data}`;
}

/** The form as nodes, to unfold; nothing where there is none, or the caller may not send it. */
export function form(c, spec) {
  if (!spec || !c.may(spec.may)) return null;
  (c.forms ||= new Map()).set(spec.name, spec);
  return fold(`form:${spec.name}`, spec.title, inner(c, spec));
}

function inner(c, spec) {
  const s = stateOf(c, spec.name);
  return el(
    "form",
    { "data-form": spec.name, class: "form", novalidate: true },
    spec.about && el("p", { class: "soft" }, spec.about),
    el("div", { class: "filters" }, fieldsOf(spec).map((field) => control(c, spec, field))),
    spec.drawn?.(typedOf(c, spec)),
    el(
      "div",
      { class: "row" },
      el("button", { type: "submit", class: "main", disabled: s.busy }, spec.button || spec.title),
      spec.also && el("button", { type: "submit", value: "also", disabled: s.busy }, spec.also.button),
      s.wrong && el("span", { class: "bad" }, s.wrong),
      s.answer && el("span", { class: "good" }, s.answer),
    ),
    equivalents(c, spec),
  );
}

function lacking(c, spec) {
  const typed = typedOf(c, spec);
  const field = fieldsOf(spec).find(({ name, required }) => required && !typed[name]);
  return field || (spec.any && !Object.values(typed).some(Boolean) && { label: spec.any });
}

function equivalents(c, spec) {
  if (lacking(c, spec)) return null;
  const typed = typedOf(c, spec);
  return [spec, spec.also].filter(Boolean).map(({ button, call, command, input }, second) => {
    let request = null;
    try {
      request = call(valuesOf(c, spec));
    } catch {
      return null; // what is wrong is said when it is sent
    }
    const name = spec.name + (second ? "-also" : "");
    return [
      el("p", { class: "soft" }, `${spec.also ? `${button}: the` : "The"} same as a command, and as a REST call:`),
      el("pre", { "data-command": name, tabindex: "0" }, shell(["adon", ...command(typed)], input?.(request.body))),
      el("pre", { "data-call": name, tabindex: "0" }, curl(request)),
    ];
  });
}

function control(c, spec, field) {
  const value = String(valueOf(c, spec, field));
  const common = { name: field.name, "data-field": spec.name, required: field.required };
  return el(
    "label",
    {},
    field.label,
    field.options
      ? el(
          "select",
          common,
          field.options.map((each) => (Array.isArray(each) ? option(...each, value) : option(each, each, value))),
        )
      : el("input", {
          ...common,
          type: TYPES[field.kind] || "text",
          value,
          placeholder: field.hint,
          autocomplete: "off",
          spellcheck: "false",
          step: field.kind === "number" ? "any" : null,
        }),
  );
}

/** Take what is typed into a field. */
export function typed(c, input) {
  const s = stateOf(c, input.dataset.field);
  Object.assign(s, { answer: "", wrong: "", typed: { ...s.typed, [input.name]: input.value } });
  c.redraw();
}

/** Send a form, or do with it what it `also` offers. What the broker refuses is said beside the button. */
export async function submitted(c, name, also) {
  const spec = c.forms.get(name);
  const deed = also ? spec.also : spec;
  const s = stateOf(c, name);
  if (s.busy) return;
  Object.assign(s, { busy: true, answer: "", wrong: "" });
  try {
    const field = lacking(c, spec);
    if (field) throw new Error(`${field.label} is needed`);
    const { method, path, body } = deed.call(valuesOf(c, spec));
    s.answer = deed.done((await send(method, path, body)) ?? {});
    if (!also) s.typed = {};
  } catch (error) {
    s.wrong = error.message;
  }
  s.busy = false;
  c.say(s.wrong || s.answer);
  if (also) c.redraw();
  else await c.reload();
}
