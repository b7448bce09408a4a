// The view *Step*: why this role and model, the prompt with its shared part, and all attempts with texts and gates.
import { useEffect, useRef, useState } from "preact/hooks";
import { runPath } from "./api.js";
import { bytes, duration, line, number, shown } from "./format.js";
import { Empty, Head, html, Problem, State, stateClass, Text, useAnswer, useTitle } from "./parts.js";
import { rowOf, Spent, useRun, Writing } from "./run.js";
import { address } from "./state.js";
import { ENDED, Rating, StepActions, useAct } from "./step_actions.js";
import { stateName, t, word } from "./texts.js";

const FINDING = /^(.+?):(\d+): (.*)$/; // as the daemon writes what a gate found
const INDEX = /\[\d+\]$/; // of a child's output, which is not in the name of the file that gates check

export function StepView({ run, step }) {
  const { picture, error, progress, reload } = useRun(run, step, 0);
  const { refusal: refused, busy, act } = useAct(run);
  const isFollowed = useRef(false);
  const [complete, setComplete] = useState({}); // by number of an attempt, the outcome with which it is shown
  const row = picture && rowOf(picture, step);
  const version = row ? `${row.state} ${row.bars.length} ${row.bars.at(-1)?.outcome}` : "";
  useTitle(`${step} – ${picture?.request ?? run}`);
  const [facts, refusal] = useAnswer(picture && runPath(run, "steps", step), version);
  const problem = refusal ?? error ?? refused;
  if (!facts || !row) {
    return html`<main id="content">
      <p class="back"><a href=${address("runs", run)}>← ${t("back_run")}</a></p>
      ${problem ? html`<${Problem} error=${problem} again=${reload} />` : t("loading")}</main>`;
  }
  const attempts = facts.step.attempts;
  const live = !ENDED.includes(picture.status);
  // What it writes keeps its place from one attempt to the next, and when the step has ended, and so do the attempts.
  isFollowed.current ||= live && !ENDED.includes(row.state);
  const followed = isFollowed.current;
  return html`<main id="content" class="step">
    <p class="back"><a href=${address("runs", run)}>← ${t("back_run")}</a></p>
    <div class="head"><div>
      <h1>${t("step")} <bdi>${line(step)}</bdi></h1>
      <p class="action"><bdi>${shown(facts.step.action)}</bdi></p>
    </div></div>
    <${Problem} error=${problem} again=${reload} />
    <${Facts} run=${run} facts=${facts} row=${row} remarks=${followed ? [] : remarksOf(facts)} />
    <div class=${followed ? "steering" : null}><${StepActions} picture=${picture} row=${row} live=${live} act=${act} busy=${busy} /></div>
    ${followed ? html`<section class="panel writing" aria-labelledby="writing-title"><h2 id="writing-title">${t("written")}</h2><${Writing} run=${run} row=${row} progress=${progress.of(step)} thoughts=${false}
      remarks=${remarksOf(facts).map(([key, text]) => `${t(key)}: ${text}`)} /></section>` : null}
    <section aria-labelledby="attempts-title">
      <h2 id="attempts-title">${t("attempts")}</h2>
      ${attempts.length ? null : html`<${Empty} text=${t("attempts_none")} />`}
      ${attempts.filter((_, at) => attempts.slice(0, at).every(({ number, outcome }) => complete[number] === outcome))
        .map((attempt) => html`<${Attempt} key=${attempt.number} run=${run} step=${step} attempt=${attempt} progress=${progress.of(step)}
          bar=${row.bars.find((bar) => bar.number === attempt.number)} onComplete=${() => setComplete((old) => ({ ...old, [attempt.number]: attempt.outcome }))} />`)}
    </section>
    <${Rating} picture=${picture} body=${{ step }} ratings=${row.ratings} live=${live} act=${act} busy=${busy} reload=${reload} />
  </main>`;
}

// Why a step has ended, and what may be wrong with it, as keys of words and texts.
function remarksOf({ step, warnings, doubts }) {
  const all = [["reason", step.cause ? [step.cause] : []], ["warning", warnings], ["doubt", doubts]];
  return all.flatMap(([key, texts]) => texts.map((text) => [key, text]));
}

