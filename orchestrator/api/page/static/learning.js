// The view *Learning*: how the router's choices turned out, what it has learned, and how trainings of the frontdoor went.
import { useState } from "preact/hooks";
import { ask } from "./api.js";
import { line, moment, number } from "./format.js";
import { Details, Empty, html, Moment, Problem, Table, Text, useAnswers, useSome, useTitle } from "./parts.js";
import { Series } from "./series.js";
import { address } from "./state.js";
import { t, word } from "./texts.js";

const PATHS = ["/v1/memory", "/v1/memory/choices", "/v1/memory/values", "/v1/memory/personas", "/v1/personas?retired=true", "/v1/memory/trainings"];
const SHOWN = 50; // choices at first
const USES = { off: "learn_off", shadow: "learn_shadow", on: "learn_on" };
const ROUTERS = ["rules", "memory", "best", "random"];

const figure = (value, digits = 2) => (value === null || value === undefined ? "–" : number(value, digits));
const share = (part, whole) => (whole ? `${number((100 * part) / whole)} %` : "–");
const range = (estimate) => `${figure(estimate.value, 3)} (${figure(estimate.low, 3)} – ${figure(estimate.high, 3)})`;

export function Learning() {
  useTitle(t("learning"));
  const { answers, error, reload } = useAnswers(...PATHS);
  const [status, choices, values, evidence, personas, trainings] = answers ?? [];
  return html`<main id="content">
    <div class="head"><h1>${t("learning")}</h1><button type="button" onClick=${reload}>${t("reload")}</button></div>
    <${Problem} error=${error} again=${reload} />
    ${answers ? html`
      <${Status} status=${status} choices=${choices} />
      <${Rewards} spans=${choices.spans} />
      <${Calibration} bins=${choices.calibration} />
      <${Choices} choices=${choices.choices} />
      <${Compared} />
      <${Part} name="learn_values" none="learn_no_values" rows=${values.values}>
        <${Table} caption=${t("learn_values")} figures=${[3, 4]} head=${["learn_type", "role", "persona", "learn_q", "learn_outcomes"]}
          rows=${values.values.map((row) => [row.task_type === null ? t("learn_no_type") : line(word("type", row.task_type)), line(row.role), line(row.persona), figure(row.q), number(row.count)])} />
      <//>
      <${Personas} personas=${personas.personas} evidence=${evidence.personas} />
      <${Part} name="learn_trainings" none="learn_no_trainings" rows=${trainings.trainings}>${trainings.trainings.map((training) => html`<${Training} key=${training.name} training=${training} />`)}<//>` : error ? null : t("loading")}
  </main>`;
}

function Part({ name, rows, none, children }) {
  return html`<section aria-labelledby=${name}><h2 id=${name}>${t(name)}</h2>
    ${rows.length ? children : html`<${Empty} text=${t(none)} />`}</section>`;
}

function Status({ status, choices }) {
  const held = status.stats;
  const regrets = choices.choices.map((choice) => choice.regret).filter((regret) => regret !== null);
  const figures = [
    ["learn_use", t(USES[status.use])],
    ["learn_outcomes", number(status.outcomes)],
    ["learn_ready", `${number(status.ready)} / ${number(status.ready_outcomes)}`],
    ["learn_episodes", held && number(held.episodes)],
    ["learn_q", held && `${figure(held.q_mean)} ± ${figure(held.q_deviation)}`],
    ["learn_regret", figure(regrets.length ? regrets.reduce((sum, regret) => sum + regret, 0) / regrets.length : null, 3)],
    ["learn_error", figure(choices.calibration_error, 3)],
    ["learn_judge", status.judge_compared ? `${number(status.judge_agreed)} / ${number(status.judge_compared)}` : null],
  ];
  const problems = [status.problem, ...(held?.problems ?? [])].filter(Boolean);
  return html`<dl class="figures">${figures.filter(([, value]) => value !== null)
    .map(([key, value]) => html`<div key=${key}><dt>${t(key)}</dt><dd>${value}</dd></div>`)}</dl>
    ${problems.length ? html`<ul class="notices">${problems.map((text) => html`<li key=${text} class="error"><${Text}>${text}<//></li>`)}</ul>` : null}`;
}

const COLORS = ["--bar-write", "--critical", "--bar-tools"];

// The lines of a picture, by the keys of their names and the fields of `rows` that have their values.
function linesOf(rows, field, names) {
  const x = rows.map((row) => row[field]);
  return Object.entries(names).map(([key, name], at) => ({ name: t(key), color: COLORS[at], text: (value) => figure(value, 3), x, values: rows.map((row) => row[name]) }));
}

function Rewards({ spans }) {
  const lines = linesOf(spans, "end", { learn_reward: "reward", learn_expected: "expected", learn_regret: "regret" });
  return html`<${Part} name="learn_rewards" none="learn_no_choices" rows=${spans}>
    <${Series} label=${t("learn_rewards")} lines=${lines} x=${{ name: t("learn_until"), text: moment, isTime: true }} reach=${1} />
    <${Details} kind="tables" summary=${t("as_table")}>${() => html`<${Table} caption=${t("learn_rewards")} figures=${[1, 2, 3, 4, 5, 6]}
      head=${["learn_until", "learn_choices", "learn_reward", "learn_expected", "learn_regret", "learn_by_memory", "learn_tried"]}
      rows=${spans.map((span) => [html`<${Moment} at=${span.end} />`, number(span.choices), figure(span.reward), figure(span.expected), figure(span.regret, 3), share(span.followed, 1), share(span.explored, 1)])} />`}<//>
  <//>`;
}

function Calibration({ bins }) {
  const most = Math.max(...bins.map((bin) => bin.choices));
  const end = Math.max(1, ...bins.flatMap((bin) => [bin.expected, bin.reward])); // a reward may be above 1
  const lines = [
    { color: "--edge", x: [0, end], values: [0, end], dash: [4, 4] },
    {
      name: t("learn_reward"), color: COLORS[0], text: figure, x: bins.map((bin) => bin.expected), values: bins.map((bin) => bin.reward),
      radii: bins.map((bin) => 4 + 6 * Math.sqrt(bin.choices / most)),
    },
  ];
  return html`<${Part} name="learn_calibration" none="learn_no_choices" rows=${bins}>
    <p class="dim">${t("learn_calibration_how")}</p>
    <${Series} label=${t("learn_calibration")} lines=${lines} x=${{ name: t("learn_expected"), text: figure, range: [0, end] }} reach=${end} square />
    <${Details} kind="tables" summary=${t("as_table")}>${() => html`<${Table} caption=${t("learn_calibration")} figures=${[1, 2]}
      head=${["learn_expected", "learn_reward", "learn_choices"]} rows=${bins.map((bin) => [figure(bin.expected), figure(bin.reward), number(bin.choices)])} />`}<//>
  <//>`;
}

function Choices({ choices }) {
  const [shown, more] = useSome(choices, SHOWN);
  const how = (choice) => t(choice.explored ? "learn_tried" : choice.followed ? "learn_by_memory" : "learn_by_rules");
  const place = (choice) => html`<a href=${address("runs", choice.run, ...(choice.step ? ["steps", choice.step] : []))}><bdi>${choice.step ? `${line(choice.step)} #${choice.attempt}` : t("plan_row")}</bdi></a>`;
  return html`<${Part} name="learn_choices" none="learn_no_choices" rows=${choices}>
    <${Table} caption=${t("learn_choices")} figures=${[5, 6, 7, 8]}
      head=${["step", "time", "learn_taken", "learn_how", "learn_best", "learn_confidence", "learn_expected", "learn_regret", "learn_reward"]}
      rows=${shown.map((choice) => [place(choice), html`<${Moment} at=${choice.at} />`, html`<bdi>${line(choice.taken)}</bdi>`, how(choice), html`<bdi>${line(choice.best)}</bdi>`,
        figure(choice.confidence), figure(choice.expected), figure(choice.regret, 3), figure(choice.reward)])} />
    ${more}
  <//>`;
}

// What other routers would have earned on the same choices. The daemon reads all runs for it.
function Compared() {
  const [rows, setRows] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const compare = async () => {
    setBusy(true);
    setError(null);
    try {
      const compared = [];
      for (const router of ROUTERS) compared.push(await ask("GET", `/v1/memory/evaluate/${router}`));
      setRows(compared);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<section aria-labelledby="compared"><h2 id="compared">${t("learn_compare")}</h2>
    <p class="actions"><button type="button" aria-disabled=${busy} onClick=${compare}>${t("learn_compare_now")}</button></p>
    <${Problem} error=${error} />
    ${rows ? html`<${Table} caption=${t("learn_compare")} figures=${[1, 2, 3]} head=${["learn_router", "learn_reward", "learn_over_rules", "learn_effective"]}
      rows=${rows.map((row) => [word("router", row.router), range(row.estimates["doubly robust"]), range(row.over_rules), number(row.over_rules.effective)])} />` : null}
  </section>`;
}

function Personas({ personas, evidence }) {
  const names = new Set(personas.map((persona) => persona.name));
  const gone = evidence.filter((row) => !names.has(row.persona)).map((row) => ({ name: row.persona, maker: "", retired: null }));
  const rows = [...personas, ...gone].flatMap((persona) => {
    const uses = evidence.filter((row) => row.persona === persona.name);
    return (uses.length ? uses : [{}]).map((use) => [persona, use]);
  });
  return html`<${Part} name="learn_personas" none="learn_no_personas" rows=${rows}>
    <${Table} caption=${t("learn_personas")} figures=${[3, 4, 5, 6]}
      head=${["persona", "learn_maker", "role", "attempts", "learn_succeeded", "learn_q", "learn_q_without"]}
      rows=${rows.map(([persona, use]) => [
        html`<${Text}>${persona.name}<//>${persona.retired === null ? null : html` <span class="dim">${t("learn_retired")}: <${Text}>${persona.why_retired}<//></span>`}`,
        line(word("maker", persona.maker)), line(use.role), figure(use.attempts ?? 0, 0), share(use.succeeded, use.succeeded + use.failed), figure(use.q), figure(use.q_without)])} />
  <//>`;
}

function Training({ training }) {
  const { points, result } = training;
  const lines = linesOf(points, "update", { learn_reward: "reward", learn_success: "success" });
  return html`<article><h3><${Text}>${training.name}<//></h3>
    <p class="facts"><${Moment} at=${training.updated} /><span>${t("learn_updates", { count: number(points.length) })}</span>
      ${result ? html`<span>${t("learn_gain", { gain: range({ ...result, value: result.gain }), count: number(result.requests) })}</span>
        <span>${t(result.promoted ? "learn_promoted" : result.better ? "learn_better" : result.spoiled ? "learn_spoiled" : "learn_not_better")}</span>` : html`<span>${t("learn_incomplete")}</span>`}</p>
    <${Series} label=${training.name} lines=${lines} x=${{ name: t("learn_update"), text: number, isWhole: true }} reach=${1} />
    <${Details} kind="tables" summary=${t("as_table")}>${() => html`<${Table} caption=${training.name} figures=${[1, 2, 3, 4]}
      head=${["learn_update", "learn_reward", "learn_success", "learn_width", "duration"]}
      rows=${points.map((point) => [number(point.update), figure(point.reward, 3), figure(point.success), figure(point.width, 1), figure(point.seconds, 1)])} />`}<//>
  </article>`;
}
