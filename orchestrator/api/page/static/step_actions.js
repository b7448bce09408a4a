// What a user may do with a run and its steps: stop, try again, put first, rate.
import { useRef, useState } from "preact/hooks";
import { ask, runPath } from "./api.js";
import { line, number } from "./format.js";
import { html, Sure, Text } from "./parts.js";
import { address, may } from "./state.js";
import { t } from "./texts.js";

export const ENDED = ["done", "failed", "cancelled"];

// Return why the last request was refused, whether one is in flight, and a function that makes handlers: they send a request
// about the run, unless one is in flight, and open the run that it has started.
export function useAct(run) {
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const sending = useRef(false); // at once, also for a second click before the buttons are drawn again
  const act = (verb, body, after) => async () => {
    if (sending.current) return;
    sending.current = true;
    setBusy(true);
    setRefusal(null);
    try {
      const answer = await ask("POST", runPath(run, verb), body);
      if (answer.run_id !== run) location.hash = address("runs", answer.run_id);
      after?.();
    } catch (problem) {
      setRefusal(problem);
    }
    sending.current = false;
    setBusy(false);
  };
  return { refusal, busy, act };
}

// What a caller may do to a run: with a permission, and only to what the picture says it may change.
export const mayDo = (permission, picture) => picture.may_change && may(permission);

export function StepActions({ picture, row, live, act, busy, children }) {
  const step = { step: row.id };
  const open = live && !ENDED.includes(row.state);
  const attempt = row.bars.at(-1);
  const submits = mayDo("submit", picture);
  // While the run lasts, the buttons stay where they are, whatever becomes of the step.
  return html`
    ${row.reused ? html`<p><a href=${address("runs", row.reused)}>${t("reused", { run: line(row.reused) })}</a></p>` : null}
    <p class="actions wrap">${children}
      ${submits && live ? html`<${Sure} label=${t("stop_step")} disabled=${busy || !open} onSure=${act("cancel", step)} />
        <${Sure} label=${t("retry_step")} disabled=${busy || !open || attempt?.end !== null} onSure=${act("retry", step)} />` : null}
      ${row.first ? html`<span class="onpath">${t("goes_first")}</span>`
        : submits && live ? html`<button type="button" aria-disabled=${busy || !open} onClick=${act("prioritise", step)}>${t("prioritise")}</button>` : null}
      ${submits && !live ? html`<button type="button" aria-disabled=${busy} onClick=${act("retry", step)}>${t("retry_new")}</button>` : null}
    </p>
    ${submits && !live ? html`<p class="dim">${t("retry_new_hint")}</p>` : null}`;
}

// The ratings of a run that has ended, or of a step of it, and a form for another one.
export function Rating({ picture, body, ratings, live, act, busy, reload }) {
  const [score, setScore] = useState("1");
  const [note, setNote] = useState("");
  if (live) return null;
  const send = (event) => {
    event.preventDefault();
    act("ratings", { ...body, score: Number(score), note }, reload)();
    setNote("");
  };
  const label = t(body.step ? "rating_step" : "rating_run");
  return html`
    ${ratings.length ? html`<ul class="plain">${ratings.map((rating, at) => html`<li key=${at}>${t("rated", { score: number(rating.score, 2), by: line(rating.by) })} <${Text}>${rating.note}<//></li>`)}</ul>` : null}
    ${mayDo("teach", picture) ? html`<form class="filters" aria-label=${label} onSubmit=${send}>
      <label>${label}<input type="number" min="0" max="1" step="any" required value=${score} onInput=${(event) => setScore(event.target.value)} /></label>
      <label>${t("note")}<input value=${note} maxlength="10000" onInput=${(event) => setNote(event.target.value)} /></label>
      <button aria-disabled=${busy}>${t("rate")}</button></form>` : null}`;
}
