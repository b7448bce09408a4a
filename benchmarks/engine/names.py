"""The names of the systems in rows, tables and goals."""

OURS = "ours"
SERIAL = "one after the other"
SERVER = "llama-server"
EXAMPLE = "example server"
POOLED = "ceiling, pooled cache"
# The ceiling with the kind of attention that our engine chooses there; the other peers use llama.cpp's default.
SPLIT = "ceiling, split cache"
SYSTEMS = (OURS, SERIAL, SERVER, EXAMPLE, POOLED, SPLIT)
# Our daemon with an engine whose threads wait for each other as libgomp's default says: they spin for milliseconds.
SPINNING = "ours, spinning"
USER_PATH_SYSTEMS = (OURS, SPINNING, SERVER)  # the systems that are measured over HTTP, as users call them

METHODS = ("lookup", "draft")  # how tokens are drafted
HEADS = ("mtp", "eagle")  # the same for a model with an MTP head, and for one with an EAGLE-3 head
# llama-server drafts with its default settings, and with the settings that our engine has here.
SETTINGS = ("its settings", "our settings")


def speculating(system: str, method: str, settings: str = "") -> str:
    """Return the name of a system when it drafts with a method, and for llama-server with which settings."""
    return ", ".join(filter(None, (system, method, settings)))


def of_library(number: int) -> str:
    """Return the name of our engine with one of several builds of llama.cpp: `OURS` for number 0, the first."""
    return OURS if number == 0 else f"{OURS}, library {number + 1}"
