// Values as people read them. Inside, all are bytes, bits per second, seconds and Unix seconds.

const DASH = "–";
const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits, without an exponent. */
export function number(value) {
  if (!known(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 1000) return PLAIN.format(value);
  if (size === 0 || size >= 100) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

function scaled(value, units, base) {
  if (!known(value)) return DASH;
  let at = 0;
  let left = value;
  while (Math.abs(left) >= base * 0.9995 && at < units.length - 1) {
    left /= base;
    at += 1;
  }
  return `${number(left)} ${units[at]}`;
}

export const rate = (bps) => scaled(bps, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"], 1000);
export const bytes = (count) => scaled(count, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);
export const byteRate = (value) => (known(value) ? `${bytes(value)}/s` : DASH);
export const percent = (share) => (known(share) ? `${number(share * 100)} %` : DASH);
export const whole = (count) => (known(count) ? PLAIN.format(count) : DASH);

/** How long: the two largest units that say something. */
export function duration(seconds) {
  if (!known(seconds)) return DASH;
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds);
  if (s === 0) return "0 s";
  if (s < 1e-3) return `${sign}${number(s * 1e6)} µs`;
  if (s < 1) return `${sign}${number(s * 1e3)} ms`;
  if (s < 60) return `${sign}${number(s)} s`;
  const whole = Math.round(s);
  const minutes = Math.round(s / 60);
  if (whole < 3600) return `${sign}${pair(Math.floor(whole / 60), "min", whole % 60, "s")}`;
  if (s < 86400) return `${sign}${pair(Math.floor(minutes / 60), "h", minutes % 60, "min")}`;
  const hours = Math.round(s / 3600);
  return `${sign}${pair(Math.floor(hours / 24), "d", hours % 24, "h")}`;
}

const pair = (large, unit, small, below) => `${large} ${unit}${small ? ` ${small} ${below}` : ""}`;

/** One unit is enough for what is only to be placed in time. */
export function ago(at, now) {
  if (!known(at) || at <= 0) return DASH;
  const s = now - at;
  if (s < -1) return `in ${coarse(-s)}`;
  return s < 1.5 ? "now" : `${coarse(s)} ago`;
}

function coarse(s) {
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

export const two = (value) => String(value).padStart(2, "0");

/** Local time of day, with the date where it is not today's. */
export function clock(at, now, withSeconds = true) {
  if (!known(at) || at <= 0) return DASH;
  const d = new Date(at * 1000);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}${withSeconds ? `:${two(d.getSeconds())}` : ""}`;
  return day(d) === day(new Date(now * 1000)) ? time : `${day(d)} ${time}`;
}

const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

/** For machines; nothing where no calendar has it: who records something says when it was. */
export const stamp = (at) => (Math.abs(at) <= 8.64e12 ? new Date(at * 1000).toISOString() : null);

/** The zone that all times of the pages are in, as people name it. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const off = Math.abs(minutes);
  const past = `${Math.floor(off / 60)}${off % 60 ? `:${two(off % 60)}` : ""}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  const utc = minutes ? `UTC${minutes < 0 ? "−" : "+"}${past}` : "UTC";
  return name && name !== "UTC" ? `${name}, ${utc}` : utc;
}

const SHOWN = {
  "bit/s": rate,
  byte: bytes,
  "byte/s": byteRate,
  s: duration,
  "%": (value) => `${number(value)} %`,
};
const SHARES = new Set(["loss", "cpu_use", "memory_use", "io_wait", "disk_io"]);

/** A value of a metric, in its unit. */
export function quantity(value, unit, metric = "") {
  if (!known(value)) return DASH;
  if (SHARES.has(metric)) return percent(value);
  if (SHOWN[unit]) return SHOWN[unit](value);
  return unit === "1" || !unit ? number(value) : `${number(value)} ${unit}`;
}

/** `1 job`, `2 jobs`. */
export const counted = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

/** `soykb::bwa_mem:1.0` without namespace and version. */
export const shortName = (name) => name.split("::").pop().split(":")[0];

/** `mu>tacc/l2` with an arrow. */
export const subjectText = (subject) => (subject === "" ? "whole pool" : subject.replaceAll(">", " → "));

/** The state of something, in words. */
export const words = (name) => name.replaceAll("_", " ");

/** Part of an address; as it stands where somebody cut it in the middle of a character. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
