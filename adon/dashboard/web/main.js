// Which page is shown, what it is told, and when it is drawn again.
//
// A page is {title, load, view} and, where it wants them, {metrics, found, changes, every, poll, actions}:
// `load` asks the broker, `view` makes nodes of what is known, `found` takes what the feed brings of
// `metrics`, `changes` says that changes of transits, policies and templates are to be loaded. `every`
// so many milliseconds `poll`, or else `load`, asks for what no feed tells. What users do
// comes by `data-act` to `actions`. What they choose is in the address (`c.chosen`, `c.choose`): where
// that changes the page is loaded, or does what it needs to in `same`.

import { ApiError, follow, get, now, setToken, token } from "./base/api.js";
import { become, el } from "./base/dom.js";
import { clock, decoded, zone } from "./base/format.js";
import { TYPED_MS, heading } from "./base/parts.js";
import { submitted, typed } from "./base/form.js";
import { accounts } from "./network/accounts.js";
import { agents } from "./measurements/agents.js";
import { decisions } from "./network/decisions.js";
import { begin, finish, logins } from "./base/login.js";
import { measurements } from "./measurements/measurements.js";
import { network } from "./network/network.js";
import { pairs } from "./network/pairs.js";
import { policies } from "./network/policies.js";
import { pool } from "./measurements/pool.js";
import { relays } from "./network/relays.js";
import { template, templates } from "./network/templates.js";
import { transfer } from "./network/transfer.js";
import { transfers } from "./network/transfers.js";
import { workflow } from "./workflows/workflow.js";
import { workflows } from "./workflows/workflows.js";

const PAGES = {
  workflows,
  transfers,
  network,
  pairs,
  relays,
  decisions,
  measurements,
  agents,
  pool,
  templates,
  policies,
  accounts,
};
const EACH = { workflows: workflow, transfers: transfer, templates: template }; // one of many
const SLOW_MS = 1000; // how often a page loads again while there is no feed
const REFUSED_MS = 3000;
const QUICK_MS = 150; // after a change, for more of them that come together
const BETWEEN_MS = [1000, 3000]; // of two changes that are loaded, at least and at most
const DRAW_MS = 150; // many changes in a short time are drawn together
const byId = (id) => document.getElementById(id);
let failed = ""; // why a login did
let caller = null; // who asks, as the broker knows it
let shown = null; // {page, parameters, state, stop, …} of the page that is shown

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const chosen = name in PAGES ? name : "workflows";
  const id = decoded(rest.join("/"));
  const page = (id && EACH[chosen]) || PAGES[chosen];
  return { name: chosen, page, id, query: new URLSearchParams(query || "") };
}

function drawNav(current) {
  become(
    byId("nav"),
    Object.entries(PAGES).map(([name, page]) =>
      el(
        "a",
        { href: `#/${name}`, "aria-current": name === current ? "page" : null, "data-key": name },
        page.title,
      ),
    ),
  );
}

function line(state, words) {
  const at = byId("line");
  if (at.dataset.state !== state) at.dataset.state = state;
  if (at.textContent !== words) at.textContent = words;
}

/** Tell those who do not see the page what has changed. */
function say(words) {
  byId("said").textContent = words;
}

/** The page of now. Its context is what page functions get. */
function open() {
  const going = route();
  if (shown && shown.page === going.page && shown.id === going.id) {
    shown.query = going.query;
    chosen(shown);
    return;
  }
  const moved = shown !== null;
  if (shown) shown.stop.abort();
  const stop = new AbortController();
  const context = {
    ...going,
    stop,
    signal: stop.signal,
    state: {},
    say,
    now,
    loaded: false,
    error: null,
    busy: false,
    may: (what) => Boolean(caller?.may.includes(what)),
    chosen: (...names) => Object.fromEntries(names.map((name) => [name, context.query.get(name) || ""])),
    choose: (changes) => choose(context, changes),
    redraw: () => draw(context),
    reload: () => load(context),
    later: () => later(context),
    follow: (again = false) => listen(context, again),
    early: () => {
      // What is known first is shown while the rest is asked for.
      context.loaded = true;
      draw(context);
    },
  };
  shown = context;
  drawNav(going.name);
  document.title = `${going.page.title} – ADON`;
  if (going.page.begin) going.page.begin(context);
  draw(context);
  start(context);
  if (moved) {
    window.scrollTo(0, 0);
    byId("main").focus({ preventScroll: true });
  }
}

