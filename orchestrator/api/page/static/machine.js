// The view *Machine*: who uses cores, memory and KV caches, the queue, and what steps take.
import { useRef, useState } from "preact/hooks";
import { ask } from "./api.js";
import { bytes, line, momentInSeconds, number, shown } from "./format.js";
import { Details, Empty, html, Problem, Table, useLooks, useSome, useTitle } from "./parts.js";
import { Key, Series } from "./series.js";
import { may } from "./state.js";
import { stateName, t, word } from "./texts.js";

const PERIOD = 1000; // milliseconds
const LEAST = 0.5; // seconds between two looks: the kernel counts processor time in hundredths
const ROWS = 120; // of the table of the cores at first
const SPANS = { "span_hour": 3600, "span_minutes": 120 }; // seconds that are drawn
const WIDE = 600;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const COLORS = ["--bar-write", "--bar-tools", "--bar-gates", "--critical", "--bar-read", "--bar-paused", "--bar-core", "--bar-other"];
const color = (place) => COLORS[place % COLORS.length];

export function Machine() {
  const [state, setState] = useState(null);
  const samples = useRef([]); // of the last hour, as the daemon keeps them
  const looks = useRef([]); // of this page, which are closer together
  useTitle(t("machine"));
  const error = useLooks(async (signal) => {
    const loaded = await ask("GET", `/v1/machine?after=${samples.current.at(-1)?.at ?? 0}`, undefined, { signal });
    samples.current = [...samples.current, ...loaded.history].filter(({ at }) => at >= loaded.at - SPANS.span_hour);
    looks.current = [...looks.current, loaded].filter(({ at }) => at >= loaded.at - SPANS.span_minutes);
    setState({ ...loaded, clock: Date.now() / 1000 - loaded.at }); // by which `at` is behind the time of the day
  }, PERIOD);
  const engines = state ? state.engines.filter((engine) => engine.cells) : [];
  return html`<main id="content">
    <div class="head"><h1>${t("machine")}</h1></div>
    <${Problem} error=${error} />
    ${state ? html`<div class="cards">
      <${Cores} state=${state} samples=${samples.current} looks=${looks.current} />
      <${Queue} state=${state} />
      <${Models} pool=${state.pool} />
      ${engines.length ? engines.map((engine) => html`<${Engine} key=${`${engine.model} ${engine.number}`} engine=${engine} />`)
        : html`<${Card} title=${t("cache")}><${Empty} text=${t("cache_none")} /><//>`}
    </div>` : error ? null : t("loading")}
  </main>`;
}

function Card({ title, note, whole, children }) {
  return html`<section class=${whole ? "panel whole" : "panel"}><h2>${title} <span class="dim">${note}</span></h2>${children}</section>`;
}

// Processor seconds of each owner.
function spent({ processor_seconds: { engines, daemon, programs } }) {
  const models = Object.entries(engines).map(([model, seconds]) => [`model ${model}`, seconds]);
  return new Map([...models, ["daemon", daemon], ["programs", programs]]);
}

const place = (owner) => ["daemon", "programs"].indexOf(owner); // models come first
const nameOf = (owner) => (owner.startsWith("model ") ? line(owner.slice(6)) : t(`owner_${owner}`));

