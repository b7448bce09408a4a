"""Load a model's weights and describe them, or raise CannotLoad with the exact reason."""

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.contract import EngineSpec, ModelInfo
from orchestrator.engine.errors import LoadFailure
from orchestrator.engine.llama.vocabulary import Vocabulary, meta
from orchestrator.registry.options import Adapters

_MOST_ERRORS = 8
_ERROR_CHARACTERS = 300  # of an error; the log contains the whole text
_FUNCTION = re.compile(r"^(?:[a-z]\w*_\w+(?:\(\))?: )+")  # C++ functions at the start of llama.cpp's messages


class CannotLoad(Exception):
    """The model cannot be loaded. `kind` is the category, the message a sentence."""

    def __init__(self, kind: LoadFailure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LlamaLog:
    """Writes llama.cpp's log to standard error, which is the log file, and collects errors.

    While `verbose` is true, as during loading, everything is written; later only warnings and errors.
    """

    # llama.cpp calls this until it is replaced, even after the object that made it is gone.
    _installed: ClassVar[Any] = None

    def __init__(self) -> None:
        self.verbose = True
        self.errors: list[str] = []
        self._last = 0
        callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(callback, None)
        LlamaLog._installed = callback

    def first_error(self, otherwise: str) -> str:
        """Return the first error since `errors` was cleared, which is the cause of the others; else `otherwise`."""
        return self.errors[0] if self.errors else otherwise

    def _write(self, level: int, text: bytes, _: object) -> None:
        level = self._last if level == lib.GGML_LOG_LEVEL_CONT else level
        self._last = level
        if level == lib.GGML_LOG_LEVEL_ERROR and len(self.errors) < _MOST_ERRORS:
            line = text.decode("utf-8", "replace").strip().partition("\n")[0]
            if line := _FUNCTION.sub("", line)[:_ERROR_CHARACTERS]:
                self.errors.append(line)
        least = lib.GGML_LOG_LEVEL_INFO if self.verbose else lib.GGML_LOG_LEVEL_WARN
        if least <= level <= lib.GGML_LOG_LEVEL_ERROR:
            os.write(2, text)


def open_library(spec: EngineSpec) -> None:
    """Load the build of llama.cpp that the specification names, or the default. Raises CannotLoad."""
    try:
        lib.load(spec.llama_library)
    except lib.UnusableLibrary as error:
        raise CannotLoad("library", str(error)) from error


def check_feature(feature: str) -> None:
    """Raises CannotLoad if the library lacks functions for a feature of `binding.OPTIONAL`."""
    if problem := lib.why_not(feature):
        raise CannotLoad("library", problem)


def load_model(spec: EngineSpec, log: LlamaLog, progress: Callable[[float], None], *, repack: bool = True) -> Any:
    """Load a model that generates text and return llama.cpp's handle. `progress` gets the loaded fraction, 0 to 1.

    `repack` rearranges weights for faster kernels, if llama.cpp has any. Raises CannotLoad.
    """
    model = load_weights(spec, log, progress, repack=repack)
    if not lib.llama_model_has_decoder(model) or lib.llama_model_has_encoder(model):
        raise CannotLoad("architecture", "the model is no text generator (it has an encoder)")
    return model


def load_weights(
    spec: EngineSpec, log: LlamaLog, progress: Callable[[float], None] = lambda _: None, *, repack: bool = True
) -> Any:
    """Load a file as `load_model` does, whatever kind of model it holds. Raises CannotLoad."""
    _check_file(spec.file)
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    params.load_mode = (lib.LLAMA_LOAD_MODE_MMAP if spec.mmap else 0) | (lib.LLAMA_LOAD_MODE_MLOCK if spec.mlock else 0)
    params.check_tensors = spec.check_tensors
    # ggml's AMX kernels, as gcc 12 compiles them, load a tile configuration that was never stored (the stores are
    # taken for dead), and the first product with quantised weights ends in SIGSEGV. Without the extra buffer types
    # they are not used, and neither are repacked weights, which costs speed on such processors.
    params.use_extra_bufts = repack and b"AMX_INT8 = 1" not in lib.llama_print_system_info()

    def report(part: float, _: object) -> bool:
        progress(part)
        return True

    params.load_mtp = spec.mtp is not None
    callback = lib.llama_progress_callback(report)
    params.progress_callback = callback
    overrides = None  # referred to while the model loads, since llama.cpp keeps no copy
    if spec.experts is not None:
        overrides = params.kv_overrides = _expert_override(spec, log)
    model = lib.llama_model_load_from_file(os.fsencode(spec.file), params)
    del overrides
    if not model:
        raise _load_error(log)
    return model


def new_context(model: Any, params: Any, log: LlamaLog) -> Any:
    """Raises CannotLoad."""
    log.errors.clear()
    context = lib.llama_init_from_model(model, params)
    if not context:
        kind: LoadFailure = "memory" if any("alloc" in error for error in log.errors) else "settings"
        raise CannotLoad(kind, log.first_error("llama.cpp cannot make a context"))
    return context


def load_adapters(model: Any, spec: EngineSpec, log: LlamaLog) -> dict[str, Any]:
    """Load every LoRA adapter of a specification; return their handles by file. Raises CannotLoad.

    The handles are valid until the model is freed.
    """
    handles = {}
    files = dict.fromkeys([*(adapter.file for adapter in spec.lora), *spec.adapters])
    if files:
        check_feature("adapters")
    for file in files:
        _check_file(file)
        log.errors.clear()
        handle = lib.llama_adapter_lora_init(model, os.fsencode(file))
        if not handle:
            raise CannotLoad(
                "settings", f"the adapter {file} does not fit: {log.first_error('llama.cpp does not say why')}"
            )
        handles[file] = handle
    return handles


def apply_adapters(context: Any, handles: Mapping[str, Any], lora: Adapters, log: LlamaLog) -> None:
    """Use exactly these adapters, with `handles` from `load_adapters`, in a context. Raises CannotLoad."""
    # llama.cpp has one scale for each handle, so the scales of an adapter that is given twice are added.
    scales: dict[str, float] = {}
    for adapter in lora:
        scales[adapter.file] = scales.get(adapter.file, 0.0) + adapter.scale
    count = len(scales)
    adapters = (ctypes.c_void_p * count)(*(handles[file] for file in scales))
    log.errors.clear()
    if lib.llama_set_adapters_lora(context, adapters, count, (ctypes.c_float * count)(*scales.values())):
        raise CannotLoad("settings", log.first_error("llama.cpp does not take the adapters"))


def describe(model: Any, vocab: Vocabulary, **context_fields: Any) -> ModelInfo:
    """Return a description of the model. `context_fields` are the fields of ModelInfo that depend on the context."""
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
        llama_cpp=lib.build(),
        **context_fields,
    )


