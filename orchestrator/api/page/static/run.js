// The view *Run*: the picture, the selected step with what it writes, the answer with its files, and the events.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { artifactPath, ask, askText, follow, isRecorded, runPath } from "./api.js";
import { Chart, Legend, Tables } from "./chart.js";
import { sentence } from "./events.js";
import { bytes, duration, line, number, shown } from "./format.js";
import { Details, Empty, html, Moment, Problem, State, Sure, Text, useAnswer, useSome, useTitle } from "./parts.js";
import { address, may } from "./state.js";
import { ENDED, mayDo, Rating, StepActions, useAct } from "./step_actions.js";
import { t } from "./texts.js";

const LOG = 200; // events that are listed
const ROWS = 100; // of a picture at a time: those of a run of 10,000 steps would stop the page for moments
const SLACK = 8; // pixels from the end of a text that count as its end

// Follow a run: its picture, its latest events, and what its steps are writing.
export function useRun(run, step = null, rows = ROWS) {
  const [picture, setPicture] = useState(null);
  const [error, setError] = useState(null);
  const [connection, setConnection] = useState("open");
  const [log, setLog] = useState([]);
  const [turn, setTurn] = useState(0);
  const progress = useMemo(() => new Progress(), [run]);
  const received = useRef(0);
  const place = useRef({ first: 0 });
  const again = useRef(() => {});
  place.current.step = step;

  useEffect(() => {
    let stopped = false;
    let stop = () => {};
    let over = false;
    let frame = 0;
    const lines = []; // events that came since the latest frame
    const list = () => {
      frame = 0;
      setLog((listed) => [...listed, ...lines.splice(0)].slice(-LOG));
    };
    const load = async () => {
      const { first, step: shownStep } = place.current;
      const query = new URLSearchParams({ first, count: rows, ...(shownStep ? { step: shownStep } : {}) });
      const loaded = await ask("GET", `${runPath(run, "picture")}?${query}`);
      if (stopped) return null;
      received.current = performance.now();
      over = ENDED.includes(loaded.status);
      setPicture(loaded);
      setError(null);
      return loaded;
    };
    const refresh = oneAtATime(() => load().catch((problem) => !stopped && setError(problem)));
    again.current = refresh;
    const start = async () => {
      try {
        const loaded = await load();
        if (!loaded) return;
        setLog([]);
        stop = follow(runPath(run, "events"), Math.max(0, loaded.events - LOG), {
          onEvent: (event, count) => {
            lines.push({ event, count });
            frame ||= requestAnimationFrame(list);
            progress.end(event);
            if (count > loaded.events) refresh();
          },
          onProgress: (update) => progress.take(update),
          onState: setConnection,
          onRefused: setError,
          isLast: (event) => event.kind === "run_finished",
          isOver: () => over,
        });
      } catch (problem) {
        if (!stopped) setError(problem);
      }
    };
    start();
    return () => {
      stopped = true;
      cancelAnimationFrame(frame);
      stop();
    };
  }, [run, turn]);

  // Have a picture of the rows around these.
  const look = (first, last) => {
    const start = Math.max(0, Math.floor((first + last - rows) / 2));
    if (start === place.current.first) return;
    place.current.first = start;
    again.current();
  };
  const reload = () => setTurn((count) => count + 1);
  return { picture, error, connection, log, progress, received: received.current, reload, look };
}

// The row of a step, which may be outside of those that were asked for.
export function rowOf(picture, step) {
  return picture.rows.find((row) => row.id === step) ?? (picture.step?.id === step ? picture.step : undefined);
}

// What the steps are writing now, a signal for each, so that only who shows a step is drawn again.
class Progress {
  constructor() {
    this.steps = new Map();
  }

  of(step) {
    if (!this.steps.has(step)) this.steps.set(step, signal(null));
    return this.steps.get(step);
  }

  take(update) {
    this.of(update.step).value = update;
  }

  end(event) {
    const ends = ["attempt_succeeded", "attempt_failed", "attempt_cancelled"];
    if (ends.includes(event.kind) && this.steps.has(event.step)) this.steps.get(event.step).value = null;
  }
}