// Cores in use: the seconds that each owner spent between two looks.
function Cores({ state, samples, looks }) {
  const [choice, setChoice] = useState(null);
  const isYoung = !samples.length || state.at - samples[0].at < SPANS.span_minutes; // the daemon
  const span = choice ?? (isYoung ? "span_minutes" : "span_hour");
  const seconds = SPANS[span];
  const all = [...samples.filter(({ at }) => at < looks[0].at - LEAST), ...looks].filter(({ at }) => at >= state.at - seconds);
  const owners = [...new Set(all.flatMap((look) => [...spent(look).keys()]))].sort((one, other) => place(one) - place(other));
  const points = all.slice(1).map((look, at) => {
    const [old, now] = [spent(all[at]), spent(look)];
    return { at: look.at, values: owners.map((owner) => Math.max(0, ((now.get(owner) ?? 0) - (old.get(owner) ?? now.get(owner) ?? 0)) / (look.at - all[at].at))) };
  });
  const range = [state.at - seconds, state.at].map((at) => at + state.clock);
  const text = (value) => number(value, 2);
  const times = points.map(({ at }) => at + state.clock);
  const areas = owners.map((owner, at) => ({
    name: nameOf(owner), color: color(at), area: true, x: times, text,
    values: points.map(({ values }) => values[at]),
    drawn: points.map(({ values }) => sum(values.slice(0, at + 1))), // on those of the owners before
  }));
  const limit = { color: "--dim", dash: [4, 4], x: range, values: range.map(() => state.processors) };
  const rows = owners.map((owner, at) => {
    const values = points.map((point) => point.values[at]);
    return [html`<${Key} color=${color(at)} /> <bdi>${nameOf(owner)}</bdi>`, number(values.at(-1) ?? 0, 2), number(sum(values) / Math.max(1, values.length), 2)];
  });
  return html`<${Card} title=${t("cores")} note=${t("cores_of", { count: number(state.processors), cores: number(state.pool.cores) })}>
    <label class="filters">${t("cores_span")} <select value=${span} onChange=${(event) => setChoice(event.target.value)}>
      ${Object.keys(SPANS).map((name) => html`<option key=${name} value=${name}>${t(name)}</option>`)}</select></label>
    <${Series} label=${t("cores_series")} lines=${[...areas.reverse(), limit]}
      x=${{ name: t("time"), text: momentInSeconds, isTime: true, range }} reach=${state.processors} />
    ${points.length ? null : html`<${Empty} text=${t("cores_none")} />`}
    <${Table} caption=${t("cores")} head=${["used_by", "cores_now", "cores_mean"]} rows=${rows} figures=${[1, 2]} />
    <${Details} kind="tables" summary=${t("as_table")}>${() => html`<${Values} now=${state.at} names=${owners.map(nameOf)} points=${points} />`}<//><//>`;
}

// The values of the picture, the latest first.
function Values({ now, names, points }) {
  const [some, more] = useSome([...points].reverse(), ROWS);
  const label = t("cores_series");
  return html`<div class="scroll series-table" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr><th scope="col" class="figure">${t("seconds_ago")}</th>${names.map((name) => html`<th key=${name} scope="col" class="figure"><bdi>${name}</bdi></th>`)}</tr></thead>
    <tbody>${some.map(({ at, values }) => html`<tr key=${at}><th scope="row" class="figure">${number(now - at)}</th>
      ${values.map((value, place) => html`<td key=${place} class="figure">${number(value, 2)}</td>`)}</tr>`)}</tbody></table>${more}</div>`;
}

function Queue({ state }) {
  const total = (name) => sum(state.pool.models.map((model) => model[name]));
  const requests = { interactive: total("waiting") - total("waiting_batch"), batch: total("waiting_batch") };
  const rows = Object.entries(state.queue).map(([name, runs]) => [t(`class_${name}`), number(runs.waiting), number(runs.running), number(requests[name])]);
  return html`<${Card} title=${t("queue")}>
    <${Table} caption=${t("queue")} head=${["class", "runs_waiting", "runs_running", "requests_waiting"]} rows=${rows} figures=${[1, 2, 3]} />
    <p class="dim">${t("queue_inside", { count: number(sum(state.engines.map((engine) => engine.queued))) })}</p><//>`;
}

