// What an event of a run says, in a sentence.
import { line } from "./format.js";
import { hasText, stateName, t } from "./texts.js";

export function sentence(event) {
  const key = `event_${event.kind}`;
  if (!hasText(key)) return line(event.kind);
  const steps = event.steps?.map((step) => step.id).join(", ");
  const values = {
    step: line(event.step ?? event.after ?? event.answer?.id ?? t("run")),
    role: line(event.role),
    model: line(event.model),
    steps: line(steps),
    count: event.count ?? event.steps?.length ?? "",
    number: event.number ?? "",
    tool: line(event.tool),
    note: line(event.note),
    run: line(event.run),
    why: line(event.failure?.message ?? event.reason ?? event.message ?? event.error ?? compared(event) ?? ""),
    kind: event.failure ? stateName(event.failure.kind) : "",
    outcome: stateName(event.outcome ?? event.status ?? ""),
    score: event.score ?? "",
  };
  return t(key, values).replace(/[:,]\s*$/, "");
}

// What was wrong with an answer: first what code has corrected, then what it could not.
function compared({ corrections = [], doubts = [] }) {
  return [...corrections.map(({ text }) => `${t("corrected")}: ${text}`), ...doubts.map(({ text }) => text)].join(" ");
}
