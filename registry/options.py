"""The options that a model is loaded with, in the registry's file and for an engine.

They are declared once, here. `registry.forms.ModelForm` and `orchestrator.engine.contract.EngineSpec` inherit them. The
bounds in the annotations and the descriptions, which docs/reference.md shows, are those of the registry's file. This
module imports nothing heavy, because every engine process imports it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

from annotated_types import Ge, Gt, Le, Len

MAX_CONTEXT: Final = 1 << 20
MAX_SLOTS: Final = 128
MAX_CELLS: Final = 1 << 22  # of a KV cache; a cell holds one token
MAX_THREADS: Final = 1024
QUANTISED_BLOCK: Final = 32  # numbers in a block of a quantised KV cache
MAX_BREAKER: Final = 40  # characters of a text that ends a repetition
# Attention scores per token, over heads and cells, that an engine with `flash_attention` "auto" keeps at most: 512 MiB
# for a micro-batch of 128 tokens.
MAX_SCORES: Final = 1 << 20

# llama.cpp's limit for a context, without the sequence that a batch-invariant pool pads.
MAX_SEQUENCES: Final = 255
# Copies of states. A sequence has one in a step whose draft tokens could not be taken back otherwise. With more
# sequences, such drafts do not pay.
MOST_CHECKPOINTS: Final = 8
# Draft tokens that a model with recurrent layers verifies in a step, at most: it keeps a state after each of them.
MAX_ROLLBACK: Final = 4
SPARE_STATES: Final = 8  # recurrent states that an engine keeps for later requests, at least

# A batch-invariant engine pads micro-batches to a multiple of one of these. Which one depends on processor and weights:
# kernels for repacked weights compute four rows at a time, and the rest by other sums.
INVARIANT_ROWS: Final = (1, 4)
# A multiple of the rows, below the 64 tokens from which flash attention uses another kernel.
INVARIANT_MICRO_BATCH: Final = 60

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
# What steps of a planned request read. "own": their own files and outputs. "sources": a step that reads what other
# steps made also reads the files that those read. "shared": all files of the request in one order, so that prompts
# share a prefix. Small models do worse with more than their own.
StepContext = Literal["own", "sources", "shared"]
ContextTokens = Annotated[int, Ge(64), Le(MAX_CONTEXT)]
SlotCount = Annotated[int, Ge(1), Le(MAX_SLOTS)]
DraftTokens = Annotated[int, Ge(1), Le(64)]
FileName = Annotated[str, Len(1, 4096)]
MOST_DRAFTS: Final = "draft tokens per step of a sequence, at most"  # describes `k` of each drafting method
Breakers = Annotated[tuple[Annotated[str, Len(1, MAX_BREAKER)], ...], Len(0, 16)]

T = TypeVar("T")


def described(default: T, description: str) -> T:
    """Return a field of a dataclass with a default and a description, which pydantic finds there."""
    return field(default=default, metadata=about(description))


def about(description: str) -> dict[str, str]:
    """Return the metadata of a field that has no default."""
    return {"description": description}


def shared_fields(kind: type, source: Any) -> dict[str, Any]:
    """Return the values that `source` has for the fields of the dataclass `kind`."""
    return {field.name: getattr(source, field.name) for field in fields(kind)}


def invariant_streams(slots: int) -> int:
    """Return how many streams a batch-invariant engine with `slots` slots has."""
    # A padded step of all sequences has to fit into one micro-batch. Few sequences can be padded with their own tokens;
    # many need unused streams.
    largest = max(INVARIANT_ROWS)
    multiple = 1
    while slots * (largest // multiple) > INVARIANT_MICRO_BATCH and multiple < largest:
        multiple *= 2
    return -(-slots // multiple) * multiple


def state_sequences(slots: int) -> int:
    """Return how many sequences, each with a state, an engine with `slots` slots has for a model with recurrent layers.

    Those beyond its slots keep states of finished prompts and of the starts of prompts.
    """
    return min(slots + max(slots, SPARE_STATES), MAX_SEQUENCES - MOST_CHECKPOINTS)


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """A smaller model with the same vocabulary drafts tokens, which the target model verifies."""

    # In a loaded registry the model's file.
    draft: FileName = field(metadata=about("the role whose model drafts"))
    k: DraftTokens = described(8, MOST_DRAFTS)


@dataclass(frozen=True, slots=True)
class PromptLookupOptions:
    """Drafts are copied from an earlier occurrence of the sequence's last tokens."""

    ngram: Annotated[int, Ge(1), Le(16)] = described(3, "tokens of the longest match")
    k: DraftTokens = described(8, MOST_DRAFTS)


