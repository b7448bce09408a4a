"""Refuse answers without content of their own: acknowledgements, announcements, repetitions of the prompt.

Weak models write such answers, and no gate notices. Covers English, German, French and Spanish.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.fences import has_code
from orchestrator.run.gates.planned import file_name
from orchestrator.run.steps.attempt import Attempt, AttemptError
from orchestrator.run.steps.role import FAILED_BEFORE, TASK, StepInput, with_evidence
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.failures import feedback
from orchestrator.task.taskir.json_text import read_json

# Words. An input this short may be the right answer: the one to choose, or its own summary.
SHORT: Final = 10

# Phrases of which an acknowledgement consists.
_ACKNOWLEDGEMENT: Final = re.compile(
    r"(?:"
    r"ok|okay|sure|sure thing|certainly|of course|absolutely|understood|got it|done|all done|completed?|finished|task "
    r"(?:is )?(?:done|completed?|finished)|will do|no problem|you(?:'re| are) welcome|"
    r"(?:i(?:'m| am)? )?(?:happy|glad) to help|(?:i(?:'d| would) be |i am )?ready|"
    r"erledigt|fertig|klar|natürlich|gerne?|in ordnung|verstanden|alles klar|sicher|selbstverständlich|"
    r"bien sûr|d'accord|c'est fait|fait|terminé|compris|voilà|entendu|très bien|avec plaisir|"
    r"claro|claro que sí|por supuesto|hecho|listo|terminado|entendido|de acuerdo|vale|está bien"
    r")"
)
# Sentences that say that something was done, but do not show it.
_REPORT: Final = re.compile(
    r"(?:the |your )?(?:task|request|step|work|job|file|answer)s? (?:is|are|was|were|has been|have been) (?:now )?"
    r"(?:done|completed?|finished|written|created|saved)(?: successfully)?|"
    r"(?:i|we)(?:'ve| have) (?:now )?(?:done|completed|finished|written|created|saved) "
    r"(?:it|this|that|the \w+|your \w+)|"
    r"(?:die |der |das )?(?:aufgabe|datei|anfrage|antwort) (?:ist|wurde) (?:erledigt|fertig|erstellt|geschrieben)|"
    r"(?:la |le )?(?:tâche|fichier|demande|réponse) (?:est|a été) (?:terminée?|faite?|créée?|écrite?)|"
    r"(?:la |el )?(?:tarea|archivo|solicitud|respuesta) (?:está|ha sido|fue) "
    r"(?:terminad[ao]|hech[ao]|cread[ao]|list[ao])"
)
# Actions whose right result may be an input as it is.
_MAY_REPEAT: Final = re.compile(
    r"\b(?:cop(?:y|ies|ied)|quot|cit|repeat|verbatim|unchanged|as (?:it )?is|echo|read|return|print|show|output|pass|"
    r"keep|sort|order|fix|correct|proofread|check|format|indent|normali[sz]e|clean|dedup|duplicate|remove|delete|drop|"
    r"filter|select|choose|pick|extract|collect|list|find|merge|join|combine|concat|replace|rename|edit|update|lint|name|which|"
    r"kopier|zitier|wiederhol|unverändert|lies|sortier|ordne|korrigier|prüf|format|entfern|lösch|filter|wähl|sammle|"
    r"ersetz|welche|nenne|copi|recopi|cit[eé]|répèt|lis\b|lire|trie|tri\b|corrig|vérifi|supprim|enlèv|filtr|choisi|"
    r"rassembl|remplac|quel|repit|repet|lee\b|leer|orden|revis|elimin|quit|seleccion|elig|reún|reempl|cuál)",
    re.IGNORECASE,
)


def refuse_trivial(answer: str, outputs: Mapping[str, bytes], attempt: Attempt) -> None:
    """Raise `AttemptError` (FORMAT) if the answer repeats the prompt or an output has no content.

    `answer` is what the model wrote; `outputs` are the artifacts taken out of it.
    """
    if message := _echo(answer, attempt):
        raise AttemptError(Failure(FailureKind.FORMAT, message, message))
    for name, data in outputs.items():
        text, file = data.decode(), file_name(name)
        if reason := why_trivial(text, file, attempt.step.action, attempt.inputs):
            message = f"{name}: {reason}" if len(outputs) > 1 else reason
            raise AttemptError(Failure(FailureKind.FORMAT, message, message, demand=_demand(text, file, attempt)))


def _demand(text: str, file: str, attempt: Attempt) -> str:
    item = _repeated(text, attempt.inputs)
    is_other = item is not None and item != file and file in attempt.step.action
    return f"Answer with {file}, not with {item}." if is_other else ""


def why_trivial(output: str, name: str, action: str, inputs: Iterable[StepInput]) -> str:
    """Return why an output has no content of its own; empty if it may be right."""
    text = _text_of(output)
    if text is None:
        return ""
    plain = _plain(text)
    if not _has_content(output):
        return "the answer has no words"
    if _is_acknowledgement(text) and not _is_asked_for(plain, action):
        return "the answer only says that it is done, and not the result"
    if _is_announcement(text):
        return "the answer only announces the result"
    if PurePosixPath(name).suffix and plain in (_plain(name), _plain(PurePosixPath(name).name)):
        return "the answer is only the name of the file"
    if _repeats(text, action) or _repeats(text, f"{TASK} {action}"):
        return "the answer only repeats the task"
    if (item := _repeated(text, inputs)) is not None and not _MAY_REPEAT.search(action):
        return f"the answer only repeats {item}"
    return "" if has_code(text, name) else f"the answer has no code for {name}"


def _echo(answer: str, attempt: Attempt) -> str:
    action, flaws = attempt.step.action, feedback(attempt.failures)
    prompt = with_evidence(action, attempt.failures, attempt.role.prompts)
    added = prompt.removeprefix(action)
    flat = " ".join(answer.split())
    if any(" ".join(f"{FAILED_BEFORE} {text}".split()) in flat for text in flaws) or (
        added and _repeats(answer, added)
    ):
        return "the answer repeats what was said of the answer before it"
    return "the answer only repeats the task" if _repeats(answer, f"{TASK} {prompt}") else ""


def _text_of(output: str) -> str | None:
    # The text of a JSON string counts; None for a JSON object or list.
    if output[:1] not in ('"', "{", "["):
        return output
    value, problems = read_json(output)
    if problems:
        return output
    return value if isinstance(value, str) else None


def _plain(text: str) -> str:
    return " ".join(
        re.sub(r"\A[\W_]+|[\W_]+\Z", "", text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower()).split()
    )


def _has_content(text: str) -> bool:
    # More than marks of Markdown; signs such as `+` or a smiley may be an answer.
    return bool(text.strip(" \t\n#*_`~.…-"))


def _is_acknowledgement(text: str) -> bool:
    parts = [_plain(part) for part in re.split(r"[.!,;:\n]+", text)]
    phrases = [part for part in parts if part]
    return bool(phrases) and all(_ACKNOWLEDGEMENT.fullmatch(part) or _REPORT.fullmatch(part) for part in phrases)


def _is_announcement(text: str) -> bool:
    # One line that ends in a colon.
    line = text.strip().strip("*_`")
    return "\n" not in line and line.rstrip("*_` ").endswith((":", "\N{FULLWIDTH COLON}")) and len(line.split()) > 1


def _is_asked_for(plain: str, action: str) -> bool:
    # As in "answer OK or FAIL".
    words = " ".join(re.findall(r"[^\W_]+", action.lower()))
    return f" {plain} " in f" {words} "


def _repeats(answer: str, text: str) -> bool:
    return len(text.split()) > 1 and answer.split() == text.split()


def _repeated(answer: str, inputs: Iterable[StepInput]) -> str | None:
    # The input's name may stand before its text.
    words = answer.split()
    for item in inputs:
        texts: Sequence[str] = item.text.split()
        if len(texts) > SHORT and words in ([*texts], [f"[{item.name}]", *texts]):
            return item.name
    return None
