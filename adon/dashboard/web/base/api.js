// Asking the broker. The token is kept for this tab alone.

const KEY = "adon-token";
let skew = 0; // the broker's clock minus ours, seconds

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const token = () => sessionStorage.getItem(KEY) || "";
export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** Unix seconds by the broker's clock, as far as it is known. */
export const now = () => Date.now() / 1000 + skew;

function headers(more) {
  const held = token();
  return { Accept: "application/json", ...(held && { Authorization: `Bearer ${held}` }), ...more };
}

async function refusal(answer) {
  let code = answer.status === 404 ? "not_found" : "internal";
  let message = `the broker answered ${answer.status}`;
  try {
    const body = await answer.json();
    code = body.error.code;
    message = body.error.message;
  } catch {
    // What answered is no broker: the status has to do.
  }
  return new ApiError(answer.status, code, message);
}

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the broker does not answer");
  }
  const told = Date.parse(answer.headers.get("Date") || "") / 1000 + 0.5; // it has whole seconds
  const off = told - Date.now() / 1000;
  if (Number.isFinite(off)) skew = Math.abs(off) > 2 ? off : 0;
  if (!answer.ok && answer.status !== 304) throw await refusal(answer);
  return answer;
}

const kept = new Map(); // the last answer of each path, and its ETag

function address(path, parameters) {
  const all = Object.entries(parameters || {}).flatMap(([k, v]) =>
    Array.isArray(v) ? v.map((one) => [k, one]) : [[k, v]],
  );
  const given = all.filter(([, v]) => v !== null && v !== undefined);
  const query = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return query ? `${path}?${query}` : path;
}

/** JSON of a GET, for reading alone: it may be the same as the last time. Throws ApiError. */
export async function get(path, parameters, signal) {
  const known = kept.get(path);
  const more = known ? { "If-None-Match": known.tag } : {};
  const answer = await asked(address(path, parameters), { headers: headers(more), signal });
  if (answer.status === 304) return known.data;
  const data = await answer.json();
  const tag = answer.headers.get("ETag");
  if (tag) kept.set(path, { tag, data });
  return data;
}

/** JSON of a request that changes something. Throws ApiError. */
export async function send(method, path, body) {
  const sent = body && { headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  return (await asked(path, { method, ...(sent || { headers: headers() }) })).json();
}

/** JSON of a POST. Throws ApiError. */
export const post = (path, body = {}) => send("POST", path, body);

/** What a path answers, or `otherwise` where this broker has or shows none of it. */
export async function maybe(path, parameters, signal, otherwise = null) {
  try {
    return await get(path, parameters, signal);
  } catch (error) {
    if (error instanceof ApiError && [403, 404, 409].includes(error.status)) return otherwise;
    throw error;
  }
}

const pause = (ms, signal) =>
  new Promise((done) => {
    const end = AbortSignal.any([signal, AbortSignal.timeout(ms)]);
    if (end.aborted) done();
    else end.addEventListener("abort", done, { once: true });
  });

/** Follow the broker's feed until `signal` aborts: `on.found(measurements)` for what was recorded,
 * `on.changed()` where transits, policies or templates have changed and that is wanted,
 * `on.state("live" | "off", why)` for the line. By fetch and not by EventSource, which cannot send
 * a token. After a break it goes on behind the last id that came. */
export async function follow(metrics, changes, on, signal) {
  let last = "";
  let wait = 500;
  while (!signal.aborted) {
    try {
      const more = last ? { "Last-Event-ID": last } : {};
      const answer = await asked(address("/v1/feed", { metrics, changes }), {
        headers: headers({ Accept: "text/event-stream", ...more }),
        signal,
        cache: "no-store",
      });
      on.state("live", "");
      wait = 500;
      for await (const event of events(answer.body)) {
        if (event.id) last = event.id;
        if (event.event === "change") on.changed();
        else if (event.data) on.found([JSON.parse(event.data)]);
      }
      on.state("off", "the connection was closed");
    } catch (error) {
      if (signal.aborted) return;
      on.state("off", error.message);
      if ([401, 403].includes(error.status)) return; // asking again changes nothing
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, 8000);
  }
}

/** The events of a stream (server-sent events, WHATWG HTML 9.2.6). */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) yield parsed(block);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const event = { id: "", event: "", data: "" };
  for (const line of block.split(/\r?\n/)) {
    const [, name, value] = line.match(/^([a-z]+): ?(.*)$/) || [];
    if (name === "data") event.data += (event.data && "\n") + value;
    else if (name in event) event[name] = value;
  }
  return event;
}
