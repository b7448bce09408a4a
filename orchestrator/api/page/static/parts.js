// Small parts that several views use.
import htm from "htm";
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ask, Lost, seen } from "./api.js";
import { iso, moment, momentInFull, momentInSeconds, number, shown } from "./format.js";
import { language, setLanguage } from "./state.js";
import { LANGUAGES, stateName, t } from "./texts.js";

export const html = htm.bind(h);

export function Text({ children }) {
  return html`<bdi>${shown(children)}</bdi>`;
}

// A text of the table whose commands are in backticks.
export function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

// What will be in an empty place, and how to get it.
export function Empty({ text, children }) {
  return html`<p class="empty">${withCode(text)} ${children}</p>`;
}

export function State({ name, doubt }) {
  return html`<span class=${`state ${stateClass(name)}`}>${stateName(name)}</span>${
    doubt ? html` <span class="state doubt" title=${shown(doubt)}>${t("doubt")}</span>` : null
  }`;
}

// The look of a state that has none of its own.
const LOOKS = {
  "passed": "done", "not run": "waiting", "planned": "waiting", "approved": "queued", "withdrawn": "cancelled", "skipped": "cancelled",
  "undone": "cancelled", "rolled back": "cancelled", "rolling back": "running", "begun": "running", "acting": "running", "undoing": "running",
};

export function stateClass(name) {
  const drawn = ["done", "running", "checking", "planning", "queued", "ready", "waiting", "cancelled", "interrupted"];
  return drawn.includes(name) ? name : (LOOKS[name] ?? "failed");
}

export function Moment({ at, exact = false }) {
  return html`<time datetime=${iso(at)} title=${momentInFull(at)}>${(exact ? momentInSeconds : moment)(at)}</time>`;
}

export function Problem({ error, again }) {
  if (!error) return null;
  const lost = error instanceof Lost;
  return html`<div class=${lost ? "problem lost" : "problem"} role="alert">
    <p>${lost ? withCode(t("daemon_lost")) : html`<strong>${t("refused")}:</strong> <${Text}>${error.message}<//>`}</p>
    ${again ? html`<button type="button" onClick=${again}>${t("again")}</button>` : null}
  </div>`;
}

// Details whose content is made when they are opened: there may be thousands of elements in them.
export function Details({ summary, kind, onOpen, children }) {
  const [open, setOpen] = useState(false);
  const toggle = (event) => {
    setOpen(event.currentTarget.open);
    if (event.currentTarget.open) onOpen?.();
  };
  return html`<details class=${kind} onToggle=${toggle}><summary>${summary}</summary>${open ? children() : null}</details>`;
}

// A button that asks once more before it acts.
export function Sure({ label, sure = t("stop_sure"), keep = t("close"), disabled = false, onSure }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  const wasOpen = useRef(false);
  useLayoutEffect(() => {
    if (open !== wasOpen.current) box.current.querySelector("button").focus();
    wasOpen.current = open;
  }, [open]);
  const act = () => {
    setOpen(false);
    onSure();
  };
  return html`<span class="sure" ref=${box}>${open ? html`
    <button key="sure" type="button" class="danger" aria-disabled=${disabled} onClick=${act}>${sure}</button>
    <button key="keep" type="button" onClick=${() => setOpen(false)}>${keep}</button>`
    : html`<button key="ask" type="button" aria-disabled=${disabled} onClick=${() => setOpen(true)}>${label}</button>`}
  </span>`;
}

// A table that scrolls by itself. `figures` are the numbers of columns that have figures, and `sentences` of those that need some
// width; the first column names the row.
export function Table({ caption, head, rows, figures = [], sentences = [] }) {
  const kind = (at) => (figures.includes(at) ? "figure" : sentences.includes(at) ? "sentence" : null);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table class="list">
    <thead><tr>${head.map((key, at) => html`<th key=${key} scope="col" class=${kind(at)}>${t(key)}</th>`)}</tr></thead>
    <tbody>${rows.map((cells, row) => html`<tr key=${row}>${cells.map((cell, at) => (at ? html`<td key=${at} class=${kind(at)}>${cell}</td>` : html`<th key=${at} scope="row" class=${kind(at)}>${cell}</th>`))}</tr>`)}</tbody>
  </table></div>`;
}

// The first of many, and a button for more of them; null if these are all.
export function useSome(list, step = 500) {
  const [count, setCount] = useState(step);
  const more = () => setCount(count + step);
  const button = count < list.length ? html`<p class="actions"><button type="button" onClick=${more}>${t("more", { count: number(list.length - count) })}</button></p>` : null;
  return [list.slice(0, count), button];
}

// What GETs of several paths answer: null until all have. `reload` asks again.
export function useAnswers(...paths) {
  return useRequests(paths, []);
}

// Return the answer to a request, null before there is one or without a path, and why it was refused. The request is
// made again when one of the `causes` changes.
export function useAnswer(path, ...causes) {
  const { answers, error } = useRequests(path ? [path] : [], causes);
  return [answers?.[0] ?? null, error];
}

function useRequests(paths, causes) {
  const [answers, setAnswers] = useState(null);
  const [error, setError] = useState(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const show = (values) => {
      setAnswers(values);
      setError(null);
    };
    const sent = paths.map((path) => ask("GET", path, undefined, { signal: stop.signal }));
    Promise.all(sent).then(show, (problem) => !stop.signal.aborted && setError(problem));
    return () => stop.abort();
  }, [turn, ...paths, ...causes]);
  return { answers, error, reload: () => setTurn((count) => count + 1) };
}

// The heads of columns, by the keys of their words; each may have a class.
export function Head({ keys, classes = {} }) {
  return html`<thead><tr>${keys.map((key) => html`<th key=${key} scope="col" class=${classes[key]}>${t(key)}</th>`)}</tr></thead>`;
}

// Call `look(signal, isFirst)` now, and again `period` milliseconds after its answer or error, while the page is seen. Returns
// its latest error.
export function useLooks(look, period, causes = []) {
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const turn = async (isFirst) => {
      if (document.hidden && !isFirst) await seen(stop.signal);
      if (stop.signal.aborted) return;
      let problem = null;
      await look(stop.signal, isFirst).catch((refusal) => (problem = refusal));
      if (stop.signal.aborted) return;
      setError(problem);
      timer = setTimeout(turn, period, false);
    };
    turn(true);
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, causes);
  return error;
}

export function useTitle(text) {
  useEffect(() => {
    document.title = text ? `${shown(text).slice(0, 80)} – ${t("title")}` : t("title");
  }, [text]);
}

export function Language() {
  return html`<label class="language"><span class="unseen">${t("language")}</span>
    <select value=${language.value} onChange=${(event) => setLanguage(event.target.value)}>
      ${Object.entries(LANGUAGES).map(([name, text]) => html`<option value=${name}>${text}</option>`)}
    </select>
  </label>`;
}

export function Skip() {
  return html`<a class="skip" href="#content" onClick=${skip}>${t("skip")}</a>`;
}

// The address names the view, so a link to a part of it would leave the view.
function skip(event) {
  event.preventDefault();
  const content = document.getElementById("content");
  content.tabIndex = -1;
  content.focus();
}
