"""Name the systems, in rows, tables and goals."""

OURS = "ours"
SERIAL = "one after the other"
SERVER = "llama-server"
EXAMPLE = "example server"
POOLED = "ceiling, pooled cache"
SPLIT = "ceiling, split cache"
"""With the attention that our engine chooses there; all others have llama.cpp's choice."""
SYSTEMS = (OURS, SERIAL, SERVER, EXAMPLE, POOLED, SPLIT)
SPINNING = "ours, spinning"
"""Our daemon, whose engine waits for its threads as libgomp does by default: it spins for some milliseconds."""
USER_PATH_SYSTEMS = (OURS, SPINNING, SERVER)
"""Those that are asked over HTTP, as users ask them."""

METHODS = ("lookup", "draft")
"""How tokens are drafted."""
SETTINGS = ("its settings", "our settings")
"""llama-server drafts with the settings it has by default, and with those that our engine has here."""


def speculating(system: str, method: str, settings: str = "") -> str:
    """Return the name of a system that drafts."""
    return ", ".join(filter(None, (system, method, settings)))