def _expert_override(spec: EngineSpec, log: LlamaLog) -> Any:
    # The header is read first, since the setting's name starts with the architecture.
    model = _load_without_weights(spec.file, log)
    architecture = meta(model, "general.architecture")
    count = meta(model, f"{architecture}.expert_count")
    lib.llama_model_free(model)
    if not count.isdigit() or int(count) < (spec.experts or 0):
        raise CannotLoad("settings", f"experts is {spec.experts}, but the model has {count or 'no'} experts")
    overrides = (lib.llama_model_kv_override * 2)()
    overrides[0].tag = lib.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[0].key = f"{architecture}.expert_used_count".encode()
    overrides[0].val_i64 = spec.experts
    return overrides


@contextmanager
def vocabulary_of(file: Path) -> Iterator[Vocabulary]:
    """Read the vocabulary of a model, without its weights. Raises CannotLoad. Uses the default library."""
    log = LlamaLog()
    log.verbose = False
    model = _load_without_weights(str(file), log)
    try:
        yield Vocabulary(model)
    finally:
        lib.llama_model_free(model)


def _load_without_weights(file: str, log: LlamaLog) -> Any:
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(os.fsencode(file), params)
    if not model:
        raise _load_error(log)
    return model


def _load_error(log: LlamaLog) -> CannotLoad:
    message = log.first_error("llama.cpp cannot load it and does not say why")
    everything = "\n".join(log.errors)
    if "unknown model architecture" in everything:
        return CannotLoad("architecture", message)
    if any(word in everything for word in ("failed to allocate", "unable to allocate", "out of memory")):
        return CannotLoad("memory", message)
    return CannotLoad("corrupt", message)


def _check_file(name: str) -> None:
    path = Path(name)
    try:
        if not path.exists():
            raise CannotLoad("missing", "there is no such file")
        if not path.is_file():
            raise CannotLoad("unreadable", "it is not a regular file")
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise CannotLoad("unreadable", f"it cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise CannotLoad("not-gguf", f"it is not a GGUF file: it begins with {magic!r}")