/** Put what a user has chosen into the address, where reload, link and bookmark find it. What is
 * empty is left out. */
function choose(context, changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value || value === 0) context.query.set(name, value);
    else context.query.delete(name);
  }
  const [path] = location.hash.split("?");
  const query = context.query.toString();
  history.replaceState(null, "", query ? `${path}?${query}` : path);
}

/** Something else is chosen than before. */
function chosen(context) {
  draw(context);
  (context.page.same || load)(context);
}

async function start(context) {
  const { page, signal } = context;
  context.askedAt = performance.now();
  // What changes while it is loaded is told too: the feed begins first.
  if (fed(page)) listen(context, true);
  else await load(context);
  const tick = async () => {
    if (context.error?.status === 401) return; // until somebody says who asks
    // Without a feed everything is asked for; what is refused is not asked for so often.
    const due = context.error ? REFUSED_MS : context.live || !fed(page) ? page.every : SLOW_MS;
    if (document.hidden) {
      // Nobody looks; what was missed is asked for when somebody does.
    } else if (performance.now() - context.askedAt >= due - 50) {
      await load(context, (context.live && !context.error && page.poll) || page.load);
    } else {
      draw(context); // "5 s ago" grows older
    }
    if (!signal.aborted) setTimeout(tick, SLOW_MS);
  };
  setTimeout(tick, SLOW_MS);
}

/** Take what is recorded and changed from now on, and with `again` load as soon as it is told; of the
 * metrics that the page wants now. */
function listen(context, again) {
  const { page, signal } = context;
  let missed = again;
  context.line?.abort();
  context.line = new AbortController();
  context.live = false;
  status(context);
  if (!fed(page)) return;
  follow(
    page.metrics?.(context) || [],
    page.changes || null,
    {
      state: (name) => {
        context.live = name === "live";
        status(context);
        if (context.live ? missed : again) load(context); // once without a feed, too
        again = false;
        missed = !context.live;
      },
      found: (list) => {
        if (page.found(context, list) !== false) soon(context);
      },
      changed: () => later(context),
    },
    AbortSignal.any([signal, context.line.signal]),
  );
}

/** Whether the feed tells what a page shows. */
const fed = (page) => Boolean(page.metrics || page.changes);

function status(context) {
  if (context !== shown) return;
  const every = fed(context.page) ? SLOW_MS : context.page.every;
  if (context.error) line("off", context.error.code === "unreachable" ? "not connected" : "refused");
  else if (context.live) line("live", "live");
  else line("poll", every === 1000 ? "every second" : `every ${every / 1000} s`);
}

/** Load what has changed, but not for each of many changes, and not for most of the time. */
function later(context) {
  if (context.due) return;
  const [least, most] = BETWEEN_MS;
  const apart = Math.min(most, Math.max(least, 3 * (context.loadMs || 0)));
  const rest = apart - (performance.now() - (context.askedAt || 0));
  context.due = setTimeout(
    () => {
      context.due = 0;
      if (!context.signal.aborted && !document.hidden) load(context);
    },
    Math.max(QUICK_MS, rest),
  );
}

async function load(context, ask = context.page.load) {
  if (context.busy) {
    context.more = true; // it may have asked before what is wanted now
    return;
  }
  context.busy = true;
  context.more = false;
  const began = performance.now();
  try {
    if (!caller) named(await get("/v1/caller", {}, context.signal));
    await ask(context);
    context.error = null;
    context.loaded = true;
    context.told = now();
    status(context);
  } catch (error) {
    if (error.name === "AbortError" || context.signal.aborted) return;
    if (!(error instanceof ApiError)) throw error;
    context.error = error;
    status(context);
    if (error.status === 401) askToken(token() ? error.message : "This broker needs a token.");
  } finally {
    context.busy = false;
    context.askedAt = performance.now();
    if (ask === context.page.load) context.loadMs = context.askedAt - began;
  }
  if (context.signal.aborted) return;
  draw(context);
  if (context.more) await load(context);
}

function named(answer) {
  caller = answer;
  byId("who").textContent = answer.name ? `${answer.name}, ${answer.role}` : "";
}

/** Draw once for all that comes within a short time, and never more than a third of the time. */
function soon(context) {
  if (context.waiting) return;
  context.waiting = true;
  const rest = Math.max(DRAW_MS, 2 * (context.tookMs || 0));
  const draws = () => {
    context.waiting = false;
    if (!context.signal.aborted) draw(context);
  };
  setTimeout(draws, Math.max(0, rest - (performance.now() - (context.drawnAt || 0))));
}

