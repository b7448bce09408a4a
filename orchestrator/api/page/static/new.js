// The view *New*: a request or a document, its files, and the plan with its price before anything runs.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, Refused } from "./api.js";
import { Chart, Legend, Tables } from "./chart.js";
import { bytes, duration, line, number, shown } from "./format.js";
import { Empty, html, Problem, Text, useTitle } from "./parts.js";
import { Editor } from "./plan_edit.js";
import { address } from "./state.js";
import { t, word } from "./texts.js";

const LIMITS = ["seconds", "tokens", "bytes"]; // as `POST /v1/runs` accepts them
const PAUSE = 400; // milliseconds without a key until a document is checked
const EXAMPLE = `{"objective": "", "plan": {"steps": [
  {"id": "S1", "actor": "worker", "action": "", "outputs": ["answer"]}]}}`;

export function New() {
  const [kind, setKind] = useState("request");
  const [request, setRequest] = useState("");
  const [text, setText] = useState(EXAMPLE);
  const [files, setFiles] = useState([]);
  const [more, setMore] = useState({ directory: "", priority: "" });
  const [forecast, setForecast] = useState(null);
  const [edited, setEdited] = useState(null); // the document that has become of the plan of a request
  const [selected, setSelected] = useState(null);
  const [problem, setProblem] = useState(null); // of a plan, a check or a file
  const [refusal, setRefusal] = useState(null); // of a submission; it stays while the document is checked
  const [looking, setLooking] = useState(false); // a plan or a check is awaited
  const [sending, setSending] = useState(false);
  const [loading, setLoading] = useState(0); // files that are being uploaded
  const asked = useRef(null);
  const submission = useRef(null); // the latest one, with its idempotency key
  useTitle(t("new"));

  // What was planned or checked is about the job as it was.
  const changed = (set) => (value) => {
    asked.current?.abort();
    setForecast(null);
    setEdited(null);
    setProblem(null);
    setRefusal(null);
    setLooking(false);
    set(value);
  };
  const parsed = kind === "task" ? parse(text) : {};
  const common = { files: files.map((file) => file.id) };
  if (more.directory.trim()) common.directory = more.directory.trim();
  const mode = forecast?.mode === "direct" ? "as-planned" : forecast?.mode;
  const job = kind === "task" ? { ...common, task: parsed.value } : edited ? { ...common, task: edited, mode } : { ...common, request };
  const ready = kind === "task" ? parsed.value !== undefined : request.trim() !== "";

  const look = async (job) => {
    asked.current?.abort();
    const stop = (asked.current = new AbortController());
    setLooking(true);
    setProblem(null);
    try {
      const answer = await ask("POST", "/v1/forecasts", job, { signal: stop.signal });
      setForecast(job.task === edited ? { ...answer, of: edited, direct_seconds: forecast.direct_seconds, direct_has_data: forecast.direct_has_data, goes_on_after: forecast.goes_on_after } : answer);
      setSelected(null);
    } catch (error) {
      if (!stop.signal.aborted) {
        if (job.request) setForecast(null);
        setProblem(error);
      }
    }
    if (!stop.signal.aborted) setLooking(false);
  };
  // A document is checked while it is written; a request is planned on demand, as that takes a model's time.
  useEffect(() => {
    if (!edited && (kind !== "task" || parsed.value === undefined)) return undefined;
    const timer = setTimeout(look, PAUSE, job);
    return () => clearTimeout(timer);
  }, [kind, text, edited, more.directory, files]);
  useEffect(() => () => asked.current?.abort(), []);

  const submit = async (body) => {
    if (sending) return;
    setSending(true);
    setRefusal(null);
    const limits = Object.fromEntries(LIMITS.filter((name) => more[name]).map((name) => [name, Number(more[name])]));
    const whole = { ...common, ...body, limits, ...(more.priority ? { priority: more.priority } : {}) };
    const text = JSON.stringify(whole);
    // The same job again is the same submission, whose answer was lost.
    if (submission.current?.text !== text) submission.current = { text, key: newKey() };
    try {
      const run = await ask("POST", "/v1/runs", whole, { headers: { "Idempotency-Key": submission.current.key } });
      // The run has the texts of the files.
      await Promise.allSettled(files.map((file) => ask("DELETE", `/v1/files/${encodeURIComponent(file.id)}`)));
      location.hash = address("runs", run.run_id);
    } catch (error) {
      setRefusal(error);
      setSending(false);
    }
  };
  const direct = { request, mode: "direct" };
  const own = kind === "task" ? { task: parsed.value } : { request };
  const task = kind === "task" ? parsed.value : (edited ?? forecast?.task);
  const edit = (value) => (kind === "task" ? setText(JSON.stringify(value, null, 2)) : setEdited(value));
  const replan = () => {
    setEdited(null);
    look({ ...common, request });
  };
  const waiting = looking || sending || loading > 0;
  const again = !edited && Boolean(forecast?.goes_on_after); // the rest depends on outputs, so the run is planned again
  return html`<main id="content" class="new">
    <div class="head"><h1>${t("new")}</h1></div>
    <form onSubmit=${(event) => event.preventDefault()}>
      <fieldset class="kinds"><legend class="unseen">${t("new_kind")}</legend>
        ${[["request", t("new_request")], ["task", t("new_task")]].map(([name, label]) => html`<label key=${name}>
          <input type="radio" name="kind" value=${name} checked=${kind === name} onChange=${() => changed(setKind)(name)} /> ${label}</label>`)}
      </fieldset>
      ${kind === "request"
        ? html`<label class="field">${t("new_request_label")}<textarea rows="5" value=${request} onInput=${(event) => changed(setRequest)(event.target.value)}></textarea></label>`
        : html`<label class="field">${t("new_task_label")}<textarea rows="12" class="mono" spellcheck="false" value=${text}
            aria-describedby="document-state" onInput=${(event) => changed(setText)(event.target.value)}></textarea></label>
          <p id="document-state" role="status" class="check">${parsed.error ? html`<span class="cause">${t("new_no_json")}: ${line(parsed.error)}</span>`
            : looking ? t("new_checking") : forecast && !problem ? html`<span class="state done">${t("new_valid")}</span>` : ""}</p>`}
      <${Drop} files=${files} setFiles=${changed(setFiles)} setProblem=${setProblem}
        loading=${loading} setLoading=${setLoading} />
      <details class="more"><summary>${t("new_more")}</summary><div class="grid">
        <${Field} name="directory" more=${more} set=${changed(setMore)} label=${t("new_directory")} />
        <label class="field">${t("new_priority")}<select value=${more.priority} onChange=${(event) => setMore({ ...more, priority: event.target.value })}>
          <option value="">${t("new_default")}</option><option value="interactive">${t("new_interactive")}</option><option value="batch">${t("new_batch")}</option></select></label>
        ${LIMITS.map((name) => html`<${Field} key=${name} name=${name} more=${more} set=${setMore} label=${t(`limit_${name}`)} type="number" />`)}
      </div></details>
      <div class="actions">
        ${kind === "request" ? html`<button type="button" class="main" aria-disabled=${!ready || waiting} onClick=${replan}>${t("new_look")}</button>` : null}
        <button type="button" aria-disabled=${!ready || waiting} onClick=${() => submit(own)}>${t(kind === "request" ? "new_blind" : "new_run")}</button>
        <span class="dim" role="status">${sending ? t("new_submitting") : looking && kind === "request" ? t(edited ? "new_checking" : "new_planning") : ""}</span>
      </div>
    </form>
    <${Problems} error=${refusal ?? problem} />
    ${forecast ? html`<${Plan} forecast=${forecast} kind=${kind} waiting=${waiting || (edited && forecast.of !== edited)} selected=${selected} onSelect=${setSelected}
      task=${task} edit=${edit} edited=${edited} again=${again} problems=${(refusal ?? problem)?.problems ?? []}
      run=${() => submit(again ? own : forecast.mode === "direct" && !edited ? direct : { task, mode })}
      direct=${() => submit(direct)} />` : waiting || problem || refusal ? null : html`<${Empty} text=${t("new_plan_none")} />`}
  </main>`;
}

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function parse(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { value } : { error: t("new_no_object") };
  } catch (error) {
    return { error: error.message };
  }
}

