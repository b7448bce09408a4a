// The view *Doctor*: what the installation lacks, and what the daemon logs.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "./api.js";
import { shown } from "./format.js";
import { Empty, html, Moment, Problem, Table, useLooks, useTitle } from "./parts.js";
import { stateName, t, word } from "./texts.js";

const PERIOD = 2000; // milliseconds
const LINES = 200;
const LEVELS = ["debug", "info", "warning", "error"];
const MARKS = { ok: "done", note: "doubt", broken: "failed", warning: "doubt", error: "failed" };

export function Doctor() {
  useTitle(t("doctor"));
  const [looked, setLooked] = useState(false); // what is below the checks would move when they come
  return html`<main id="content"><${Checks} onEnd=${() => setLooked(true)} />${looked ? html`<${Log} />` : null}</main>`;
}

function Checks({ onEnd }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const look = async () => {
    setBusy(true);
    setError(null);
    await ask("GET", "/v1/doctor").then(setFound, setError);
    setBusy(false);
    onEnd();
  };
  useEffect(() => {
    look();
  }, []);
  const order = "bno"; // broken, note, ok
  const checks = [...(found?.checks ?? [])].sort((one, other) => order.indexOf(one.state[0]) - order.indexOf(other.state[0]));
  const rows = checks.map((check) => [
    html`<bdi>${shown(check.name)}</bdi>`,
    html`<span class=${`state ${MARKS[check.state]}`}>${stateName(check.state)}</span>`,
    html`<bdi>${shown(check.found)}</bdi>${check.mend ? html`<br />→ <bdi>${shown(check.mend)}</bdi>` : null}`,
  ]);
  return html`<div class="head"><h1>${t("doctor")}</h1>
      <button type="button" aria-disabled=${busy} onClick=${look}>${t("doctor_again")}</button></div>
    <${Problem} error=${error} />
    ${found ? html`<p role="status">${t(found.healthy ? "doctor_healthy" : "doctor_broken")}</p>
      <${Table} caption=${t("doctor")} head=${["check", "state", "evidence"]} sentences=${[2]} rows=${rows} />` : error ? null : t("loading")}`;
}

function Log() {
  const [level, setLevel] = useState("info");
  const [, redraw] = useState(0);
  const lines = useRef([]);
  const error = useLooks(async (signal, isFirst) => {
    const before = isFirst ? [] : lines.current; // the first look at another level starts again
    const after = before.at(-1)?.number ?? 0;
    const more = await ask("GET", `/v1/log?level=${level}&limit=${LINES}&after=${after}`, undefined, { signal });
    lines.current = [...before, ...more.lines].slice(-LINES);
    redraw((count) => count + 1);
  }, PERIOD, [level]);
  const rows = [...lines.current].reverse().map((row) => [
    html`<${Moment} at=${Date.parse(row.at) / 1000} exact />`,
    html`<span class=${`state ${MARKS[row.level] ?? ""}`}>${word("level", row.level)}</span>`,
    html`<bdi>${shown(row.event)}</bdi>${Object.entries(row.facts).map(([name, value]) => html` <span class="dim"><bdi>${shown(name)}=${shown(typeof value === "string" ? value : JSON.stringify(value))}</bdi></span>`)}`,
  ]);
  return html`<div class="head"><h2>${t("log")}</h2>
      <label class="filters">${t("log_level")}
        <select value=${level} onChange=${(event) => setLevel(event.target.value)}>${LEVELS.map((name) => html`<option key=${name} value=${name}>${word("level", name)}</option>`)}</select>
      </label></div>
    <${Problem} error=${error} />
    ${rows.length ? html`<${Table} caption=${t("log")} head=${["time", "log_level", "event"]} sentences=${[2]} rows=${rows} />` : error ? null : html`<${Empty} text=${t("log_none")} />`}`;
}
