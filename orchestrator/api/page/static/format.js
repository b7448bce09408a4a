// Times, numbers and foreign texts, as people read them.
import { language } from "./state.js";

const DAY = 86400; // seconds
const formats = new Map();

function cached(make, kind, options) {
  const key = `${language.value} ${kind} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, make(language.value, options));
  return formats.get(key);
}

export function number(value, digits = 0) {
  const options = { maximumFractionDigits: digits, minimumFractionDigits: digits };
  return cached((name, how) => new Intl.NumberFormat(name, how), "number", options).format(value);
}

// In the reader's zone.
export function moment(seconds) {
  const options = { dateStyle: "medium", timeStyle: "short" };
  return cached((name, how) => new Intl.DateTimeFormat(name, how), "date", options).format(1000 * seconds);
}

export function momentInSeconds(seconds) {
  const options = { dateStyle: "medium", timeStyle: "medium" };
  return cached((name, how) => new Intl.DateTimeFormat(name, how), "date", options).format(1000 * seconds);
}

// A moment at a mark of an axis, whose marks are `step` seconds apart.
export function markOf(seconds, step) {
  const date = new Date(1000 * seconds);
  const isDay = step >= DAY || date.getHours() + date.getMinutes() + date.getSeconds() === 0;
  const options = step >= 28 * DAY ? { month: "short", year: "numeric" } : isDay ? { day: "numeric", month: "short" } : { timeStyle: step < 60 ? "medium" : "short" };
  return cached((name, how) => new Intl.DateTimeFormat(name, how), "date", options).format(date);
}

export function momentInFull(seconds) {
  const options = { dateStyle: "full", timeStyle: "long" };
  return cached((name, how) => new Intl.DateTimeFormat(name, how), "date", options).format(1000 * seconds);
}

export function iso(seconds) {
  return new Date(1000 * seconds).toISOString();
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${number(seconds, 2)} s`;
  if (seconds < 60) return `${number(seconds, 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function bytes(size) {
  if (size < 1000) return `${size} B`;
  if (size < 1e6) return `${number(size / 1000, 1)} kB`;
  return size < 1e9 ? `${number(size / 1e6, 1)} MB` : `${number(size / 1e9, 2)} GB`;
}

// Characters that hide, reorder or cannot be seen, all but line breaks, tabs, and what only says how an emoji looks.
const UNSEEN = /(?!(?<=\p{Emoji})[\ufe0e\ufe0f])(?![\t\n])[\p{Cc}\p{Cs}\p{DI}\u2028\u2029\ufff9-\ufffb]/gu;

// Return a text of a model or a user with such characters as their code.
export function shown(text) {
  return String(text ?? "").replace(UNSEEN, (sign) => {
    const code = sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    return `⟨U+${code}⟩`;
  });
}

// The same in one line.
export function line(text) {
  return shown(String(text ?? "").replace(/\s+/g, " ").trim());
}
