/** Numbers, times and foreign text as people read them. Pure functions. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNKNOWN = "–";

/** Returns a number with three or more digits, or "–". */
function digits(value) {
  if (value >= 100) return WHOLE.format(value);
  return String(Number(value.toPrecision(value < 10 ? 2 : 3)));
}

/** "12,345", "–". */
export function count(value) {
  return value == null ? UNKNOWN : WHOLE.format(value);
}

/** "1 object", "2 objects". */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** "690 MB", decimal units. */
export function bytes(value) {
  if (value == null) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${digits(value)} ${units[unit]}`;
}

/** "12.4/s". */
export function rate(value) {
  if (value == null) return UNKNOWN;
  return value > 0 && value < 0.01 ? "<0.01/s" : `${digits(value)}/s`;
}

/** "85 µs", "4.2 ms", "410 ms", "1.4 s", "12 s", "3m 4s", "2h 5m", "3d 4h". */
export function duration(seconds) {
  if (seconds == null) return UNKNOWN;
  if (seconds <= 0) return "0 s";
  if (seconds < 0.001) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 9.95) return `${digits(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const steps = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "m"],
    [60, "m", 1, "s"],
  ];
  const [large, unit, small, rest] = steps.find(([it]) => whole >= it);
  const left = Math.floor((whole % large) / small);
  const text = `${count(Math.floor(whole / large))}${unit}`;
  return left ? `${text} ${left}${rest}` : text;
}

/** Like `duration`, with tenths of a second at most: for times that go on. */
export function age(seconds) {
  if (seconds == null || seconds >= 10) return duration(seconds);
  return `${Math.max(0, seconds).toFixed(1)} s`;
}

/** "12 s ago", "now", "in 3 s". */
export function ago(time, now) {
  if (time == null) return UNKNOWN;
  const seconds = Math.round(now - time);
  if (seconds === 0) return "now";
  const text = Math.abs(seconds) < 60 ? `${Math.abs(seconds)} s` : duration(Math.abs(seconds));
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-CA", { dateStyle: "short" });

/** "12:03:05" in the zone of the reader. */
export function clock(time) {
  return time == null ? UNKNOWN : CLOCK.format(time * 1000);
}

/** "2026-11-29 12:03:05" in the zone of the reader. */
export function stamp(time) {
  return time == null ? UNKNOWN : `${DAY.format(time * 1000)} ${CLOCK.format(time * 1000)}`;
}

// Control characters, and characters that change the direction or hide text.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

function named(character) {
  if (character === "\n" || character === "\t" || character === "\r") return " ";
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return `⟨${code}⟩`;
}

/** Returns one line of foreign text: cut, and with hidden characters made visible. */
export function line(text, limit = 300) {
  const whole = String(text ?? "");
  // Code points, not code units: half of a pair would be no text.
  if (whole.length <= limit) return whole.replace(HIDDEN, named);
  return `${[...whole.slice(0, limit)].slice(0, -1).join("")}…`.replace(HIDDEN, named);
}

/** Returns foreign text of several lines, with hidden characters made visible. */
export function lines(text) {
  return text.replace(HIDDEN, (it) => (it === "\n" || it === "\t" ? it : named(it)));
}