// Return a function that has the work done now, or once more after the work in progress, which pauses for as long as it
// took: however many events there are, the daemon has half of the time for other things.
export function oneAtATime(work) {
  let busy = false;
  let again = false;
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    while (again) {
      again = false;
      const start = performance.now();
      await work();
      await new Promise((resolve) => setTimeout(resolve, performance.now() - start));
    }
    busy = false;
  };
}

export function RunView({ run }) {
  const [selected, setSelected] = useState(null);
  const { picture, error, connection, log, progress, received, reload, look } = useRun(run, selected);
  const { refusal, busy, act } = useAct(run);
  useTitle(picture?.request || run);
  const live = !isRecorded() && picture !== null && !ENDED.includes(picture.status);
  // Events come much more often than pictures: what only depends on the picture is not compared at each of them.
  const chart = useMemo(() => picture && html`<${Chart} picture=${picture} receivedAt=${received} live=${live} selected=${selected}
    onSelect=${setSelected} onLook=${look} onOpen=${(step) => (location.hash = address("runs", run, "steps", step))} />
    <${Legend} />
    <${Tables} picture=${picture} path=${runPath(run, "picture")} />`, [picture, received, live, selected, run]);
  if (!picture) return html`<main id="content">${error ? html`<${Problem} error=${error} again=${reload} />` : t("loading")}</main>`;

  const row = rowOf(picture, selected);
  return html`<main id="content" class="run">
    <div class="head">
      <div>
        <h1><bdi>${shown(picture.request) || run}</bdi></h1>
        <p class="facts brief">
          <${State} name=${picture.status} doubt=${picture.doubt} />
          ${live ? html`<span class=${`connection ${connection}`} role="status">${t(`connection_${connection}`)}</span>` : null}
          <${Brief} picture=${picture} />
        </p>
        <p class="facts"><${Moment} at=${picture.accepted_at} /><span class="dim"><bdi>${run}</bdi></span></p>
      </div>
      <div class="actions">
        ${live && mayDo("submit", picture) ? html`<${Sure} label=${t("stop_run")} disabled=${busy} onSure=${act("cancel", {})} />` : null}
        ${!live && may("submit") ? html`<a class="button" href=${address("runs", run, "what-if")}>${t("what_if")}</a>` : null}
        ${!live && mayDo("submit", picture) ? html`<button type="button" aria-disabled=${busy} onClick=${act("retry", {})}>${t("retry")}</button>` : null}
      </div>
    </div>
    <${Problem} error=${refusal} />
    <${Problem} error=${error} again=${reload} />
    <${Figures} picture=${picture} live=${live} received=${received} />
    <section aria-labelledby="steps-title">
      <h2 id="steps-title">${t("steps")}</h2>
      ${chart}
      <${Log} log=${log} picture=${picture} />
    </section>
    <div class="pair">
      <section aria-labelledby="step-title" class="panel">
        <h2 id="step-title">${t("step")}${row ? html` <bdi>${line(row.id)}</bdi>` : null}</h2>
        ${row ? html`<${Selected} key=${row.id} run=${run} picture=${picture} row=${row} progress=${progress} act=${act} busy=${busy} live=${live} reload=${reload} />` : html`<${Empty} text=${t("none_selected")} />`}
      </section>
      <section aria-labelledby="answer-title" class="panel">
        <h2 id="answer-title">${t("answer")}</h2>
        <${Answer} run=${run} picture=${picture} live=${live} />
        <${Rating} picture=${picture} body=${{}} ratings=${picture.ratings} live=${live} act=${act} busy=${busy} reload=${reload} />
      </section>
    </div>
  </main>`;
}

// What is wrong with a run, as keys of words and texts, the worst first.
function noticesOf(picture) {
  return [
    ["error", picture.error ? [picture.error] : []],
    ["missing", picture.missing],
    ["doubt", picture.doubt ? [picture.doubt] : []],
    ["corrected", picture.corrections],
    ["warning", picture.warnings],
  ].flatMap(([key, texts]) => texts.map((text) => [key, text]));
}

// Its place in the queue, or the first notice, in the rest of a line. All notices are at the answer.
function Brief({ picture }) {
  const [notice] = noticesOf(picture);
  if (picture.position !== null) return html`<span class="rest">${t("position", { count: picture.position })}</span>`;
  return notice ? html`<span class=${`rest ${notice[0]}`}>${t(notice[0])}: <bdi>${line(notice[1])}</bdi></span>` : null;
}

