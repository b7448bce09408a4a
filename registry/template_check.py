"""Find out in a process of its own what a chat template does, before a model that comes with it is used.

A template is foreign code. `bounded_template` keeps what it may compute within limits; here the kernel does, too: the
process may take `MOST_BYTES` of memory and `MOST_SECONDS` of time, and has nothing of ours but the template. Starting
it takes a tenth of a second, so what was found out is kept in `XDG_CACHE_HOME/orchestrator/templates`, in a file named
by the digest of the template and of the code that judges it. The template of the embedded models is known, and needs no
process.
"""

import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from registry.chat_template import takes_tools, why_words_are_lost

MOST_BYTES: Final = 1 << 30
"""How much memory the process may take, with Python itself."""
MOST_SECONDS: Final = 60
"""How long the process may compute. A template that loops is stopped long before by `bounded_template`."""
_WAIT_SECONDS: Final = 300.0
"""How long the process is waited for, since others may use the cores."""
_KEPT: Final = 256
EMBEDDED: Final = "778101da483624f5243decf7c2f9868cbfde8d163afadebf886a246f84364119"
"""The SHA-256 of the chat template of the embedded models."""
_CHILD: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from registry.template_check import main; main()"
)


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """What a chat template does."""

    lost: str | None
    """Why it cannot be used for every conversation; None if it can, see `why_words_are_lost`."""
    takes_tools: bool
    """Whether it shows the model the tools that it is given."""


@lru_cache(_KEPT)
def judge_template(source: str) -> TemplateVerdict:
    """Return what a chat template does. One that breaks the process's limits cannot be used at all."""
    data = source.encode("utf-8", "surrogatepass")
    if hashlib.sha256(data).hexdigest() == EMBEDDED:
        return _judged(source)
    kept = _folder() / hashlib.sha256(_code() + data).hexdigest()
    with contextlib.suppress(OSError, ValueError, TypeError):
        return TemplateVerdict(**json.loads(kept.read_bytes()))
    try:
        verdict = _judged_by_process(data)
    except OSError as error:
        return TemplateVerdict(f"the model's chat template cannot be checked: {error}", takes_tools=False)
    if verdict is None:
        what = f"takes more than {MOST_BYTES >> 20} MiB of memory or {MOST_SECONDS} s of time"
        return TemplateVerdict(f"the model's chat template {what}", takes_tools=False)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        new.write_text(json.dumps(asdict(verdict)))
        new.replace(kept)
    return verdict


def _judged_by_process(source: bytes) -> TemplateVerdict | None:
    """Return the verdict of a process; None if it did not come to one. Raises OSError."""
    command = [sys.executable, "-SE", "-c", _CHILD, json.dumps(sys.path)]
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and text)
            command, input=source, capture_output=True, timeout=_WAIT_SECONDS, check=False
        )
        return TemplateVerdict(**json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError, TypeError):
        return None


def _folder() -> Path:
    """Return where verdicts are kept. A relative XDG_CACHE_HOME counts as unset, as the XDG specification asks."""
    stated = Path(os.environ.get("XDG_CACHE_HOME") or "")
    base = stated if stated.is_absolute() else Path(os.environ.get("HOME") or "/") / ".cache"
    return base / "orchestrator" / "templates"


@lru_cache(1)
def _code() -> bytes:
    """Return the digest of the code that judges."""
    files = [Path(__file__).with_name(name) for name in ("chat_template.py", "bounded_template.py")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


def _judged(source: str) -> TemplateVerdict:
    return TemplateVerdict(why_words_are_lost(source), takes_tools(source))


def main() -> None:
    """Judge the template on stdin, within the limits, and write the verdict as JSON on stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    verdict = _judged(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    sys.stdout.write(json.dumps(asdict(verdict)))
