"""The tools for texts: read, list and write them, search them, and grep them by a pattern."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from orchestrator.run.sandbox.contract import MIB, SandboxJob, SandboxLimits
from orchestrator.run.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult
from orchestrator.run.steps.tools.search_index import index_of

_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
PATTERN: Mapping[str, Any] = {**_NAME, "description": "a shell pattern such as *.txt; all names without it"}


async def _read(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    start = arguments.get("start", 0)
    text = await asyncio.to_thread(context.workspace.read, arguments["name"])
    end = min(len(text), start + arguments.get("length", len(text)))
    if start and start >= len(text):
        raise ToolError(f"{arguments['name']} has {len(text)} characters; accepted: a start below that")
    return ToolResult(text[start:end])


async def _list(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    names = context.workspace.names(arguments.get("pattern", "*"))
    return ToolResult(list(names), "\n".join(names))


async def _write(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    context.workspace.write(arguments["name"], arguments["text"])
    return ToolResult(f"wrote {arguments['name']}, {len(arguments['text'])} characters")


READ_FILE = Tool(
    "read_file",
    "Read a file or an input, or a part of it.",
    _read,
    {
        "name": {**_NAME, "description": "the name of a file or an input"},
        "start": {"type": "integer", "minimum": 0, "description": "the first character to read, counted from 0"},
        "length": {"type": "integer", "minimum": 1, "description": "how many characters; all without it"},
    },
    ("name",),
)
LIST_FILES = Tool("list_files", "List the names that can be read.", _list, {"pattern": PATTERN})
WRITE_ARTIFACT = Tool(
    "write_artifact",
    "Write an output of this step.",
    _write,
    {"name": {**_NAME, "description": "which output"}, "text": {"type": "string", "maxLength": 1_000_000}},
    ("name", "text"),
)

GREP_SECONDS = 20.0
MOST = 200

# Compiling or matching a regular expression can take practically forever, so a process that can be killed does it.
_GREP = """\
import json, re, sys
asked = json.load(sys.stdin)
try:
    pattern, found = re.compile(asked["pattern"]), []
except (re.error, OverflowError, RecursionError) as error:
    print(json.dumps({"invalid": str(error)}))
    sys.exit()
for name, text in asked["texts"].items():
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            found.append({"name": name, "line": number, "text": line[:300]})
            if len(found) == asked["limit"]:
                break
    if len(found) == asked["limit"]:
        break
print(json.dumps({"lines": found}))
"""
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST}


async def _search(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    def hits() -> list[dict[str, Any]]:
        texts = context.workspace.texts(arguments.get("files", "*"))
        matches = index_of(tuple(texts.items())).search(arguments["query"], arguments.get("limit", 10))
        return [{**asdict(hit), "score": round(hit.score, 5)} for hit in matches]

    rows = await asyncio.to_thread(hits)
    return ToolResult(rows)


async def _grep(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    texts = await asyncio.to_thread(context.workspace.texts, arguments.get("files", "*"))
    request = {"pattern": arguments["pattern"], "limit": arguments.get("limit", MOST), "texts": texts}
    limits = SandboxLimits(wall=GREP_SECONDS, cpu=int(GREP_SECONDS), processes=2, output=4 * MIB)
    stdin = await asyncio.to_thread(lambda: json.dumps(request).encode())  # up to 64 MiB
    outcome = await context.run(SandboxJob(argv=("python", "-I", "-c", _GREP), stdin=stdin, limits=limits))
    if outcome.exit_code != 0:
        raise ToolError(f"the pattern took more than {outcome.limit or 'it may'}; accepted: a simpler one")
    answer: dict[str, Any] = msgspec.json.decode(outcome.stdout)
    if "invalid" in answer:
        raise ToolError(f"not a regular expression that can be used: {answer['invalid']}")
    lines: list[dict[str, Any]] = answer["lines"]
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