@dataclass(frozen=True, slots=True)
class MtpOptions:
    """The model's own MTP head (multi-token prediction, also NextN) drafts tokens."""

    k: DraftTokens = described(3, MOST_DRAFTS)


@dataclass(frozen=True, slots=True)
class EagleOptions:
    """An EAGLE-3 head, which was trained for the model, drafts tokens."""

    # Absolute in a loaded registry.
    file: FileName = field(metadata=about("a GGUF file of the architecture `eagle3`"))
    k: DraftTokens = described(3, MOST_DRAFTS)


class DraftOptions(Protocol):
    """What the options of all drafting methods have."""

    @property
    def k(self) -> int:
        """Draft tokens per step of a sequence, at most."""


DraftName = Literal["lookup", "mtp", "eagle", "draft"]


class DraftMethod(NamedTuple):
    """A way to draft tokens."""

    option: str  # of `LoadOptions`, which turns it on
    drafter: str  # makes its drafter, as `MODULE:FUNCTION`; see `engine.speculation.drafter.MakeDrafter`
    copies: bool = False  # its tokens are copied from the text at no cost, not computed
    file: str = ""  # the field of its options that names a file of weights, if it has weights of its own


# In the order in which they are asked: the first that offers a token drafts.
DRAFTING: Final[Mapping[DraftName, DraftMethod]] = {
    "lookup": DraftMethod(
        "prompt_lookup", "orchestrator.engine.speculation.prompt_lookup:PromptLookupDrafter", copies=True
    ),
    "mtp": DraftMethod("mtp", "orchestrator.engine.speculation.heads:load_mtp"),
    "eagle": DraftMethod("eagle", "orchestrator.engine.speculation.heads:load_eagle", file="file"),
    "draft": DraftMethod("speculation", "orchestrator.engine.speculation.draft_model:load_draft_model", file="draft"),
}


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA adapter, for all sequences of a model or for those of a role."""

    # Absolute in a loaded registry.
    file: FileName = field(metadata=about("the adapter's GGUF file"))
    scale: Annotated[float, Ge(-10), Le(10)] = described(1.0, "factor of its weights")


Adapters = tuple[Lora, ...]


class OptionProblem(NamedTuple):
    """Options that do not go together: the one to change, and what would be accepted."""

    option: str
    what: str
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How a token is sampled from the logits, in addition to temperature and `top_p`.

    Names and meanings are those of llama.cpp, and for `frequency_penalty` and `presence_penalty` of OpenAI's API.
    Defaults change nothing. Penalties come first and count only generated tokens, since answers may copy from the
    prompt. Then come temperature, top_k, typical_p, top_p, min_p and XTC, each among the tokens that the previous one
    left.
    """

    top_k: Annotated[int, Ge(0), Le(1 << 20)] = described(0, "how many of the most likely tokens remain; 0: all")
    min_p: Annotated[float, Ge(0), Le(1)] = described(0.0, "least probability, relative to the most likely token")
    typical_p: Annotated[float, Gt(0), Le(1)] = described(
        1.0, "total probability of the tokens with nearly the expected surprise"
    )
    mirostat: Literal[0, 1, 2] = described(
        0, "its version, which replaces top_k, typical_p, top_p, min_p and XTC; 0: none"
    )
    mirostat_tau: Annotated[float, Gt(0), Le(100)] = described(5.0, "target surprise in bits")
    mirostat_eta: Annotated[float, Gt(0), Le(1)] = described(0.1, "learning rate")
    xtc_probability: Annotated[float, Ge(0), Le(1)] = described(0.0, "of excluding top choices; 0 switches XTC off")
    xtc_threshold: Annotated[float, Ge(0), Le(1)] = described(
        0.1, "XTC leaves out all tokens at least this likely, except the least likely of them; above 0.5 there are none"
    )
    repeat_penalty: Annotated[float, Ge(0.1), Le(10)] = described(
        1.0, "divides the positive and multiplies the negative logits of generated tokens"
    )
    frequency_penalty: Annotated[float, Ge(-2), Le(2)] = described(0.0, "subtracted from the logit per occurrence")
    presence_penalty: Annotated[float, Ge(-2), Le(2)] = described(0.0, "subtracted once from the logit")
    repeat_last_n: Annotated[int, Ge(1), Le(MAX_CONTEXT)] | None = described(
        None, "tokens in the window of the three penalties; without it, the whole answer"
    )
    dry_multiplier: Annotated[float, Ge(0), Le(10)] = described(
        0.0,
        "if the last n tokens occurred before, DRY subtracts `dry_multiplier` * `dry_base`^(n - `dry_allowed_length`)"
        " from the logit of the token that followed then; 0 switches it off",
    )
    dry_base: Annotated[float, Ge(1), Le(4)] = described(1.75, "see `dry_multiplier`")
    dry_allowed_length: Annotated[int, Ge(1), Le(1000)] = described(2, "shorter repetitions are free")
    dry_penalty_last_n: Annotated[int, Ge(1), Le(MAX_CONTEXT)] | None = described(
        None, "tokens in the window of DRY; without it, the whole answer"
    )
    dry_sequence_breakers: Breakers = described(
        ("\n", ":", '"', "*"), "tokens with one of these end a repetition, and are never penalised by DRY"
    )

    def without_penalties(self) -> "SamplingOptions":
        names = (option.name for option in fields(self) if option.name.startswith(_PENALTIES))
        return replace(self, **{name: getattr(DEFAULT_SAMPLING, name) for name in names})

    @property
    def penalises_tokens(self) -> bool:
        """Whether repetition of single tokens changes their logits."""
        return (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) != (1.0, 0.0, 0.0)

    @property
    def penalises(self) -> bool:
        """Whether repetition changes any logit."""
        return self.penalises_tokens or self.dry_multiplier > 0

    def conflict(self) -> "OptionProblem | None":
        """Return what is impossible about these options together, or None."""
        if not self.mirostat:
            return None
        active = {
            "top_k": self.top_k,
            "min_p": self.min_p,
            "typical_p": self.typical_p < 1,
            "xtc_probability": self.xtc_probability,
        }
        for name, value in active.items():
            if value:
                return OptionProblem("mirostat", f"chooses by itself what {name} chooses", f"no {name}, or mirostat: 0")
        return None

    def problem(self) -> str | None:
        """Return which option is outside its bounds, or None. For values that come from no registry file."""
        for option, is_within, accepted in _sampling_bounds():
            if not is_within(value := getattr(self, option)):
                return f"{option} is {value}; accepted: {accepted}"
        clash = self.conflict()
        return None if clash is None else f"{clash.option} {clash.what}; accepted: {clash.accepted}"


