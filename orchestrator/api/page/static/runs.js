// The view *Runs*: all runs that the caller may see, newest first.
import { useRef, useState } from "preact/hooks";
import { ask } from "./api.js";
import { duration, line } from "./format.js";
import { Empty, Head, html, Moment, Problem, State, Text, useLooks, useTitle } from "./parts.js";
import { address, may } from "./state.js";
import { stateName, t } from "./texts.js";

const STATES = ["queued", "planning", "running", "done", "failed", "cancelled"];
const PAGE = 50;
const CLASSES = { duration: "figure", critical: "figure", predicted: "figure" };
const REFRESH = 3000; // milliseconds

export function Runs() {
  const [status, setStatus] = useState("");
  const [search, setSearch] = useState("");
  const [list, setList] = useState(null);
  const [turn, setTurn] = useState(0);
  const [chosen, setChosen] = useState([]);
  const pages = useRef(1);
  useTitle(t("runs"));

  const error = useLooks(async (signal, isFirst) => {
    // Figures take longer the first time, so the list comes before them.
    if (isFirst) setList(await some(status, search, pages.current, false, signal));
    setList(await some(status, search, pages.current, true, signal));
  }, REFRESH, [status, search, turn]);

  const reload = () => setTurn((count) => count + 1);
  const filter = (set) => (event) => {
    pages.current = 1;
    set(event.target.value);
  };
  const more = () => {
    pages.current += 1;
    reload();
  };
  const choose = (run) => setChosen((runs) => (runs.includes(run) ? runs.filter((other) => other !== run) : [run, ...runs].slice(0, 2)));
  const place = (run) => list?.runs.findIndex((row) => row.run_id === run);
  return html`<main id="content">
    <div class="head">
      <h1>${t("runs")}</h1>
      <p role="status">${chosen.length === 2 ? html`<a class="button" href=${address("compare", ...[...chosen].sort((one, other) => place(other) - place(one)))}>${t("compare")}</a>` : html`<span class="dim">${t("compare_hint")}</span>`}</p>
      <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
        <label>${t("search")}
          <input type="search" value=${search} placeholder=${t("search_hint")} maxlength="200" onInput=${filter(setSearch)} />
        </label>
        <label>${t("state")}
          <select value=${status} onChange=${filter(setStatus)}>
            <option value="">${t("all_states")}</option>
            ${STATES.map((name) => html`<option value=${name}>${stateName(name)}</option>`)}
          </select>
        </label>
      </form>
    </div>
    <${Problem} error=${error} again=${reload} />
    ${list ? html`<${List} list=${list} filtered=${Boolean(status || search)} more=${more} chosen=${chosen} choose=${choose} />` : error ? null : t("loading")}
  </main>`;
}

async function some(status, search, pages, figures, signal) {
  const runs = [];
  let before = null;
  for (let page = 0; page < pages; page += 1) {
    const query = new URLSearchParams({ limit: PAGE, figures });
    if (status) query.set("status", status);
    if (search.trim()) query.set("search", search.trim());
    if (before) query.set("before", before);
    const answer = await ask("GET", `/v1/runs?${query}`, undefined, { signal });
    runs.push(...answer.runs);
    before = answer.before;
    if (!before) break;
  }
  return { runs, before };
}

function List({ list, filtered, more, chosen, choose }) {
  if (!list.runs.length) {
    return html`<${Empty} text=${t(filtered ? "no_runs" : "no_runs_yet")}>${!filtered && may("submit") ? html`<a href=${address("new")}>${t("new")}</a>` : null}<//>`;
  }
  const everybody = may("read:all");
  return html`
    <table class="runs">
      <${Head} keys=${["state", "request", "submitted", "duration", "critical", "predicted", ...(everybody ? ["made_by"] : [])]} classes=${CLASSES} />
      <tbody>
        ${list.runs.map((run) => html`<tr key=${run.run_id}>
          <td><input type="checkbox" checked=${chosen.includes(run.run_id)} onChange=${() => choose(run.run_id)} aria-label=${t("compare_run", { run: run.run_id })} /> <${State} name=${run.status} doubt=${run.doubt} /></td>
          <td class="request"><a href=${address("runs", run.run_id)}><bdi>${line(run.request) || run.run_id}</bdi></a></td>
          <td class="when"><${Moment} at=${run.accepted_at} /></td>
          <td class="figure" data-name=${t("duration")}>${run.finished_at === null ? "–" : duration(run.finished_at - run.accepted_at)}</td>
          <td class="figure" data-name=${t("critical")}>${duration(run.figures?.path_seconds)}</td>
          <td class="figure" data-name=${t("predicted")}>${duration(run.figures?.predicted_seconds)}</td>
          ${everybody ? html`<td data-name=${t("made_by")}><${Text}>${run.owner}<//></td>` : null}
        </tr>`)}
      </tbody>
    </table>
    ${list.before ? html`<button type="button" onClick=${more}>${t("load_more")}</button>` : null}`;
}
