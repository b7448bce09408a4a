// The view *Compare*: two runs and their steps, by id, and how their answers differ.
import { runPath } from "./api.js";
import { duration, line, number, shown } from "./format.js";
import { Head, html, Moment, Problem, State, useAnswer, useSome, useTitle } from "./parts.js";
import { address } from "./state.js";
import { t, word } from "./texts.js";

const NAMES = ["A", "B"];
const MARKS = { "+": "badge", "-": "cause" }; // of lines of a diff

export function Compare({ first, second }) {
  const [facts, problem] = useAnswer(runPath(first, "comparison", second));
  const [steps, more] = useSome(facts?.steps ?? []);
  useTitle(t("compare"));
  if (!facts) return html`<main id="content">${problem ? html`<${Problem} error=${problem} />` : t("loading")}</main>`;
  const { runs, answers } = facts;
  const longest = Math.max(1e-3, ...runs.map((run) => run.seconds));
  const whole = runs.map((run) => ({ ...run.figures, ...run, state: run.status, role: word("mode", run.mode) }));
  return html`<main id="content" class="compare">
    <div class="head"><h1>${t("compare")}</h1></div>
    <ul class="plain">${runs.map((run, at) => html`<li key=${at}>${NAMES[at]}: <a href=${address("runs", run.run_id)}><bdi>${line(run.request) || run.run_id}</bdi></a> (<${Moment} at=${run.accepted_at} />)
      <br />◆ <bdi>${line(run.path.join(" → "))}</bdi>: ${duration(run.figures.path_seconds)}</li>`)}</ul>
    ${facts.same_plan ? null : html`<p class="differs">${t("compare_plans")}</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${t("steps")}><table>
      <${Head} keys=${["step", "run", "state", "role", "attempts", "duration", "predicted", "prompt_read", "output_tokens"]} />
      ${[{ id: t("run"), sides: whole }, ...steps].map(({ id, action, sides }) => html`<tbody key=${id}>${sides.map((side, at) => html`<tr key=${at}>
        ${at ? null : html`<th scope="rowgroup" rowspan="2"><bdi title=${shown(action)}>${line(id)}</bdi></th>`}
        <td>${NAMES[at]}</td>${side ? html`<${Side} side=${side} other=${sides[1 - at]} longest=${longest} />` : html`<td colspan="7">–</td>`}</tr>`)}</tbody>`)}
    </table>${more}</div>
    <h2>${t("compare_answers")}</h2>
    ${answers ? html`<pre class="text" tabindex="0" aria-label=${t("compare_answers")}>${answers.split("\n").map((row, at) => html`<bdi key=${at} class=${MARKS[row[0]]}>${`${shown(row)}\n`}</bdi>`)}</pre>`
      : html`<p>${t("compare_same")}</p>`}
  </main>`;
}

function Side({ side, other, longest }) {
  const differs = (...names) => (other && names.some((name) => other[name] !== side[name]) ? "differs" : null);
  return html`<td class=${differs("state")}><${State} name=${side.state} /></td>
    <td class=${differs("role", "model")}><bdi>${side.model ? t("role_on", { role: line(side.role), model: line(side.model) }) : line(side.role)}</bdi></td>
    <td class=${differs("attempts")}>${side.attempts}</td>
    <td><svg width="80" height="8" aria-hidden="true"><rect class=${side.critical ? "bar-onpath" : "bar-write"} width=${(80 * side.seconds) / longest} height="8" /></svg> ${duration(side.seconds)}${side.critical ? " ◆" : ""}</td>
    <td>${duration(side.predicted_seconds)}</td><td>${number(side.prompt_tokens)}</td><td>${number(side.output_tokens)}</td>`;
}