_PENALTIES: Final = ("repeat_", "frequency_", "presence_", "dry_")  # their names start like this


@cache
def _sampling_bounds() -> tuple[tuple[str, Callable[[Any], bool], str], ...]:
    # For each option whether a value is within its bounds, and what is accepted: from the annotations.
    return tuple((option.name, *_bounds(option.type)) for option in fields(SamplingOptions))


def _bounds(annotation: Any) -> tuple[Callable[[Any], bool], str]:
    match get_args(annotation):
        case (inner, none) if none is type(None):
            is_within, accepted = _bounds(inner)
            return lambda value: value is None or is_within(value), accepted
        case (_, Ge(ge=low), Le(le=high)):
            return lambda value: low <= value <= high, f"{low} to {high}"
        case (_, Gt(gt=low), Le(le=high)):
            return lambda value: low < value <= high, f"above {low}, at most {high}"
        case (_, Len(max_length=int(most))):
            accepted = f"up to {most} texts of 1 to {MAX_BREAKER} characters"
            return lambda value: len(value) <= most and all(0 < len(text) <= MAX_BREAKER for text in value), accepted
        case (*words, last):
            return (*words, last).__contains__, f"{', '.join(map(str, words))} or {last}"
    raise AssertionError(f"{annotation} has no bounds")


