"""Keep what a step's code printed: whole on disk, cut for its model."""

from pathlib import Path

SHOWN = 2_000  # characters of a turn's output that the model sees, half of them from either end

MOST_BYTES = 16 * 1024 * 1024  # of all turns of an attempt together


class TooMuchOutput(Exception):
    """The code has printed more than is kept."""


class NoSuchOutput(Exception):
    """No output has this name. The message says which there are."""


class Outputs:
    """The outputs of one attempt, `out1`, `out2`, …, as files `NAME.txt` in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._size = 0
        self._count = 0

    @property
    def last(self) -> str:
        return f"out{self._count}"

    def admit(self, text: str) -> None:
        """Add what was printed to the total. Raises `TooMuchOutput`."""
        self._size += len(text.encode())
        if self._size > MOST_BYTES:
            raise TooMuchOutput(f"more than {MOST_BYTES >> 20} MiB were printed")

    def keep(self, text: str) -> str:
        """Keep the output of one turn, and return what the model sees of it. Blocks on the disk."""
        self._count += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self.last}.txt").write_text(text, encoding="utf-8")
        return cut(text, self.last)

    def read(self, name: str) -> str:
        """Return a whole output. Blocks on the disk. Raises `NoSuchOutput`."""
        names = [f"out{number}" for number in range(1, self._count + 1)]
        if name not in names:
            raise NoSuchOutput(f"there is no text {name!r}; outputs so far: {', '.join(names) or 'none'}")
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8")


def cut(text: str, name: str) -> str:
    """Return a short output whole, a long one as both ends and the call that shows the rest."""
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    mark = f"… {len(text) - SHOWN} of {len(text)} characters left out: {peek(name)} …"
    return f"{text[:half]}\n{mark}\n{text[-half:]}"


def peek(name: str) -> str:
    """Return the call by which code reads a part of an output."""
    return f"peek({name!r}, start, length)"
