// The view *Procedures*: what can be maintained, plans with their changes before anything happens, executions, and the log.
import { useEffect, useState } from "preact/hooks";
import { ask, follow } from "./api.js";
import { line, number, shown } from "./format.js";
import { Details, Empty, html, Moment, Problem, State, Sure, Table, Text, useAnswers, useTitle } from "./parts.js";
import { oneAtATime } from "./run.js";
import { address, may, session } from "./state.js";
import { stateName, t } from "./texts.js";

const ROOT = "/v1/procedures";
const EXECUTIONS = `${ROOT}/executions`;
const OVER = ["done", "failed", "rolled back", "rollback failed", "withdrawn", "missed"];
const WAITING = ["planned", "approved", "queued"];
const UNDOABLE = ["done", "failed", "rollback failed"];

const isOf = (roles) => roles.some((role) => session.value?.roles.includes(role));
const entryName = (kind) => stateName(kind.replace("step_", "").replaceAll("_", " "));
const executionLink = (id) => html`<a href=${address("procedures", "executions", id)}>${line(id)}</a>`;

export function Procedures() {
  useTitle(t("procedures"));
  const { answers, error, reload } = useAnswers(ROOT, EXECUTIONS);
  const [list, past] = answers ?? [];
  return html`<main id="content">
    <div class="head"><h1>${t("procedures")}</h1></div>
    <${Problem} error=${error} again=${reload} />
    ${answers ? html`
      ${list.broken.length ? html`<ul class="notices">${list.broken.map((text) => html`<li key=${text} class="error"><${Text}>${text}<//></li>`)}</ul>` : null}
      <${Table} caption=${t("procedures")} sentences=${[1]} head=${["proc_name", "proc_what", "proc_needs", "proc_roles"]}
        rows=${list.procedures.map((row) => [html`<a href=${address("procedures", row.id)}>${line(row.id)}</a>`, html`<${Text}>${row.description.trim().split("\n")[0]}<//>`, needs(row.permissions), line(row.permissions.roles.join(", "))])} />
      <h2>${t("proc_schedules")}</h2>
      ${list.schedules.length ? html`<${Table} caption=${t("proc_schedules")} head=${["proc_schedule", "proc_next", "proc_last", "proc_missed"]}
        rows=${list.schedules.map((row) => [line(row.schedule), row.why_not ? line(row.why_not) : row.next === null ? "–" : html`<${Moment} at=${row.next} />`, row.last ? html`${executionLink(row.last.id)} <${State} name=${row.last.state} />` : "–",
          row.missed.map((time) => html`<div key=${time.id}><${Moment} at=${time.at} />: ${line(time.why)}</div>`)])} />` : html`<${Empty} text=${t("proc_no_schedules")} />`}
      <h2>${t("proc_executions")}</h2>
      ${past.executions.length ? html`<${Table} caption=${t("proc_executions")} head=${["id", "proc_name", "state", "proc_planned", "made_by"]}
        rows=${past.executions.map((row) => [executionLink(row.id), line(row.procedure), html`<${State} name=${row.state} />`, html`<${Moment} at=${row.planned} />`, html`<${Text}>${row.caller}<//>`])} />` : html`<${Empty} text=${t("proc_none")} />`}
      <${Details} summary=${t("proc_audit")}>${() => html`<${Audit} />`}<//>` : error ? null : t("loading")}
  </main>`;
}

function needs({ requires_approval: approval, destructive }) {
  return [approval || destructive ? t("proc_approval") : null, destructive ? t("proc_destructive") : null].filter(Boolean).join(", ");
}

function Audit() {
  const { answers, error, reload } = useAnswers(`${ROOT}/audit?limit=100`);
  const [verified, setVerified] = useState(null);
  const [damage, setDamage] = useState(null);
  const verify = () => {
    setDamage(null);
    ask("GET", `${ROOT}/audit/verify`).then(setVerified, setDamage);
  };
  if (!answers) return error ? html`<${Problem} error=${error} again=${reload} />` : t("loading");
  const [log] = answers;
  return html`<p class="facts"><span>${t("proc_head")} <code>${log.head}</code></span>
      <button type="button" onClick=${verify}>${t("proc_verify")}</button>
      <span role="status">${verified ? t("proc_verified", { count: number(verified.verified) }) : ""}</span></p>
    <${Problem} error=${damage} />
    ${log.entries.length ? null : html`<${Empty} text=${t("proc_audit_none")} />`}
    <${Table} caption=${t("proc_audit")} head=${["proc_number", "time", "proc_event", "proc_subject", "proc_execution", "made_by"]}
      rows=${[...log.entries].reverse().map((entry) => [entry.number, html`<${Moment} at=${entry.at} />`, entryName(entry.kind), html`<${Text}>${entry.step ?? entry.procedure ?? (entry.state ? stateName(entry.state) : "")}<//>`, entry.execution ? executionLink(entry.execution) : "", html`<${Text}>${entry.caller ?? ""}<//>`])} />`;
}

export function ProcedureView({ name }) {
  const { answers, error, reload } = useAnswers(`${ROOT}/${encodeURIComponent(name)}`);
  const [inputs, setInputs] = useState({});
  const [plan, setPlan] = useState(null);
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  useTitle(name);
  if (!answers) return html`<main id="content">${error ? html`<${Problem} error=${error} again=${reload} />` : t("loading")}<${Back} /></main>`;
  const [procedure] = answers;
  const filled = Object.fromEntries(Object.entries(inputs).filter(([, text]) => text !== ""));
  const send = (path, more, take) => async () => {
    setBusy(true);
    setRefusal(null);
    try {
      take(await ask("POST", `${ROOT}/${encodeURIComponent(name)}/${path}`, { inputs: filled, ...more }));
    } catch (problem) {
      setRefusal(problem);
    }
    setBusy(false);
  };
  const set = (input) => (event) => {
    setPlan(null);
    setInputs({ ...inputs, [input]: event.target.value });
  };
  const begin = (digest) => send("executions", { digest }, (execution) => (location.hash = address("procedures", "executions", execution.id)));
  return html`<main id="content" class="new"><${Back} />
    <div class="head"><div><h1>${line(procedure.id)}</h1><p class="action"><${Text}>${procedure.description.trim()}<//></p>
      <p class="facts"><span>${t("proc_version", { version: line(procedure.version) })}</span><span>${needs(procedure.permissions)}</span></p></div></div>
    ${isOf(procedure.permissions.roles) ? html`<form onSubmit=${(event) => event.preventDefault()}>
        <div class="grid">${Object.entries(procedure.inputs).map(([input, form]) => html`<${Input} key=${input} name=${input} form=${form} value=${inputs[input] ?? ""} onInput=${set(input)} />`)}</div>
        <div class="actions"><button type="button" class="main" aria-disabled=${busy} onClick=${send("plan", {}, setPlan)}>${t("new_look")}</button>
          <span class="dim" role="status">${busy ? t("loading") : ""}</span></div></form>` : html`<p>${t("proc_not_yours", { roles: line(procedure.permissions.roles.join(", ")) })}</p>`}
    <${Problem} error=${refusal} />
    ${plan ? html`<${Plan} plan=${plan} />
      ${plan.problems.length ? null : html`<div class="actions">${plan.needs_approval && !may("approve") ? html`<button type="button" aria-disabled=${busy} onClick=${begin(null)}>${t("proc_propose")}</button>`
        : plan.destructive ? html`<${Sure} label=${t("proc_approve")} sure=${t("proc_sure")} keep=${t("proc_keep")} disabled=${busy} onSure=${begin(plan.digest)} />`
        : html`<button type="button" class="main" aria-disabled=${busy} onClick=${begin(plan.digest)}>${t(plan.needs_approval ? "proc_approve" : "new_run")}</button>`}</div>`}` : null}
    <${Details} summary=${t("proc_file")}>${() => html`<p class="dim"><${Text}>${procedure.file}<//></p><pre class="text" tabindex="0" aria-label=${t("proc_file")}><bdi>${shown(procedure.text)}</bdi></pre>`}<//>
  </main>`;
}

function Back() {
  return html`<p class="back"><a href=${address("procedures")}>← ${t("procedures")}</a></p>`;
}

function Input({ name, form, value, onInput }) {
  const choices = form.type === "boolean" ? ["true", "false"] : form.choices;
  const usual = form.default === null ? "" : String(form.default);
  const hint = form.optional || form.default !== null ? usual : t("proc_required");
  return html`<label class="field"><span><strong>${line(name)}</strong>: <${Text}>${form.description}<//></span>
    ${choices.length ? html`<select value=${value} onChange=${onInput}><option value="">${hint}</option>${choices.map((choice) => html`<option key=${choice} value=${choice}>${choice}</option>`)}</select>`
      : html`<input type="text" value=${value} placeholder=${form.type === "secret" ? "env:NAME" : hint} onInput=${onInput} />`}</label>`;
}

// The steps of a plan, with the exact changes of each and how it is undone.
function Plan({ plan }) {
  return html`<section aria-labelledby="plan-title" class="plan"><h2 id="plan-title">${t("proc_plan")} <code>${plan.digest.slice(0, 16)}</code></h2>
    ${plan.problems.length || plan.destructive ? html`<ul class="notices">${plan.destructive ? html`<li><strong>${t("proc_destructive")}</strong></li>` : null}
      ${plan.problems.map((text) => html`<li key=${text} class="error"><${Text}>${text}<//></li>`)}</ul>` : null}
    <ol>${plan.steps.map((step) => html`<li key=${step.id}><h3>${line(step.id)} <span class="dim">${line(step.kind)}${["yes", "no"].includes(step.runs) ? "" : ` – ${line(step.runs)}`}</span></h3>
      ${step.description ? html`<p class="action"><${Text}>${step.description}<//></p>` : null}
      ${step.shown ? html`<${Diff} text=${step.shown} />` : null}
      <p class="dim">${t("proc_undo")}: <${Text}>${step.undo}<//></p></li>`)}</ol>
  </section>`;
}

function Diff({ text }) {
  const kind = (row) => (/^(---|\+\+\+|@@)/.test(row) ? "dim" : row[0] === "+" ? "added" : row[0] === "-" ? "removed" : null);
  return html`<pre class="text" tabindex="0" aria-label=${t("proc_changes")}>${text.split("\n").map((row, at) => html`<span key=${at} class=${kind(row)}><bdi>${shown(row)}</bdi>${"\n"}</span>`)}</pre>`;
}

// Follow an execution: how far it is, and what has happened in it.
function useExecution(id) {
  const [body, setBody] = useState(null);
  const [error, setError] = useState(null);
  const [entries, setEntries] = useState([]);
  const [saying, setSaying] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let stopped = false;
    let over = false;
    let stop = () => {};
    const load = async () => {
      const loaded = await ask("GET", `${EXECUTIONS}/${encodeURIComponent(id)}`);
      if (stopped) return;
      over = OVER.includes(loaded.state);
      setBody(loaded);
      setError(null);
    };
    const failed = (problem) => !stopped && setError(problem);
    const refresh = oneAtATime(() => load().catch(failed));
    const start = () => {
      if (stopped) return;
      setEntries([]);
      stop = follow(`${EXECUTIONS}/${encodeURIComponent(id)}/events`, 0, {
        onEvent: (entry) => {
          setEntries((lines) => [...lines, entry]);
          refresh();
        },
        onProgress: ({ step, text }) => setSaying((texts) => ({ ...texts, [step]: text })),
        onState: () => {},
        onRefused: setError,
        isOver: () => over,
      });
    };
    load().then(start, failed);
    return () => {
      stopped = true;
      stop();
    };
  }, [id, turn]);
  return { body, error, entries, saying, reload: () => setTurn((count) => count + 1) };
}

export function ExecutionView({ id }) {
  const { body, error, entries, saying, reload } = useExecution(id);
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const [force, setForce] = useState(false);
  useTitle(id);
  if (!body) return html`<main id="content">${error ? html`<${Problem} error=${error} again=${reload} />` : t("loading")}<${Back} /></main>`;
  const act = (verb, more) => async () => {
    setBusy(true);
    setRefusal(null);
    await ask("POST", `${EXECUTIONS}/${encodeURIComponent(id)}/${verb}`, more).catch(setRefusal);
    setBusy(false);
    reload();
  };
  const mine = body.plan_of ? isOf(body.plan_of.roles) : true;
  const sure = (verb, label, more) => html`<${Sure} label=${label} sure=${t("proc_sure")} keep=${t("proc_keep")} disabled=${busy} onSure=${act(verb, more)} />`;
  const notices = [...(body.error ? [body.error] : []), ...(body.no_plan ? [body.no_plan] : []), ...body.look_at.map((text) => `${t("proc_look_at")}: ${text}`)];
  return html`<main id="content"><${Back} />
    <div class="head"><div><h1>${line(body.procedure)}</h1>
      <p class="facts"><${State} name=${body.state} /><${Moment} at=${body.planned} /><span class="dim">${line(id)}</span><span class="dim"><${Text}>${body.caller}<//></span>
        ${body.approved_by ? html`<span>${t("proc_approved_by", { name: line(body.approved_by) })}</span>` : null}</p></div>
      <div class="actions">
        <span role="status">${busy ? t("loading") : ""}</span>
          ${body.state === "planned" && body.needs_approval && mine && may("approve") ? (body.plan_of?.destructive ? sure("approve", t("proc_approve"), { digest: body.plan }) : html`<button type="button" class="main" aria-disabled=${busy} onClick=${act("approve", { digest: body.plan })}>${t("proc_approve")}</button>`) : null}
          ${WAITING.includes(body.state) && mine ? html`<button type="button" aria-disabled=${busy} onClick=${act("withdraw")}>${t("proc_withdraw")}</button>` : null}
          ${!OVER.includes(body.state) && !WAITING.includes(body.state) && mine ? sure("cancel", t("proc_cancel")) : null}
          ${UNDOABLE.includes(body.state) && mine && body.plan_of ? html`<label><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> ${t("proc_force")}</label> ${sure("rollback", t("proc_rollback"), { force })}` : null}
      </div></div>
    <${Problem} error=${refusal} /><${Problem} error=${error} again=${reload} />
    ${notices.length ? html`<ul class="notices">${notices.map((text) => html`<li key=${text}><${Text}>${text}<//></li>`)}</ul>` : null}
    ${body.steps.length ? html`<${Table} caption=${t("steps")} head=${["step", "state", "proc_changed", "proc_says"]}
      rows=${body.steps.map((step) => [line(step.id), html`<${State} name=${step.state} />`, html`<${Text}>${step.changed.join(", ")}<//>`, html`<${Text}>${step.error || saying[step.id] || ""}<//>`])} />` : null}
    <${Facts} name="proc_outputs" facts=${Object.entries(body.outputs).map(([key, value]) => `${key} = ${JSON.stringify(value)}`)} />
    <${Facts} name="proc_changed" facts=${body.changed} />
    <${Facts} name="proc_undone" facts=${body.undone} />
    <${Details} kind="log" summary=${html`${t("events")} <span class="dim">${number(entries.length)}</span>`}>${() => html`<ol class="events" tabindex="0" aria-label=${t("events")}>
      ${entries.map((entry) => html`<li key=${entry.number} value=${entry.number}><${Moment} at=${entry.at} />: <bdi>${entry.step ? `${line(entry.step)} ` : ""}${entryName(entry.kind)}</bdi></li>`)}</ol>`}<//>
    ${body.plan_of ? html`<${Plan} plan=${body.plan_of} />` : null}
  </main>`;
}

function Facts({ name, facts }) {
  if (!facts.length) return null;
  return html`<h2>${t(name)}</h2><ul class="plain">${facts.map((fact) => html`<li key=${fact}><${Text}>${fact}<//></li>`)}</ul>`;
}
