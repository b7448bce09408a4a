"""Say in a prompt what stood in a place that a model cannot read: pictures, sound and files that are no text."""

from typing import Final

_SHOWN: Final = 200
"""How many characters of an address or a name are shown."""


def unshown(kind: str, *about: str) -> str:
    """Return the line that stands for a thing of this kind, with what is known about it."""
    return f"[{', '.join(part[:_SHOWN] for part in (kind, *about) if part)}: it cannot be shown]"


def size_of_base64(data: str) -> str:
    """Return how many bytes there are in base64."""
    return f"{len(data.rstrip('=')) * 3 // 4} bytes"


def about_address(address: str) -> tuple[str, ...]:
    """Return what is known of what lies at an address: the address, or type and size of what a `data:` URL holds."""
    head, comma, data = address.partition(",")
    if not head.startswith("data:"):
        return (address,)
    return head.removeprefix("data:").partition(";")[0], size_of_base64(data) if comma else ""
