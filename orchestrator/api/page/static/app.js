// The page: who is logged in, which view is shown, and what all views have around them.
import { render } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { ask, Lost } from "./api.js";
import { Compare } from "./compare.js";
import { Doctor } from "./doctor.js";
import { keepFocus } from "./focus.js";
import { line } from "./format.js";
import { enter, hasCode, Login } from "./login.js";
import { Learning } from "./learning.js";
import { Machine } from "./machine.js";
import { New } from "./new.js";
import { html, Language, Problem, Skip, Text, withCode } from "./parts.js";
import { ExecutionView, Procedures, ProcedureView } from "./procedures.js";
import { RunView } from "./run.js";
import { Runs } from "./runs.js";
import { address, lost, may, route, session } from "./state.js";
import { StepView } from "./step.js";
import { t } from "./texts.js";
import { WhatIf } from "./what_if.js";

const PARENTS = { compare: "runs" }; // views that have no place of their own
const NEEDS = { new: "submit", learning: "read:all", procedures: "read:all", doctor: "operate", "what-if": "submit" }; // permissions, by view
const RESERVED = ["executions", "audit"]; // no procedure has such a name

function App() {
  const [error, setError] = useState(null);
  const begin = () => {
    setError(null);
    enter().catch((problem) => {
      setError(problem.status === 401 ? null : problem);
      if (!(problem instanceof Lost)) session.value = null;
    });
  };
  const code = hasCode(); // a link may also be opened in a page that is there already
  useEffect(() => {
    if (!code) begin();
  }, []);
  useEffect(() => {
    if (code) begin();
  }, [code]);
  useLayoutEffect(() => scrollTo(0, 0), [route.value]); // another view starts at its top
  if (session.value === undefined) {
    return html`<main id="content">${error ? html`<${Problem} error=${error} again=${begin} />` : t("loading")}</main>`;
  }
  if (session.value === null) return html`<${Frame}><${Login} error=${error} /><//>`;
  return html`<${Frame}><${Current} /><//>`;
}

function Current() {
  const [view, run, part, step] = route.value;
  if (view === undefined || (view === "runs" && run === undefined)) return html`<${Runs} />`;
  if (view === "compare" && part !== undefined) return html`<${Compare} key=${`${run}/${part}`} first=${run} second=${part} />`;
  if (view === "new" && run === undefined && may("submit")) return html`<${New} />`;
  if (may("read:all")) {
    if (view === "learning" && run === undefined) return html`<${Learning} />`;
    if (view === "procedures" && run === undefined) return html`<${Procedures} />`;
    if (view === "procedures" && run === "executions" && part) return html`<${ExecutionView} key=${part} id=${part} />`;
    if (view === "procedures" && part === undefined && !RESERVED.includes(run)) return html`<${ProcedureView} key=${run} name=${run} />`;
  }
  if (view === "machine" && run === undefined) return html`<${Machine} />`;
  if (view === "doctor" && run === undefined && may("operate")) return html`<${Doctor} />`;
  if (view === "runs" && part === undefined) return html`<${RunView} key=${run} run=${run} />`;
  if (view === "runs" && part === "what-if" && may("submit")) return html`<${WhatIf} key=${run} run=${run} />`;
  if (view === "runs" && part === "steps" && step !== undefined) {
    return html`<${StepView} key=${`${run}/${step}`} run=${run} step=${step} />`;
  }
  const needed = view === "runs" ? NEEDS[part] : NEEDS[view];
  const why = needed && !may(needed) ? t("not_yours", { name: line(session.value.key), permission: needed }) : t("not_here");
  return html`<main id="content"><p>${why} <a href=${address("runs")}>${t("runs")}</a></p></main>`;
}

function Frame({ children }) {
  const [refusal, setRefusal] = useState(null);
  const here = PARENTS[route.value[0]] ?? route.value[0] ?? "runs";
  const places = ["runs", ...(may("submit") ? ["new"] : []), ...(may("read:all") ? ["learning", "procedures"] : []), "machine", ...(may("operate") ? ["doctor"] : [])];
  const logout = async () => {
    setRefusal(null);
    try {
      await ask("DELETE", "/v1/session");
      session.value = null;
    } catch (problem) {
      if (problem.status !== 401 && !(problem instanceof Lost)) setRefusal(problem); // of a lost daemon the page says so already
    }
  };
  return html`
    <${Skip} />
    <header class="bar">
      <a class="brand" href=${address("runs")}>${t("title")}</a>
      ${session.value ? html`<nav>${places.map((name) => html`<a key=${name} href=${address(name)} aria-current=${here === name ? "page" : null}>${t(name)}</a>`)}</nav>` : null}
      <span class="space"></span>
      <${Language} />
      ${session.value ? html`<span class="who"><${Text}>${session.value.key}<//></span>` : null}
      ${session.value?.seconds_left != null ? html`<button type="button" onClick=${logout}>${t("logout")}</button>` : null}
    </header>
    <div class="notice" role="status">${lost.value ? withCode(t("daemon_lost")) : ""}</div>
    ${session.value ? html`<${Problem} error=${refusal} />` : null}
    ${children}`;
}

const page = document.getElementById("page");
keepFocus(page);
render(html`<${App} />`, page);
