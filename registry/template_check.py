"""Test a chat template in a separate process before its model is used.

A template is untrusted code. `bounded_template` limits it inside the process; the kernel limits the process to
`MOST_BYTES` and `MOST_SECONDS`, and it has nothing of ours but the template. Starting it takes a tenth of a second, so
verdicts are cached in `XDG_CACHE_HOME/orchestrator/templates`, keyed by the template and the judging code. Only that
process (`template_judge`) imports jinja2, since that takes longer than loading a registry.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1 << 30  # with Python itself
MOST_SECONDS: Final = 60  # CPU time; `bounded_template` stops a looping template long before
_WAIT_SECONDS: Final = 300.0  # wall time, since others may use the cores
_KEPT: Final = 256
_JUDGING: Final = ("chat_template.py", "bounded_template.py")  # another version of these gives new verdicts
_CHILD: Final = (
    f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__package__}.template_judge import main; main()"
)


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """What a chat template does."""

    lost: str | None  # see `why_words_are_lost`; None if it works for every conversation
    takes_tools: bool  # it shows tools to the model


# The verdict on the embedded models' template, by its SHA-256.
EMBEDDED: Final = {
    "778101da483624f5243decf7c2f9868cbfde8d163afadebf886a246f84364119": TemplateVerdict(None, takes_tools=False)
}


@lru_cache(_KEPT)
def judge_template(source: str) -> TemplateVerdict:
    """Return what a chat template does. One that breaks the process's limits is unusable."""
    data = source.encode("utf-8", "surrogatepass")
    if (embedded_verdict := EMBEDDED.get(hashlib.sha256(data).hexdigest())) is not None:
        return embedded_verdict
    cached = _folder() / hashlib.sha256(_code() + data).hexdigest()
    with contextlib.suppress(OSError, ValueError, TypeError):
        return TemplateVerdict(**json.loads(cached.read_bytes()))
    try:
        verdict = _judged_by_process(data)
    except OSError as error:
        return TemplateVerdict(f"the model's chat template cannot be checked: {error}", takes_tools=False)
    if verdict is None:
        excess = f"takes more than {MOST_BYTES >> 20} MiB of memory or {MOST_SECONDS} s of time"
        return TemplateVerdict(f"the model's chat template {excess}", takes_tools=False)
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        new = cached.with_name(f"{cached.name}.{os.getpid()}")
        new.write_text(json.dumps(asdict(verdict)))
        new.replace(cached)
    return verdict


def _judged_by_process(source: bytes) -> TemplateVerdict | None:
    # None without a verdict; raises OSError.
    command = [sys.executable, "-SE", "-c", _CHILD, json.dumps(sys.path)]
    try:
        process = subprocess.run(  # noqa: S603 (our own interpreter and text)
            command, input=source, capture_output=True, timeout=_WAIT_SECONDS, check=False
        )
        return TemplateVerdict(**json.loads(process.stdout))
    except (subprocess.TimeoutExpired, ValueError, TypeError):
        return None


def _folder() -> Path:
    stated = Path(os.environ.get("XDG_CACHE_HOME") or "")
    # The XDG specification: a relative XDG_CACHE_HOME counts as unset.
    base = stated if stated.is_absolute() else Path(os.environ.get("HOME") or "/") / ".cache"
    return base / "orchestrator" / "templates"


@lru_cache(1)
def _code() -> bytes:
    files = [Path(__file__).with_name(name) for name in _JUDGING]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()
