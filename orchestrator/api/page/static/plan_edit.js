// The plan of a job as a form. Each change makes another TaskIR document, which the daemon checks and prices.
import { useLayoutEffect, useState } from "preact/hooks";
import { line } from "./format.js";
import { html, Problem, Text, useAnswer } from "./parts.js";
import { t } from "./texts.js";

const FIELDS = { actor: "role", persona: "persona", inputs: "prompt_input", depends_on: "after", foreach: "edit_each" };
const LISTS = ["inputs", "depends_on"];
const count = (text) => (text ? Number(text) : undefined);

export function Editor({ task, onEdit, problems }) {
  const [registry, problem] = useAnswer("/v1/registry");
  if (!registry) return problem ? html`<${Problem} error=${problem} />` : t("loading");
  const { steps, parallelism, wanted } = task.plan;
  const agents = task.agents ?? [];
  const edit = (plan, more) => onEdit({ ...task, ...more, plan: { ...task.plan, ...plan } });
  const set = (at, name, text) => {
    const value = LISTS.includes(name) ? text.split(/\s*,\s*/).filter(Boolean) : text || undefined;
    edit({ steps: steps.map((step, index) => (index === at ? { ...step, [name]: value } : step)) });
  };
  // Who waited for the step no longer does. Who reads what it wrote is left to the check.
  const remove = (removed) => {
    const others = steps.filter((step) => step !== removed).map((step) => ({ ...step, depends_on: step.depends_on?.filter((id) => id !== removed.id) }));
    edit({ steps: others, wanted: wanted?.filter((name) => !removed.outputs.includes(name)) });
  };
  const limited = (role) => agents.find((agent) => agent.role === role);
  const limit = (role, text) => {
    const agent = limited(role) ?? { role, tier: registry.roles.find(({ name }) => name === role)?.tier };
    edit({}, { agents: [...agents.filter((other) => other !== agent), { ...agent, max_concurrency: count(text) }] });
  };
  const offered = { actor: registry.roles, persona: registry.personas };
  return html`<div class="editor">
    ${Object.entries(offered).map(([id, entries]) => html`<datalist id=${id}>${entries.map(({ name }) => html`<option value=${name} />`)}</datalist>`)}
    <${Input} label="edit_width" type="number" min="1" value=${parallelism?.max_concurrent_steps}
      set=${(text) => edit({ parallelism: { ...parallelism, max_concurrent_steps: count(text) } })} />
    ${steps.map((step, at) => html`<fieldset key=${step.id} class="panel">
      <legend><bdi>${line(`${step.id}: ${step.action}`)}</bdi></legend>
      <div class="grid">
        ${Object.entries(FIELDS).map(([name, label]) => html`<${Input} label=${label} list=${name} value=${[step[name] ?? []].flat().join(", ")} set=${(text) => set(at, name, text)} />`)}
        ${step.foreach ? html`<${Input} label="edit_items" type="number" min="1" value=${limited(step.actor)?.max_concurrency} set=${(text) => limit(step.actor, text)} />` : null}
      </div>
      ${problems.filter(({ where }) => where.startsWith(`/plan/steps/${at}/`)).map(({ what }) => html`<p class="cause"><${Text}>${what}<//></p>`)}
      <button type="button" onClick=${() => remove(step)}>${t("new_remove", { name: step.id })}</button>
    </fieldset>`)}
  </div>`;
}

function Input({ label, value = "", set, ...more }) {
  const [text, setText] = useState(value); // which is not in the document until the field is left
  useLayoutEffect(() => setText(value), [value]); // before anything can be typed, which would be lost
  return html`<label class="field">${t(label)}<input ...${more} value=${text} onInput=${(event) => setText(event.target.value)} onChange=${() => set(`${text}`.trim())} /></label>`;
}
