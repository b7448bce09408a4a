"""Fill in a step's `arguments`, in which `{"$input": NAME}` stands for the text of an input that the step reads."""

from collections.abc import Mapping
from typing import Any

INPUT = "$input"


def fill_arguments(arguments: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments with each reference replaced by its text. Raises KeyError for a name not in `inputs`."""
    reads = input_references(arguments)
    return {name: inputs[reads[name]] if name in reads else value for name, value in arguments.items()}


def input_references(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the referenced input names by argument name."""
    return {name: value[INPUT] for name, value in arguments.items() if _is_reference(value)}


def _is_reference(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {INPUT} and isinstance(value[INPUT], str)
