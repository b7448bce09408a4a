"""Read options of the benchmarks' command lines."""

import argparse


def positive(text: str) -> int:
    """Return a whole number from 1 on. Raises argparse.ArgumentTypeError, which says what is accepted."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}; accepted: a whole number from 1 on")
    return value
