"""Name the model of this machine's processor, so that what was measured on another one is not used here."""

import platform
from contextlib import suppress
from pathlib import Path

_KIND = {"cpu family": "family", "model": "model", "CPU implementer": "implementer", "CPU part": "part"}
"""The fields of /proc/cpuinfo that tell kinds of processors apart, on x86 and ARM, and what they are called here."""


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the first processor and the numbers of its kind, or at least its architecture.

    The name alone is not enough: several generations of virtual machines call theirs "AMD EPYC". Raises nothing.
    """
    fields: dict[str, str] = {}
    with suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as lines:
        for name, _, value in (line.partition(":") for line in lines):
            fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    kind = ", ".join(f"{words} {fields[field]}" for field, words in _KIND.items() if fields.get(field))
    return f"{name} ({kind})" if kind else name
