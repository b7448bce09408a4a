"""Write trained weights as a GGUF file of architecture `llama`, with tokenizer and chat template inside."""

import sys
from collections.abc import Mapping

import gguf
import torch

from benchmarks.models import finish
from benchmarks.tiny.chat import CHAT_TEMPLATE
from benchmarks.tiny.sizes import CONTEXT, SIZES, TOKENIZER_FILE, Size
from benchmarks.tiny.tokenizer import BEGIN, END, SPECIAL_TOKENS, Tokenizer
from orchestrator.memrl.parl.shape import NORM_EPSILON, ROPE_BASE
from orchestrator.memrl.parl.weights import gguf_name, interleaved

CONTROL_TOKENS = dict.fromkeys(SPECIAL_TOKENS, gguf.TokenType.CONTROL)


def write_header(
    writer: gguf.GGUFWriter, size: Size, tokenizer: Tokenizer, types: Mapping[str, gguf.TokenType], template: str
) -> None:
    """Write the metadata of the model, its tokenizer and its chat template, but no tensors.

    `types` are the types of tokens that are no normal ones.
    """
    writer.add_name(f"orchestrator-tiny-{size.name}")
    writer.add_license("apache-2.0")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.hidden)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.heads)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_rope_dimension_count(size.width // size.heads)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_vocab_size(len(tokenizer.tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types([types.get(token, gguf.TokenType.NORMAL) for token in tokenizer.tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer.merges])
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    # The chat template writes the tokens of begin and end itself.
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(template)


def export(
    size: Size,
    tokenizer: Tokenizer,
    types: Mapping[str, gguf.TokenType] = CONTROL_TOKENS,
    template: str = CHAT_TEMPLATE,
) -> None:
    """Write the trained weights of `size`: matrices as Q8_0, norms as F32.

    Raises SystemExit if their training is incomplete.
    """
    state = torch.load(size.checkpoint, weights_only=True) if size.checkpoint.exists() else None
    if state is None or state["progress"][0] != size.steps:
        raise SystemExit(
            f"{size.name} has not finished training; train it first: python -m benchmarks.tiny train {size.name}"
        )
    partial = size.trained.with_suffix(".part")
    writer = gguf.GGUFWriter(partial, "llama")
    write_header(writer, size, tokenizer, types, template)
    for name, tensor in state["model"].items():
        array = tensor.numpy()
        if ".query." in name or ".key." in name:
            array = interleaved(array, size.heads)
        if array.ndim == 1:
            writer.add_tensor(gguf_name(name), array)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), gguf.quantize(array, kind), raw_dtype=kind)
    finish(writer)
    partial.replace(size.trained)


if __name__ == "__main__":
    export(SIZES[sys.argv[1]], Tokenizer.load(TOKENIZER_FILE))
