// Small parts that several views use.
import htm from "htm";
import { h } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Lost } from "./api.js";
import { iso, moment, momentInFull, shown } from "./format.js";
import { stateName, t } from "./texts.js";

export const html = htm.bind(h);

export function Text({ children }) {
  return html`<bdi>${shown(children)}</bdi>`;
}

export function State({ name, doubt }) {
  return html`<span class=${`state ${stateClass(name)}`}>${stateName(name)}</span>${
    doubt ? html` <span class="state doubt" title=${shown(doubt)}>${t("doubt")}</span>` : null
  }`;
}

export function stateClass(name) {
  const drawn = ["done", "running", "checking", "planning", "queued", "ready", "waiting", "cancelled", "interrupted"];
  if (name === "passed") return "done";
  return drawn.includes(name) ? name : name === "not run" ? "waiting" : "failed";
}

export function Moment({ at }) {
  return html`<time datetime=${iso(at)} title=${momentInFull(at)}>${moment(at)}</time>`;
}

export function Problem({ error, again }) {
  if (!error) return null;
  const lost = error instanceof Lost;
  return html`<div class="problem" role="alert">
    <p>${lost ? t("daemon_lost") : html`<strong>${t("refused")}:</strong> <${Text}>${error.message}<//>`}</p>
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
export function Sure({ label, onSure }) {
  const [open, setOpen] = useState(false);
  if (!open) return html`<button type="button" onClick=${() => setOpen(true)}>${label}</button>`;
  const act = () => {
    setOpen(false);
    onSure();
  };
  return html`<span class="sure">
    <button type="button" class="danger" autofocus onClick=${act}>${t("stop_sure")}</button>
    <button type="button" onClick=${() => setOpen(false)}>${t("close")}</button>
  </span>`;
}

export function useTitle(text) {
  useEffect(() => {
    document.title = text ? `${shown(text).slice(0, 80)} – ${t("title")}` : t("title");
  }, [text]);
}
