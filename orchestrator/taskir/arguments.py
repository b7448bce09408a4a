"""Put what a step reads into its `arguments`: `{"$input": NAME}` stands for the text of that input."""

from collections.abc import Mapping
from typing import Any

INPUT = "$input"


def filled(arguments: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments with the texts in the places of their names. Raises KeyError for a name that is not read."""
    reads = references(arguments)
    return {name: inputs[reads[name]] if name in reads else value for name, value in arguments.items()}


def references(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return which arguments stand for an input, and its name."""
    return {name: value[INPUT] for name, value in arguments.items() if _reads(value)}


def _reads(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {INPUT} and isinstance(value[INPUT], str)
