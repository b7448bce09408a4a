"""Say in a prompt what a model cannot read: pictures, sound, and files that are not text."""

from typing import Final

_SHOWN: Final = 200  # characters of an address or a name


def unshown(kind: str, *about: str) -> str:
    """Return the line that stands for a part of this kind, with what is known `about` it."""
    return f"[{', '.join(part[:_SHOWN] for part in (kind, *about) if part)}: it cannot be shown]"


def size_of_base64(data: str) -> str:
    return f"{len(data.rstrip('=')) * 3 // 4} bytes"


def about_address(address: str) -> tuple[str, ...]:
    """Return the address; for a `data:` URL, the type and size of its data."""
    head, comma, data = address.partition(",")
    if not head.startswith("data:"):
        return (address,)
    return head.removeprefix("data:").partition(";")[0], size_of_base64(data) if comma else ""
