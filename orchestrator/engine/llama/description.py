"""Describe a loaded model: what its file says, beside what the context made for it adds."""

import ctypes
import os
from typing import Any

import llama_cpp.llama_cpp as lib

from orchestrator.engine.contract import ModelInfo
from orchestrator.engine.llama.vocabulary import Vocabulary, meta


def describe(model: Any, vocab: Vocabulary, **own: Any) -> ModelInfo:
    """Return what was loaded into this process. `own` are the fields of ModelInfo that the file says nothing of."""
    text = ctypes.create_string_buffer(256)
    lib.llama_model_desc(model, text, 256)
    return ModelInfo(
        pid=os.getpid(),
        description=text.value.decode("utf-8", "replace"),
        architecture=meta(model, "general.architecture"),
        parameters=lib.llama_model_n_params(model),
        bytes=lib.llama_model_size(model),
        vocabulary=vocab.size,
        training_context=lib.llama_model_n_ctx_train(model),
        bos=vocab.text(vocab.bos),
        eos=vocab.text(vocab.eos),
        llama_cpp=lib.llama_version().decode("utf-8", "replace"),
        **own,
    )