function Facts({ run, facts, row, remarks }) {
  const { step } = facts;
  const last = step.attempts.at(-1);
  const link = (name) => html`<a href=${address("runs", run, "steps", name)}><bdi>${line(name)}</bdi></a>`;
  const edges = facts.waited_for.filter((edge) => !edge.dropped);
  const needed = [...new Set(facts.needed_by.filter((edge) => !edge.dropped).map((edge) => edge.after))];
  const low = step.predicted && step.predicted.seconds / Math.exp(1.645 * step.predicted.spread);
  const high = step.predicted && step.predicted.seconds * Math.exp(1.645 * step.predicted.spread);
  const lines = [
    [t("state"), html`<${State} name=${step.state} />`],
    [t("role"), last ? t("role_on", { role: line(last.role), model: line(last.model) }) : line(step.role)],
    [t("persona"), step.persona ? html`<${Text}>${step.persona}<//>` : "–"],
    [t("time"), step.started === null ? "–" : step.finished === null ? t("not_ended") : duration(step.finished - step.started)],
    [t("slack"), row.critical ? html`<span class="onpath">◆ ${t("critical_yes")}</span>` : duration(row.slack)],
    [t("predicted"), step.predicted ? `${duration(step.predicted.seconds)} (${duration(low)} – ${duration(high)})` : "–"],
    [t("waited_for"), edges.length ? html`<ul class="plain">${edges.map((edge, at) => html`<li key=${at}>${link(edge.before)}: ${word("edge", edge.reason)} <bdi>${line(edge.artifact)}</bdi></li>`)}</ul>` : t("no_step")],
    [t("needed_by"), needed.length ? needed.map((name, at) => html`${at ? ", " : ""}${link(name)}`) : t("no_step")],
    ...remarks.map(([key, text]) => [t(key), html`<${Text}>${text}<//>`]),
  ];
  return html`<dl class="pairs">${lines
    .map(([name, value], at) => html`<div key=${at}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// What comes later is below what was there, so that no text moves while it is read.
function Attempt({ run, step, attempt, progress, bar, onComplete }) {
  const [body, problem] = useAnswer(runPath(run, "steps", step, "attempts", attempt.number), attempt.outcome);
  const name = t("attempt", { number: attempt.number });
  const { drafted_tokens: drafted, accepted_tokens: accepted } = attempt.usage;
  const isCurrent = problem !== null || body?.outcome === attempt.outcome;
  const isEnded = isCurrent && attempt.finished !== null;
  useEffect(() => {
    if (isCurrent) onComplete();
  }, [isCurrent, attempt.outcome]);
  return html`<article class="attempt panel" aria-label=${name}>
    <h3>${name} ${stateClass(attempt.outcome) === "failed" ? html`<span class="state failed">${stateName("failed")} (${stateName(attempt.outcome)})</span>`
      : html`<${State} name=${attempt.outcome} />`}</h3>
    <p class="action dim">${t("role_on", { role: line(attempt.role), model: line(attempt.model) })}${
      attempt.reason ? html`. ${t("reason")}: <${Text}>${attempt.reason}<//>` : null}</p>
    <${Problem} error=${problem} />
    ${body ? html`<${Prompt} run=${run} parts=${body.prompt} usage=${attempt.usage} />` : null}
    <p class="facts"><${Nodes} attempt=${attempt} progress=${progress} />
      ${isEnded ? html`<span>${duration(attempt.finished - attempt.started)}</span>` : null}
      ${isEnded && drafted ? html`<span>${t("drafts_accepted", { count: number(accepted), drafted: number(drafted) })}</span>` : null}</p>
    <${Calls} calls=${attempt.calls} />
    ${body && isCurrent && body.outcome !== "running" ? html`
      ${body.reasoning ? html`<details><summary>${t("of_which_thoughts")} (${number(attempt.usage.reasoning_tokens)})</summary><pre class="text thinking"><bdi>${shown(body.reasoning)}</bdi></pre></details>` : null}
      <${Answer} body=${body} gates=${attempt.gates} />` : null}
    ${isEnded || attempt.gates.length ? html`<${Gates} gates=${attempt.gates} />` : null}
    ${isEnded && attempt.message ? html`<p class="cause"><${Text}>${attempt.message}<//></p>` : null}
    ${isEnded && bar ? html`<${Spent} bar=${bar} />` : null}
    ${body || problem ? null : t("loading")}
  </article>`;
}

// The nodes and servers that an attempt is or was with. Its usage has them when the model has answered.
function Nodes({ attempt, progress }) {
  const update = progress.value;
  const nodes = attempt.usage.nodes ?? (update?.attempt === attempt.number ? update.nodes : []);
  return nodes.length ? html`<span>${t("on_node")} <bdi>${line(nodes.join(", "))}</bdi></span>` : null;
}

function Prompt({ run, parts, usage }) {
  const titles = { system: "prompt_system", persona: "prompt_persona", input: "prompt_input", item: "prompt_item", task: "prompt_task", evidence: "prompt_evidence" };
  return html`<details open><summary>${t("prompt")}</summary>
    <div class="prompt">${parts.map((part, at) => html`<section key=${at} class=${part.shared_with ? "part shared" : "part"}>
      <h5>${t(titles[part.kind])} ${part.name ? html`<bdi>${line(part.name)}</bdi>` : null}
        ${part.shared_with ? html`<span class="badge">${t("prompt_shared", { step: line(part.shared_with) })}</span>` : null}</h5>
      ${part.why_not ? html`<p class="empty"><${Text}>${part.why_not}<//></p>` : html`<pre class="text" tabindex="0" aria-label=${t(titles[part.kind])}><bdi>${shown(part.text)}</bdi></pre>`}
    </section>`)}</div>
    <${Saved} usage=${usage} />
  </details>`;
}

// How many tokens of the prompt were computed and how many were not, as a bar and in words; and why some were computed again.
function Saved({ usage }) {
  const { prompt_tokens: all, cached_tokens: reused, reuse, shipped = [] } = usage;
  if (!all) return null; // nothing has been read yet
  const lost = Object.entries(reuse.lost_tokens).sort(([, one], [, other]) => other - one);
  const about = usage.estimated_tokens ? "≈ " : "";
  const again = lost.reduce((sum, [, count]) => sum + count, 0);
  const lines = [
    ["reused", t("saved_reused", { count: about + number(reused), share: number((100 * reused) / all) })],
    ["computed", t("saved_computed", { count: about + number(all - reused) })],
    ...lost.map(([cause, count]) => ["lost", t("saved_lost", { count: number(count), why: word("loss", cause) })]),
    ...shipped.map((part) => [null, t("shipped_from", { count: number(part.tokens), machine: line(part.source), size: bytes(part.bytes) })]),
  ];
  return html`<svg class="scale saved" viewBox="0 0 ${all} 1" preserveAspectRatio="none" aria-hidden="true">
      <rect class="saved-computed" width=${all} height="1" /><rect class="saved-lost" width=${reused + again} height="1" /><rect class="saved-reused" width=${reused} height="1" /></svg>
    <ul class="spent" aria-label=${t("prompt_read")}>${lines.map(([kind, text], at) => html`<li key=${at}>
      ${kind ? html`<svg width="10" height="10" aria-hidden="true"><rect class=${`saved-${kind}`} width="10" height="10" /></svg>` : null}<bdi>${text}</bdi></li>`)}</ul>`;
}

// The answer, each of several outputs below its name. Findings are in the output whose file they name.
function Answer({ body, gates }) {
  const outputs = Object.entries(body.outputs);
  const findings = findingsOf(gates);
  const isOf = (name) => (finding) => finding.file === name.replace(INDEX, "");
  const title = html`<h4>${t("answer")}</h4>`;
  // Journals of earlier versions do not say which outputs an answer that failed was read as.
  const isOneFile = new Set(findings.map((finding) => finding.file)).size === 1;
  if (!outputs.length) return html`${title}<${Listing} name=${t("answer")} text=${body.answer} findings=${isOneFile ? findings : []} />`;
  return html`${title}${outputs.map(([name, text]) => html`<div key=${name} class="output">
    ${outputs.length > 1 ? html`<h5><bdi>${line(name)}</bdi></h5>` : null}
    <${Listing} name=${outputs.length > 1 ? line(name) : t("answer")} text=${text} findings=${findings.filter(isOf(name))} /></div>`)}`;
}

// What gates found at a line of a file.
function findingsOf(gates) {
  return gates.filter((gate) => gate.status === "failed").flatMap((gate) => gate.evidence.split("\n").map((evidence) => [gate.gate, FINDING.exec(evidence)]))
    .filter(([, match]) => match).map(([gate, [, file, at, text]]) => ({ file, line: Number(at), text: `${gate}: ${text}` }));
}

// A text, with numbered lines if there are findings, each below its line.
function Listing({ name, text, findings }) {
  if (!text) return html`<p class="empty">–</p>`;
  if (!findings.length) return html`<pre class="text" tabindex="0" aria-label=${name}><bdi>${shown(text)}</bdi></pre>`;
  return html`<ol class="listing" tabindex="0" aria-label=${name}>${text.split("\n").map((row, at) => html`<li key=${at}>
    <code><bdi>${shown(row) || " "}</bdi></code>
    ${findings.filter((finding) => finding.line === at + 1).map((finding, index) => html`<p key=${index} class="finding"><bdi>${shown(finding.text)}</bdi></p>`)}
  </li>`)}</ol>`;
}

function Gates({ gates }) {
  if (!gates.length) return html`<${Empty} text=${t("gates_none")} />`;
  return html`<table class="gates"><caption>${t("gates")}</caption>
    <${Head} keys=${["gate", "state", "duration", "evidence"]} classes=${{ duration: "figure" }} />
    <tbody>${gates.map((gate, at) => html`<tr key=${at}>
      <th scope="row"><bdi>${line(gate.gate)}</bdi></th><td><${State} name=${gate.status} /></td>
      <td class="figure">${duration(gate.seconds)}</td>
      <td><pre class="evidence"><bdi>${shown(gate.evidence)}</bdi></pre></td>
    </tr>`)}</tbody></table>`;
}

function Calls({ calls }) {
  if (!calls.length) return null;
  return html`<table class="gates"><caption>${t("calls")}</caption>
    <${Head} keys=${["tool", "state", "duration", "evidence"]} classes=${{ duration: "figure" }} />
    <tbody>${calls.map((call, at) => html`<tr key=${at}>
      <th scope="row"><bdi>${line(call.tool)}</bdi></th><td>${stateName(call.outcome)}</td>
      <td class="figure">${duration(call.seconds)}</td>
      <td><pre class="evidence"><bdi>${shown(call.arguments)}</bdi>${call.message ? html`\n<bdi>${shown(call.message)}</bdi>` : null}</pre></td>
    </tr>`)}</tbody></table>`;
}