function Models({ pool }) {
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const loaded = pool.models.filter((model) => model.bytes);
  const act = (model, verb) => async () => {
    setBusy(true);
    setRefusal(await ask("POST", `/v1/pool/${encodeURIComponent(model)}/${verb}`).then(() => null, (problem) => problem));
    setBusy(false);
  };
  const actions = ({ model, pinned, state }) => (pinned ? ["unpin"] : [["ready", "loading"].includes(state) ? "unload" : "load", "pin"]).map((verb) => html`<button
    key=${verb} type="button" aria-disabled=${busy} onClick=${act(model, verb)} aria-label=${`${t(`verb_${verb}`)}: ${line(model)}`}>${t(`verb_${verb}`)}</button> `);
  const server = ({ name, state, reason, active, requests }) => [
    html`<span class="dim"><bdi>${line(name)}</bdi></span>`,
    html`${stateName(state)} <span class="dim"><bdi>${shown(reason)}</bdi></span>`,
    word("residency", "remote"),
    "–",
    t("requests_of", { active: number(active), count: number(requests) }),
    "–",
    ...(may("operate") ? [""] : []),
  ];
  const head = ["model", "state", "residency", "memory", "requests", "threads"];
  const rows = pool.models.flatMap((model) => [[
    html`${model.bytes ? html`<${Key} color=${color(loaded.indexOf(model))} /> ` : null}<bdi>${line(model.model)}</bdi>`,
    html`${stateName(model.state)} <span class="dim"><bdi>${shown(model.reason)}</bdi></span>`,
    model.pinned ? t("pinned") : word("residency", model.residency),
    bytes(model.bytes),
    t("requests_of", { active: number(model.active), count: number(model.requests) }),
    model.threads ?? "–",
    ...(may("operate") ? [model.instances.length ? actions(model) : ""] : []),
  ], ...(model.servers ?? []).map(server)]);
  return html`<${Card} title=${t("models")} note=${t("memory_of", { used: bytes(pool.used), budget: bytes(pool.budget) })} whole>
    <${Scale} parts=${loaded.map((model) => model.bytes)} whole=${pool.budget} label=${t("memory")} />
    <${Problem} error=${refusal} />
    <${Table} caption=${t("models")} head=${may("operate") ? [...head, "actions"] : head} rows=${rows} figures=${[3, 5]} /><//>`;
}

// To scale.
function Scale({ parts, whole, label }) {
  const x = (size) => (WIDE * size) / Math.max(1, whole);
  return html`<svg class="scale" viewBox=${`0 0 ${WIDE} 20`} preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="bar-slack" width=${WIDE} height="20" />
    ${parts.map((size, place) => html`<rect key=${place} style=${{ fill: `var(${color(place)})` }} x=${x(sum(parts.slice(0, place)))} width=${x(size)} height="20" />`)}
  </svg>`;
}

function Engine({ engine }) {
  const roles = Object.entries(engine.cells_by_role).map(([role, cells]) => [line(role) || "–", cells]);
  const held = sum(roles.map(([, cells]) => cells)) + engine.finished_cells;
  const used = Math.max(held, engine.used_cells);
  const parts = [...roles, [t("cells_finished"), engine.finished_cells], [t("cells_reserved"), used - held], [t("cells_free"), Math.max(0, engine.cells - used)]];
  const rows = parts.map(([name, cells], place) => [
    html`${place < parts.length - 1 ? html`<${Key} color=${color(place)} /> ` : null}<bdi>${name}</bdi>`, number(cells), `${number((100 * cells) / engine.cells, 1)} %`,
  ]);
  const now = t("engine_now", { running: number(engine.running), reading: number(engine.prefilling), threads: number(engine.threads) });
  return html`<${Card} title=${html`<bdi>${line(engine.model)}</bdi> ${engine.number || ""}`} note=${now}>
    <h3>${t("cache")}</h3>
    <${Scale} parts=${parts.slice(0, -1).map(([, cells]) => cells)} whole=${engine.cells} label=${t("cache")} />
    <${Table} caption=${t("cache")} head=${["used_by", "cells", "share"]} rows=${rows} figures=${[1, 2]} />
    ${engine.step_times ? html`<${Steps} times=${engine.step_times} />` : null}<//>`;
}

// At the circle is what the latest step took.
function Steps({ times: { decode, width, tokens, seconds, measured } }) {
  const text = (value) => number(value, 2);
  const lines = [
    { name: t("milliseconds"), color: "--dim", text, x: decode.map(([count]) => count), values: decode.map(([, time]) => 1000 * time) },
    ...(width ? [{ color: "--critical", x: [tokens], values: [1000 * seconds], radii: [6] }] : []),
  ];
  const rows = decode.map(([count, time]) => [number(count), number(1000 * time, 2), number(count / time, 1)]);
  return html`<h3>${t("step_costs")} <span class="dim">${t(measured ? "measured" : "assumed")}</span></h3>
    <${Series} label=${t("step_costs")} lines=${lines} reach=${0}
      x=${{ name: t("tokens"), text: number, isWhole: true }} />
    <p>${width ? t("steps_now", { count: number(width), tokens: number(tokens), time: `${number(1000 * seconds, 1)} ms` }) : "–"}</p>
    <${Table} caption=${t("step_costs")} head=${["tokens", "milliseconds", "tokens_second"]} rows=${rows} figures=${[1, 2]} />`;
}