function Notices({ picture }) {
  const lines = noticesOf(picture);
  if (!lines.length) return null;
  return html`<ul class="notices">
    ${lines.map(([key, text], at) => html`<li key=${at} class=${key}><strong>${t(key)}:</strong> <${Text}>${text}<//></li>`)}
  </ul>`;
}

function Figures({ picture, live }) {
  const { output_tokens: written, prompt_tokens: read, reused_tokens: reused } = picture.totals;
  const figures = [
    live ? [t("expected_end"), duration(picture.expected_end)] : [t("duration"), duration(picture.seconds)],
    [t("predicted"), duration(picture.predicted_seconds)],
    [t("critical"), picture.path.length ? line(picture.path.length > 6 ? [...picture.path.slice(0, 3), "…", ...picture.path.slice(-2)].join(" → ") : picture.path.join(" → ")) : "–"],
    [t("concurrency"), live ? "–" : number(picture.concurrency, 2)],
    [t("output_tokens"), number(written)],
    [t("prompt_read"), read ? t("saved_share", { count: number(read), share: number((100 * reused) / read) }) : number(read)],
  ];
  return html`<dl class="figures">${figures
    .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><bdi>${value}</bdi></dd></div>`)}</dl>`;
}

function Selected({ run, picture, row, progress, act, busy, live, reload }) {
  return html`
    <p class="action"><bdi>${shown(row.action)}</bdi></p>
    <p class="facts steady"><span><${State} name=${row.state} /></span>
      ${row.critical ? html`<span class="onpath">◆ ${t("critical_yes")}</span>` : html`<span>${t("slack")} ${duration(row.slack)}</span>`}
      <span>${row.model ? t("role_on", { role: line(row.role), model: line(row.model) }) : html`<bdi>${line(row.role)}</bdi>`}</span>
    </p>
    <${Writing} run=${run} row=${row} progress=${progress.of(row.id)} remarks=${row.cause ? [row.cause] : []} />
    <div class="steering"><${StepActions} picture=${picture} row=${row} live=${live} act=${act} busy=${busy}>
      <a class="button" href=${address("runs", run, "steps", row.id)}>${t("open_step")}</a><//>
    <${Rating} key=${row.id} picture=${picture} body=${{ step: row.id }} ratings=${row.ratings} live=${live} act=${act} busy=${busy} reload=${reload} /></div>`;
}

export function Spent({ bar }) {
  const seconds = new Map();
  for (const part of bar.parts) seconds.set(part.kind, (seconds.get(part.kind) ?? 0) + part.end - part.start);
  return html`<ul class="spent">${[...seconds].map(([kind, sum]) => html`<li key=${kind}>
    <svg width="10" height="10" aria-hidden="true"><rect class=${`bar-${kind}`} x="0.5" y="0.5" width="9" height="9" /></svg>
    ${t("seconds_of", { part: t(`part_${kind}`), time: duration(sum) })}</li>`)}</ul>`;
}

// What a step is writing, or what its latest attempt has written, and remarks about it. All of it shares one space, so that nothing
// around it jumps. What is being written is scrolled to its end, unless the reader has scrolled up.
export function Writing({ run, row, progress, remarks, thoughts = true }) {
  const last = row.bars.at(-1);
  const done = last !== undefined && last.end !== null ? last.number : 0;
  const [body, problem] = useAnswer(done && runPath(run, "steps", row.id, "attempts", done));
  const update = progress.value;
  const writes = update !== null && !done;
  const text = writes ? update.text_tail : (body?.answer ?? "");
  const box = useRef(null);
  const atEnd = useRef(true);
  const scrolled = ({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => (atEnd.current = scrollTop + clientHeight >= scrollHeight - SLACK);
  useLayoutEffect(() => {
    if (writes && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, writes]);
  return html`<div class="written">
    <pre ref=${box} onScroll=${scrolled} class=${`text${writes && update.thinking ? " thinking" : ""}`} tabindex="0" aria-label=${t("written")}><bdi>${shown(text)}</bdi></pre>
    ${thoughts && body?.reasoning ? html`<${Details} summary=${t("of_which_thoughts")}>${() => html`<pre class="text thinking" tabindex="0" aria-label=${t("of_which_thoughts")}><bdi>${shown(body.reasoning)}</bdi></pre>`}<//>` : null}
    ${remarks.length ? html`<p class="cause" tabindex="0"><${Text}>${remarks.join("\n")}<//></p>` : null}
    <div class="slot" tabindex="0" role="region" aria-label=${t("times_sum")}>${done ? html`<${Spent} bar=${last} />` : html`<p class="pace">${writes ? pace(update) : ""}</p>`}</div>
    <${Problem} error=${problem} /></div>`;
}

function pace(update) {
  if (update.loading) return `${t("part_other")}: ${line(update.loading)}`;
  if (update.ahead !== null) return `${t("part_queued")}: ${update.ahead}`;
  if (update.prompt_tokens) return `${t("part_read")}: ${number(update.read_tokens)} / ${number(update.prompt_tokens)}`;
  if (update.gates.length) return `${t(update.waits_for_core ? "part_core" : "part_gates")}: ${line(update.gates.join(", "))}`;
  if (!update.output_tokens) return "";
  const rate = t("tokens_rate", { rate: number(update.tokens_per_second), count: number(update.output_tokens) });
  return update.thinking ? `${t("of_which_thoughts")}: ${rate}` : rate;
}

function Answer({ run, picture, live }) {
  const [diff, setDiff] = useState(null);
  const [refusal, setRefusal] = useState(null);
  const [list, problem] = useAnswer(runPath(run, "artifacts"), picture.totals.done, live);
  const files = list?.artifacts ?? [];
  const loadDiff = () => {
    setRefusal(null);
    if (diff === null) askText(runPath(run, "diff")).then(setDiff, setRefusal);
  };
  const results = new Set(picture.results);
  const wanted = files.filter((file) => results.has(file.name));
  const others = files.filter((file) => !results.has(file.name));
  return html`
    <div class="place">${picture.answer === null ? html`<${Empty} text=${t(live ? "answer_none" : "answer_none_ended")} />`
      : html`<pre class="text answer" tabindex="0" aria-label=${t("answer")}><bdi>${shown(picture.answer)}</bdi></pre>`}</div>
    <${Notices} picture=${picture} />
    <${Problem} error=${problem} />
    ${wanted.length ? html`<h3>${t("files")}</h3><${Files} run=${run} files=${wanted} />` : null}
    ${!live && wanted.length ? html`<${Details} summary=${t("diff")} onOpen=${loadDiff}>${() => (refusal ? html`<${Problem} error=${refusal} again=${loadDiff} />` : diff === null ? t("loading") : html`<pre class="text">${shown(diff)}</pre>`)}<//>` : null}
    ${others.length ? html`<${Details} summary=${`${t("artifacts")} (${number(others.length)})`}>${() => html`<${Files} run=${run} files=${others} />`}<//>` : null}
    ${live || isRecorded() ? null : html`<p><a href=${runPath(run, "export")} download=${`${run}.tar.gz`}>${t("archive")}</a></p>`}`;
}

function Files({ run, files }) {
  const [some, more] = useSome(files);
  return html`<ul class="files">${some.map((file) => html`<li key=${file.name}>
    <a href=${artifactPath(run, file.name)} download=${file.name.split("/").at(-1)} aria-label=${`${t("download")}: ${line(file.name)}`}><bdi>${line(file.name)}</bdi></a>
    <span class="dim">${bytes(file.bytes)}</span></li>`)}</ul>${more}`;
}

function Log({ log, picture }) {
  const count = log.at(-1)?.count ?? 0;
  const summary = html`${t("events")} <span class="dim">${t("events_shown", { shown: number(log.length), count: number(count) })}</span>`;
  return html`<${Details} kind="log" summary=${summary}>${() => html`<ol class="events" tabindex="0" aria-label=${t("events")}>${log.map(({ event, count: at }) => html`<li key=${at} value=${at} data-number=${at}>
      <span class="at">+${duration(event.at - picture.accepted_at)}</span> <bdi>${sentence(event)}</bdi></li>`)}</ol>`}<//>`;
}