DEFAULT_SAMPLING: Final = SamplingOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How one model is loaded.

    `batch_invariant` makes a sequence at temperature 0 give the same tokens whatever else is in the batch. Prompts get
    slower, and a lone sequence decodes like two, or like four if the kernels compute four rows at a time (Q4_K on x86).
    Micro-batches have 2 to 60 tokens, padded so that the same kernel computes each token. The cache is split, so that a
    sequence's cells are in token order and attention sums in that order. The engine tests this when it loads the model,
    and reports a processor on which it fails. It holds for quantised weights with flash attention, and for quantised
    state-space models; tests show it for Q4_K, Q5_0, Q6_K and Q8_0. It fails for F32, F16 and BF16 weights (other
    kernels for one row than for many) and without flash attention. Without `batch_invariant`, logits differ in their
    last bits with the batch, the reused prefix and the threads, so a greedy choice between nearly equal tokens may
    differ.
    """

    # None: for an engine the training context, at most 8,192.
    context: ContextTokens | None = described(
        None,
        "the longest sequence in tokens, prompt and answer together; without it, that of `defaults`, at most what the"
        " model was trained for",
    )
    slots: SlotCount = described(4, "sequences generated at a time; without it, that of `defaults`")
    threads: Annotated[int, Ge(1), Le(MAX_THREADS)] | None = described(
        None, "without it, one per physical core; an engine gets fewer while others decode"
    )
    kv_type_k: KvType = described("f16", "the type of the keys in the KV cache")
    kv_type_v: KvType = described("f16", "the type of the values in the KV cache")
    # "auto": `engine.step_cost.attention` chooses.
    flash_attention: FlashAttention = described("auto", "auto: the engine chooses")
    mlock: bool = described(False, "the weights cannot be swapped out")
    mmap: bool = described(True, "map the file; else the weights are read into the process")
    batch_invariant: bool = described(
        False,
        "text at temperature 0 repeats, whatever else the engine does, at some cost in speed; without it, that of"
        " `defaults`",
    )
    # See `engine.kv.layout`.
    split: bool | None = described(
        None,
        "true: a stream of KV cells per sequence, faster for texts with little in common; false: one pool, in which a"
        " shared prefix is stored once; without it, streams at first unless there are `cells`, then as requests demand",
    )
    cells: Annotated[int, Ge(64), Le(MAX_CELLS)] | None = described(
        None,
        "cells of the common pool, one for each token, if few sequences get as long as `context`; when it is full, the"
        " sequence with the most slack is computed again later; without it, `slots` * `context`",
    )
    experts: Annotated[int, Ge(1), Le(1024)] | None = described(
        None, "experts used per token; without it, as the model was made"
    )
    speculation: SpeculationOptions | None = described(None, "draft with a smaller model")
    prompt_lookup: PromptLookupOptions | None = described(None, "draft by copying from the text so far")
    mtp: MtpOptions | None = described(None, "draft with the model's own MTP head")
    eagle: EagleOptions | None = described(None, "draft with an EAGLE-3 head")
    lora: Annotated[Adapters, Len(1, 8)] = described((), "adapters that are always active")
    # In a loaded registry the absolute name of the file. None: `registry.llama_library`.
    llama_library: FileName | None = described(
        None,
        "the build of llama.cpp that runs the model, and its draft model: `libllama.so` or its folder; without it, that"
        " of `defaults`",
    )

    @property
    def splits_cache(self) -> bool:
        """Whether sequences have their own streams at first, if the architecture allows a choice."""
        return self.batch_invariant or self.cells is None if self.split is None else self.split

    @property
    def rollback(self) -> int:
        """How many draft tokens a model with recurrent layers can take back."""
        # Their number does not make a micro-batch whole, see ADR 5.
        if self.batch_invariant:
            return 0
        return max((min(options.k, MAX_ROLLBACK) for options in self.drafting.values()), default=0)

    @property
    def drafting(self) -> dict[DraftName, DraftOptions]:
        """The options of the methods that draft, in the order in which they are asked."""
        every = {name: getattr(self, method.option) for name, method in DRAFTING.items()}
        return {name: options for name, options in every.items() if options is not None}

    @property
    def draft_files(self) -> tuple[str, ...]:
        """The files of weights that only draft."""
        return tuple(getattr(options, file) for name, options in self.drafting.items() if (file := DRAFTING[name].file))

    def with_draft_files(self, names: Mapping[str, str]) -> Self:
        """Return these options with other names for `draft_files`."""
        changed: dict[str, Any] = {}
        for option, _, _, file in DRAFTING.values():
            if file and (options := getattr(self, option)) is not None:
                changed[option] = replace(options, **{file: names[getattr(options, file)]})
        return replace(self, **changed)

    def without_drafts(self) -> Self:
        off: dict[str, Any] = {method.option: None for method in DRAFTING.values()}
        return replace(self, **off)

    def conflicts(self) -> Iterator[OptionProblem]:
        """Yield what is impossible about these options together."""
        context = self.context or 1
        if self.eagle is not None and self.mtp is not None:
            yield OptionProblem("eagle", "is set, but the model drafts with its MTP head", "eagle, or mtp")
        if self.batch_invariant and self.split is False:
            message = "is false, but batch_invariant needs a split cache"
            yield OptionProblem("split", message, "batch_invariant: false, or no split")
        if self.cells is not None and self.splits_cache:
            message = "is for a common pool, but batch_invariant or split gives each sequence cells of its own"
            yield OptionProblem("cells", message, "batch_invariant: false and no split, or no cells")
        if self.cells is not None and self.cells < context:
            message = f"is {self.cells:,}, and one sequence may take {context:,}"
            yield OptionProblem("cells", message, f"at least {context}, or a smaller context")
        if self.cells is None and self.slots * context > MAX_CELLS:
            message = f"{self.slots} slots of {context:,} tokens make a KV cache of {self.slots * context:,} cells"
            yield OptionProblem("slots", message, f"at most {MAX_CELLS:,}")
        if self.kv_type_v.startswith("q") and self.flash_attention == "off":
            yield OptionProblem("flash_attention", "is off, but a quantised kv_type_v needs it", "auto or on")
