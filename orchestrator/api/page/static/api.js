// Requests to the daemon's API, and the stream of a run's events.
import { lost, session } from "./state.js";

const FIRST_PAUSE = 250; // milliseconds between two tries to connect; doubled up to LONGEST_PAUSE
const LONGEST_PAUSE = 8000;

export class Refused extends Error {
  constructor(status, detail) {
    super(detail?.message ?? `HTTP ${status}`);
    this.status = status;
    this.problems = detail?.problems ?? [];
  }
}

export class Lost extends Error {}

let source = null; // what answers instead of a daemon, in a file of `orchestrator export --html`

export function answerBy(other) {
  source = other;
}

export function isRecorded() {
  return source !== null;
}

// Return the JSON of an answer, null if it has none. Throws Refused, Lost.
export async function ask(method, path, body, more = {}) {
  if (source) return source.answer(path);
  const options = { method, cache: "no-store", ...more };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { ...more.headers, "Content-Type": "application/json" };
  }
  const response = await answer(path, options);
  return response.status === 204 ? null : response.json();
}

// Return the text of an answer. Throws Refused, Lost.
export async function askText(path) {
  return source ? source.answer(path) : (await answer(path, { cache: "no-store" })).text();
}

async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost.value = true;
    throw new Lost(error.message);
  }
  lost.value = false;
  if (response.status === 401) session.value = null;
  if (!response.ok) {
    const text = await response.json().catch(() => null);
    throw new Refused(response.status, text?.error);
  }
  return response;
}

export function runPath(run, ...parts) {
  return ["/v1/runs", run, ...parts].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/");
}

// Names of artifacts may have folders. Without a daemon, returns null for one that there is none of.
export function artifactPath(run, name) {
  if (source) return source.file(name);
  return `${runPath(run, "artifacts")}/${name.split("/").map(encodeURIComponent).join("/")}`;
}

// Call `onEvent(event, number)` for each event of a stream after number `after`, once and in order, and `onProgress` for what
// is between them, until `isLast(event)`, or `isOver()` when the stream ends. A lost connection is made again. A page that
// nobody sees has none, since browsers allow six to a host. A stream that the daemon refuses ends with `onRefused(error)`.
// Returns a function that stops this.
export function follow(path, after, { onEvent, onProgress, onState, onRefused, isLast = () => false, isOver }) {
  if (source) {
    source.events.slice(after).forEach((event, at) => onEvent(event, after + at + 1));
    onState("ended");
    return () => {};
  }
  const stop = new AbortController();
  let last = after;
  let ended = false;

  function take(message) {
    if (message.event === "progress") return onProgress(JSON.parse(message.data));
    const number = Number(message.id);
    if (!message.id || number <= last) return undefined;
    last = number;
    const event = JSON.parse(message.data);
    ended ||= isLast(event);
    return onEvent(event, number);
  }

  async function connect() {
    const connection = new AbortController();
    const leave = () => document.hidden && connection.abort();
    document.addEventListener("visibilitychange", leave);
    try {
      const headers = { "Last-Event-ID": String(last) };
      const response = await answer(path, { headers, signal: AbortSignal.any([stop.signal, connection.signal]), cache: "no-store" });
      onState("open");
      for await (const message of messages(response.body)) take(message);
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
  }

  async function keep() {
    let pause = FIRST_PAUSE;
    while (!ended && !stop.signal.aborted) {
      if (document.hidden) await seen(stop.signal);
      const before = last;
      try {
        await connect();
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Refused && error.status < 500 && error.status !== 429) {
          onState("refused");
          onRefused(error);
          return;
        }
      }
      ended ||= isOver();
      if (ended) break;
      if (document.hidden) continue;
      onState("lost");
      pause = last > before ? FIRST_PAUSE : Math.min(2 * pause, LONGEST_PAUSE);
      await sleep(pause, stop.signal);
    }
    if (!stop.signal.aborted) onState("ended");
  }

  keep();
  return () => stop.abort();
}

// Wait until somebody sees the page again, or the signal.
export function seen(signal) {
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}

// Yield the server-sent events of a stream; an incomplete one at its end is dropped.
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) yield fields(block);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function fields(block) {
  const message = { event: "", id: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") message.data += (message.data ? "\n" : "") + value;
    else if (name in message) message[name] = value;
  }
  return message;
}

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    const wake = () => {
      clearTimeout(timer);
      resolve();
    };
    addEventListener("online", wake, { once: true });
    signal.addEventListener("abort", wake, { once: true });
  });
}
