// The view *What if*: a run as it was measured, and as it would go with other cores or replicas.
import { useEffect, useState } from "preact/hooks";
import { ask, runPath } from "./api.js";
import { bytes, duration, line, number } from "./format.js";
import { html, Problem, Table, useTitle } from "./parts.js";
import { address } from "./state.js";
import { t } from "./texts.js";

const USUAL = [{}, { cores: 16 }, { cores: 96 }, { cores: 96, replicas: 4 }];
const MOST = 8; // in one request
const FIELDS = ["cores", "replicas", "bandwidth"];

export function WhatIf({ run }) {
  const [machines, setMachines] = useState(USUAL);
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  useTitle(t("what_if"));
  useEffect(() => {
    const stop = new AbortController();
    setError(null);
    setAnswer(null);
    ask("POST", runPath(run, "what-if"), { machines }, { signal: stop.signal }).then(setAnswer, (problem) => !stop.signal.aborted && setError(problem));
    return () => stop.abort();
  }, [run, machines]);
  const add = (event) => {
    event.preventDefault();
    const entered = FIELDS.map((name) => [name, Number(event.target.elements[name].value)]).filter(([, value]) => value);
    setMachines((before) => [...(error?.status === 400 ? before.slice(0, -1) : before), Object.fromEntries(entered)].slice(-MOST));
  };
  return html`<main id="content">
    <p class="back"><a href=${address("runs", run)}>← ${t("back_run")}</a></p>
    <div class="head"><h1>${t("what_if")}</h1></div>
    <form class="filters" onSubmit=${add}>
      ${FIELDS.map((name) => html`<label key=${name}>${t(name)} <input name=${name} type="number" min="0" step=${name === "bandwidth" ? "any" : "1"} /></label>`)}
      <button type="submit">${t("simulate")}</button>
    </form>
    <${Problem} error=${error} again=${() => setMachines([...machines])} />
    ${answer ? html`<${Replays} answer=${answer} />` : error ? null : t("loading")}
  </main>`;
}

function Replays({ answer }) {
  const all = [answer.measured, ...answer.machines];
  const rows = all.map((replay, at) => [
    at ? t("machine_of", { cores: number(replay.cores), replicas: number(replay.replicas), bandwidth: number(replay.bandwidth, 1) }) : t("measured"),
    duration(replay.seconds),
    duration(replay.path_seconds),
    number(replay.width),
    bytes(replay.bytes),
    html`<bdi>${line(replay.path.join(" → "))}</bdi>`,
  ]);
  return html`<${Table} caption=${t("what_if")} head=${["machine", "duration", "path_time", "width", "memory", "critical"]} rows=${rows} figures=${[1, 2, 3, 4]} sentences=${[0]} />
    <p class="dim">${t("not_simulated", { time: duration(answer.other_seconds), factor: number(answer.factor, 2) })}</p>`;
}