function Field({ name, more, set, label, type = "text" }) {
  return html`<label class="field">${label}<input type=${type} min="1" value=${more[name] ?? ""}
    onInput=${(event) => set({ ...more, [name]: event.target.value })} /></label>`;
}

// What the daemon found wrong, each problem with its place and what would be accepted.
function Problems({ error }) {
  if (!(error instanceof Refused) || !error.problems.length) return html`<${Problem} error=${error} />`;
  return html`<div class="problems" role="alert"><ul>${error.problems.map((problem, at) => html`<li key=${at}>
    <code><bdi>${line(problem.where)}</bdi></code> <${Text}>${problem.what}<//>
    ${problem.accepted ? html`<span class="dim"> – ${t("new_accepted")}: <${Text}>${problem.accepted}<//></span>` : null}</li>`)}</ul></div>`;
}

function Drop({ files, setFiles, setProblem, loading, setLoading }) {
  const [over, setOver] = useState(false);
  const latest = useRef(files);
  latest.current = files;
  const add = async (list) => {
    setLoading((count) => count + list.length);
    for (const file of list) {
      const body = new FormData();
      body.append("file", file);
      body.append("purpose", "user_data");
      try {
        const stored = await ask("POST", "/v1/files", body);
        setFiles([...latest.current, { id: stored.id, name: stored.filename, bytes: stored.bytes }]);
      } catch (error) {
        setProblem(error);
      }
      setLoading((count) => count - 1);
    }
  };
  const remove = (gone) => {
    setFiles(files.filter((file) => file.id !== gone.id));
    ask("DELETE", `/v1/files/${encodeURIComponent(gone.id)}`).catch(setProblem);
  };
  const hover = (value) => (event) => {
    event.preventDefault();
    setOver(value);
  };
  const drop = (event) => {
    hover(false)(event);
    add([...event.dataTransfer.files]);
  };
  const choose = (event) => {
    add([...event.target.files]);
    event.target.value = "";
  };
  return html`<div class=${`drop${over ? " over" : ""}`} onDragOver=${hover(true)} onDragLeave=${hover(false)} onDrop=${drop}>
    <label class="chooser">${t("new_files")} <span class="button">${t("new_choose")}</span><input class="unseen" type="file" multiple onChange=${choose} /></label>
    <span class="dim" role="status">${loading ? t("loading") : ""}</span>
    ${files.length ? html`<ul class="files">${files.map((file) => html`<li key=${file.id}><bdi>${line(file.name)}</bdi> <span class="dim">${bytes(file.bytes)}</span>
      <button type="button" onClick=${() => remove(file)} aria-label=${t("new_remove", { name: line(file.name) })}>×</button></li>`)}</ul>` : null}
  </div>`;
}

