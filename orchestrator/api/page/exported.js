// A file of `orchestrator export --html`: the views of one run, with their data in the document. It is bundled with those
// modules in static/ that it imports, and is not served.
import { render } from "preact";
import { answerBy, Refused } from "./api.js";
import { keepFocus } from "./focus.js";
import { html, Language, Moment, Skip } from "./parts.js";
import { RunView } from "./run.js";
import { address, route, session } from "./state.js";
import { StepView } from "./step.js";
import { t } from "./texts.js";

const data = JSON.parse(document.getElementById("data").textContent);
for (const attempt of Object.values(data.answers).filter((answer) => answer.prompt)) {
  for (const part of attempt.prompt) part.text = data.texts[part.text];
  for (const name of Object.keys(attempt.outputs)) attempt.outputs[name] = data.texts[attempt.outputs[name]];
  attempt.answer = data.texts[attempt.answer];
}
const places = new Map(); // addresses of files, by name

answerBy({
  events: data.events,
  answer(path) {
    const name = decodeURIComponent(path.split("?", 1)[0]); // all rows of the picture are here
    if (!Object.hasOwn(data.answers, name)) throw new Refused(404, { message: name });
    return data.answers[name];
  },
  file(name) {
    if (!Object.hasOwn(data.files, name)) return null;
    if (!places.has(name)) {
      const content = Uint8Array.from(atob(data.files[name]), (sign) => sign.charCodeAt(0));
      places.set(name, URL.createObjectURL(new Blob([content], { type: "application/octet-stream" })));
    }
    return places.get(name);
  },
});
session.value = { key: "", permissions: [], seconds_left: null };

function Exported() {
  const [, , part, step] = route.value;
  return html`
    <${Skip} />
    <header class="bar">
      <a class="brand" href=${address("runs", data.run)}>${t("title")}</a>
      <span class="dim">${t("exported")} <${Moment} at=${data.exported_at} /></span>
      <span class="space"></span>
      <${Language} />
    </header>
    ${part === "steps" && step ? html`<${StepView} key=${step} run=${data.run} step=${step} />` : html`<${RunView} run=${data.run} />`}`;
}

const page = document.getElementById("page");
keepFocus(page);
render(html`<${Exported} />`, page);
