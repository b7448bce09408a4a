"""Find texts and lines: search by what is meant, grep by a pattern."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from orchestrator.sandbox import MIB, Job, Limits
from orchestrator.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult
from orchestrator.steps.tools.files import PATTERN
from orchestrator.steps.tools.ranking import index_of

GREP_SECONDS = 20.0
MOST = 200

# A pattern is a program too: some take longer than the world will last, so it is matched where it can be killed.
_GREP = """\
import json, re, sys
asked = json.load(sys.stdin)
pattern, found = re.compile(asked["pattern"]), []
for name, text in asked["texts"].items():
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            found.append({"name": name, "line": number, "text": line[:300]})
            if len(found) == asked["limit"]:
                break
    if len(found) == asked["limit"]:
        break
print(json.dumps(found))
"""
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST}


async def _search(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    def hits() -> list[dict[str, Any]]:
        texts = context.workspace.texts(arguments.get("files", "*"))
        found = index_of(tuple(texts.items())).search(arguments["query"], arguments.get("limit", 10))
        return [{**asdict(hit), "score": round(hit.score, 5)} for hit in found]

    found = await asyncio.to_thread(hits)
    return ToolResult(found)


async def _grep(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    try:
        re.compile(arguments["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"not a regular expression that can be used: {error}") from error
    texts = await asyncio.to_thread(context.workspace.texts, arguments.get("files", "*"))
    asked = {"pattern": arguments["pattern"], "limit": arguments.get("limit", MOST), "texts": texts}
    limits = Limits(wall=GREP_SECONDS, cpu=int(GREP_SECONDS), processes=2, output=4 * MIB)
    job = Job(argv=("python", "-I", "-c", _GREP), stdin=json.dumps(asked).encode(), limits=limits)
    outcome = await context.run(job)
    if outcome.exit_code != 0:
        raise ToolError(f"the pattern took more than {outcome.limit or 'it may'}; accepted: a simpler one")
    lines: list[dict[str, Any]] = msgspec.json.decode(outcome.stdout)
    return ToolResult(lines, "\n".join(f"{line['name']}:{line['line']}: {line['text']}" for line in lines))


SEARCH = Tool(
    "search",
    "Find the files and inputs that fit a query, the best first.",
    _search,
    {
        "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "words to look for"},
        "files": PATTERN,
        "limit": _LIMIT,
    },
    ("query",),
)
GREP = Tool(
    "grep",
    "Find the lines that match a regular expression (Python).",
    _grep,
    {"pattern": {"type": "string", "minLength": 1, "maxLength": 1000}, "files": PATTERN, "limit": _LIMIT},
    ("pattern",),
    sandboxed=True,
)
