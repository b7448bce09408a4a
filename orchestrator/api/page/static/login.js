// What somebody sees who is not logged in, and how the code of a link becomes a session.
import { ask } from "./api.js";
import { html, Problem, useTitle } from "./parts.js";
import { route, session } from "./state.js";
import { t } from "./texts.js";

const LOGIN = "login=";

export function hasCode() {
  return route.value[0]?.startsWith(LOGIN) ?? false;
}

// Use the code of a link, if the address has one, and ask who is logged in. Throws what `ask` does for the code.
export async function enter() {
  if (hasCode()) {
    const code = route.value[0].slice(LOGIN.length);
    history.replaceState(null, "", location.pathname); // before the request: the code stays in no history
    route.value = [];
    await ask("POST", "/v1/login", { code });
  }
  session.value = await ask("GET", "/v1/session");
}

export function Login({ error }) {
  useTitle(t("login_title"));
  return html`<main class="login" id="content">
    <h1>${t("login_title")}</h1>
    <${Problem} error=${error} />
    <p>${t("login_how")}</p>
    <pre class="command">orchestrator ui</pre>
  </main>`;
}
