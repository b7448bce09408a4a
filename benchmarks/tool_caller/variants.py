"""Copy the tool caller with the chat template of another one of its syntaxes."""

from pathlib import Path

import gguf
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

from benchmarks.tool_caller.syntax import Syntax, template_source


def with_template(source: Path, target: Path, syntax: Syntax) -> Path:
    """Copy the model, with the chat template of a syntax. Return `target`."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    template = MetadataDetails(gguf.GGUFValueType.STRING, template_source(syntax))
    copy_with_new_metadata(reader, writer, {gguf.Keys.Tokenizer.CHAT_TEMPLATE: template}, [])
    return target
