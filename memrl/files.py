"""Write files that a pointer file names once they are whole, in processes of their own."""

import os
import zlib
from pathlib import Path


def unused_name(folder: Path, prefix: str) -> str:
    """Return PREFIX-NUMBER, without a suffix, where no file in `folder` has this number or a higher one."""
    numbers = [int(path.name.split(".")[0].split("-")[1]) for path in folder.glob(f"{prefix}-*.*")]
    return f"{prefix}-{1 + max(numbers, default=0)}"


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file. Raises OSError."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


def importing_environment() -> dict[str, str]:
    """Return the environment of a process that imports this package from where this one did."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}