function Plan({ forecast, kind, waiting, selected, onSelect, task, edit, edited, again, problems, run, direct }) {
  const [editing, setEditing] = useState(false);
  const [approved, setApproved] = useState(null); // the task that may do more than write: each plan is another one
  // Steps that do more than write text. Who wrote the document knows them, and nobody those of a plan that is still to be made.
  const acting = kind === "request" && !again ? task.plan.steps.filter((step) => step.tools?.length || (step.kind ?? "generate") !== "generate") : [];
  const row = forecast.rows.find((step) => step.id === selected);
  const loads = Object.entries(forecast.bytes_to_load);
  const figures = [
    [t("predicted"), forecast.has_data ? `${duration(forecast.run_seconds)} (${duration(forecast.range_seconds[0])} – ${duration(forecast.range_seconds[1])})` : t("new_no_data")],
    [t("new_serial"), forecast.has_data ? duration(forecast.serial_seconds) : "–"],
    [t("new_prompt"), number(forecast.prompt_tokens)],
    [t("new_output"), number(forecast.output_tokens)],
    [t("new_models"), loads.map(([model, size]) => `${line(model)}: ${size ? t("new_to_load", { size: bytes(size) }) : t("new_loaded")}`).join(", ")],
    [t("new_memory"), t("new_memory_of", { size: bytes(forecast.memory_bytes), budget: bytes(forecast.memory_budget) })],
    [t("new_direct_time"), forecast.direct_seconds === null ? null : forecast.direct_has_data ? duration(forecast.direct_seconds) : t("new_no_data")],
  ];
  const isDirect = forecast.mode === "direct";
  return html`<section aria-labelledby="plan-title" class="plan">
    <h2 id="plan-title">${t(isDirect ? "new_plan_direct" : "new_plan")}</h2>
    ${forecast.reason || forecast.goes_on_after || forecast.warnings.length ? html`<ul class="notices">
      ${forecast.reason ? html`<li><${Text}>${forecast.reason}<//></li>` : null}
      ${forecast.goes_on_after ? html`<li>${t(edited ? "edit_cut" : "new_goes_on", { step: line(forecast.goes_on_after) })}</li>` : null}
      ${forecast.warnings.map((text, at) => html`<li key=${at}><strong>${t("warning")}:</strong> <${Text}>${text}<//></li>`)}
    </ul>` : null}
    <dl class="figures">${figures.filter(([, value]) => value !== null).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${acting.length ? html`<label><input type="checkbox" checked=${approved === task} onChange=${() => setApproved(approved === task ? null : task)} /> ${t("edit_allow", {
      steps: line(acting.map((step) => `${step.id} (${step.tools?.join(", ") || word("kind", step.kind)})`).join(", ")) })}</label>` : null}
    <div class="actions">
      ${kind === "request" ? html`<button type="button" class="main" aria-disabled=${waiting || (acting.length > 0 && approved !== task)} onClick=${run}>${t(again ? "new_again" : "new_approve")}</button>` : null}
      <button type="button" aria-expanded=${editing} onClick=${() => setEditing(!editing)}>${t("edit")}</button>
      ${kind === "request" && forecast.direct_seconds !== null ? html`<button type="button" aria-disabled=${waiting} onClick=${direct}>${t("new_direct")}</button>` : null}
    </div>
    ${editing && task ? html`<${Editor} task=${task} onEdit=${edit} problems=${problems} />` : null}
    <${Chart} picture=${forecast} receivedAt=${0} live=${false} selected=${selected} onSelect=${onSelect} onOpen=${() => {}} />
    <p class="action" role="status"><bdi>${row ? `${line(row.id)}: ${shown(row.action)}` : t("none_selected")}</bdi></p>
    <${Legend} />
    <${Tables} picture=${forecast} />
  </section>`;
}
