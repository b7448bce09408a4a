"""Answer by a rule as a good model would, from nothing but the messages that the model would see.

The embedded models are not trained for this task, and what is measured is the cost of the context and not their
answers. So a real engine counts, computes and caches each prompt, but the answer comes from this rule.
"""

import json
import re
from collections.abc import Sequence

from benchmarks.context.task import SHIP
from orchestrator.engine.contract import Message

_SHOWN = re.compile(r"^\[(D\d+) (\S+)\]\n(.*?)(?=^Context:|\Z)", re.MULTILINE | re.DOTALL)
_FACT = re.compile(rf"The ([^.]*?) of the {SHIP} is (\d+)\.")
_KEPT = re.compile(r"^Kept documents: (.*)$", re.MULTILINE)
_NAMED = re.compile(r"report\d\d\.txt")

Messages = Sequence[Message]


def decide(messages: Messages, names: Sequence[str], asked_for_summary: bool) -> str:
    """Return the answer to these messages, as JSON. `names` are the names of all documents."""
    if asked_for_summary:
        state = f"read up to {_last(messages)}"
        return json.dumps({"plan_state": state, "findings": _findings(messages), "open_points": []})
    shown = _documents(messages)
    irrelevant = [name for name, text in shown.items() if SHIP not in text]
    last = messages[-1][1]
    if irrelevant and ("Prune what is not needed" in last or "It is full" in last):
        return json.dumps({"prune": irrelevant})
    unread = [name for name in names if name > _last(messages)]
    if unread and "It is full" not in last:
        return json.dumps({"tool": "read_file", "arguments": {"name": unread[0]}})
    relevant = [*_kept(messages), *(name for name in shown if name not in irrelevant)]
    answer = {"finish": "; ".join(_findings(messages))}
    return json.dumps(answer | ({"documents": relevant} if relevant else {}))


def _documents(messages: Messages) -> dict[str, str]:
    """Return the texts of the documents in the messages, by id."""
    return {
        match[1]: match[3]
        for message in messages
        if message.role == "user"
        for match in _SHOWN.finditer(message.content)
    }


def _findings(messages: Messages) -> list[str]:
    """Return the facts in the documents in the messages and in the summary, once each."""
    texts = [message.content for message in messages[2:]]
    sentences = [f"The {fact} of the {SHIP} is {value}." for text in texts for fact, value in _FACT.findall(text)]
    return list(dict.fromkeys(sentences))


def _kept(messages: Messages) -> list[str]:
    """Return the ids of the documents that a condensation has kept."""
    return [
        part.split()[0]
        for message in messages
        for listing in _KEPT.findall(message.content)
        for part in listing.split(", ")
    ]


def _last(messages: Messages) -> str:
    """Return the name of the last document that was read; they are read in order."""
    return max((name for message in messages[2:] for name in _NAMED.findall(message.content)), default="")