function draw(context) {
  if (context !== shown) return;
  const main = byId("main");
  context.width = Math.max(260, main.clientWidth - 2 * parseFloat(getComputedStyle(main).paddingLeft));
  const { page, error } = context;
  const wrong =
    error &&
    el("p", { class: "note bad-note", role: "alert", "data-key": "wrong" }, refused(error, context.told));
  if (!context.loaded) {
    become(main, [
      wrong && page.back?.(),
      heading(page.title),
      wrong || el("p", { class: "soft", "data-key": "wait" }, "Loading …"),
    ]);
    return;
  }
  const began = performance.now();
  become(main, [wrong, viewed(context)]);
  context.drawnAt = performance.now();
  context.tookMs = context.drawnAt - began;
  byId("key").hidden = !token();
}

/** Why there is nothing, in words of the page: it knows where a token is given. */
function refused(error, told) {
  if (error.status === 401 && !token())
    return "This broker needs a token: “Token”, at the top right, takes it.";
  return told ? `${error.message}: what is shown is of ${clock(told, now())}` : error.message;
}

/** The page, or in words that it cannot be drawn: a fault of ours must not look like no news. */
function viewed(context) {
  try {
    return context.page.view(context);
  } catch (error) {
    reportError(error);
    return [
      heading(context.page.title),
      el("p", { class: "note bad-note", role: "alert" }, `This page cannot be drawn: ${error.message}`),
    ];
  }
}

async function offerLogins() {
  const offered = await logins().catch(() => []);
  become(
    byId("logins"),
    offered.map((offer) => {
      const words = `Log in with ${new URL(offer.issuer).hostname}`;
      const button = el("button", { type: "button", class: "main", "data-key": offer.issuer }, words);
      button.addEventListener("click", () => begin(offer));
      return button;
    }),
  );
}

function askToken(why) {
  const dialog = byId("ask");
  offerLogins();
  byId("forget").hidden = !token();
  byId("ask-why").textContent = failed ? `The login failed: ${failed}` : why;
  byId("key").hidden = false;
  if (!dialog.open) dialog.showModal();
  byId("token").focus();
}

function again() {
  failed = "";
  caller = null;
  if (shown) shown.stop.abort();
  shown = null;
  open();
}

const own = {
  skip(c, from, event) {
    event.preventDefault();
    byId("main").focus();
  },
  key: () => askToken("Another token, or none with a client certificate."),
  cancel: () => byId("ask").close(),
  forget() {
    setToken("");
    byId("ask").close();
    again();
  },
  choose(c, from) {
    c.choose({ [from.name]: from.type === "checkbox" ? from.checked && "yes" : from.value.trim() });
    draw(c);
    clearTimeout(c.typing);
    c.typing = setTimeout(() => c.signal.aborted || chosen(c), from.type === "search" ? TYPED_MS : 0);
  },
};

function act(event) {
  const from = event.target.closest("[data-act]");
  if (!from) return;
  const listens = from.matches("select, input")
    ? from.matches('[type="range"], [type="search"]')
      ? "input"
      : "change"
    : "click";
  if (event.type !== listens) return;
  const action = own[from.dataset.act] || shown?.page.actions?.[from.dataset.act];
  action?.(shown, from, event);
}

for (const kind of ["click", "change", "input"]) document.addEventListener(kind, act);
document.addEventListener("input", (event) => {
  if (event.target.dataset.field) typed(shown, event.target);
});
document.addEventListener("submit", (event) => {
  if (event.target.dataset.form !== "token") {
    event.preventDefault();
    submitted(shown, event.target.dataset.form, event.submitter?.value === "also");
    return;
  }
  setToken(byId("token").value.trim());
  byId("token").value = "";
  again();
});
let resized = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(() => shown && draw(shown));
});
byId("zone").textContent = `Times are those of this device: ${zone()}.`;
window.addEventListener("hashchange", open);
// Browsers keep few lines to one broker, for all tabs together: one that nobody sees gives its back.
document.addEventListener("visibilitychange", () => {
  if (!shown?.line) return;
  if (document.hidden) shown.line.abort();
  else listen(shown, true);
});
failed = await finish();
open();
if (failed) askToken("");
