"""The options that a model is loaded with: what the registry's file may say of one, and what an engine is given.

They are declared here once. `registry.forms.ModelForm` and `orchestrator.engine.contract.EngineSpec` inherit them, and
`registry.models.ModelEntry` holds them. The bounds in the annotations are those of the registry's file. This module
imports nothing heavy, because every engine's process imports it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, NamedTuple

from annotated_types import Ge, Gt, Le, Len

MAX_CONTEXT: Final = 1 << 20
MAX_SLOTS: Final = 128
MAX_CELLS: Final = 1 << 22
"""The most cells that a KV cache may have; a cell holds one token."""
MAX_THREADS: Final = 1024
MAX_SCORES: Final = 1 << 20
"""The most scores of attention per token, over all heads and cells, that an engine with `flash_attention` "auto" keeps.
For the 128 tokens of a micro-batch they take 512 MiB."""

INVARIANT_ROWS: Final = (1, 4)
"""A batch-invariant engine pads its micro-batches to a multiple of one of these numbers of tokens. Which one it needs
depends on processor and weights: kernels for repacked weights compute four rows at a time, and the rest by other sums.
"""
INVARIANT_MICRO_BATCH: Final = 60
"""The tokens of its micro-batches: a multiple of these, below the 64 from which flash attention uses another kernel."""

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
StepContext = Literal["own", "sources", "shared"]
"""What the steps of a planned request read: "own", the files and outputs that the step is about; "sources", also the
files of the steps before it; "shared", all files that the request is about, in one order, so that their prompts begin
alike and an engine computes the beginning once. Small models do worse with anything that is not their own."""
ContextTokens = Annotated[int, Ge(64), Le(MAX_CONTEXT)]
SlotCount = Annotated[int, Ge(1), Le(MAX_SLOTS)]
DraftTokens = Annotated[int, Ge(1), Le(64)]
FileName = Annotated[str, Len(1, 4096)]


def invariant_streams(slots: int) -> int:
    """Return how many streams a batch-invariant engine with so many slots has.

    A step of all its sequences, padded to a multiple of `INVARIANT_ROWS`, has to fit into one micro-batch. Few
    sequences can be padded with tokens of their own; many need streams that nobody uses.
    """
    largest = max(INVARIANT_ROWS)
    multiple = 1
    while slots * (largest // multiple) > INVARIANT_MICRO_BATCH and multiple < largest:
        multiple *= 2
    return -(-slots // multiple) * multiple


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """A smaller model with the same vocabulary drafts tokens, which the model itself then verifies."""

    draft: FileName
    """In the registry's file: the role whose model drafts. In the options of a loaded registry: that model's file."""
    k: DraftTokens = 8
    """The most tokens to draft for one step of a sequence."""


@dataclass(frozen=True, slots=True)
class PromptLookupOptions:
    """Draft tokens are copied from where the last tokens of a sequence stood in it before."""

    ngram: Annotated[int, Ge(1), Le(16)] = 3
    """How many of the last tokens are looked for, at most."""
    k: DraftTokens = 8
    """The most tokens to draft for one step of a sequence."""


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter: low-rank weights that are added to the model's own, for all its sequences or for those of a role."""

    file: FileName
    """In the registry's file it may be relative to that file; in a loaded registry it is absolute."""
    scale: Annotated[float, Ge(-10), Le(10)] = 1.0
    """The factor that the adapter's weights are multiplied with."""


Adapters = tuple[Lora, ...]
"""Adapters that are used together."""


class OptionProblem(NamedTuple):
    """Two options that do not go together: which one to change, what is wrong with it, and what would be accepted."""

    option: str
    what: str
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How a token is chosen from the logits, beside temperature and `top_p`: which tokens are left to choose from, and
    how much less likely those become that would repeat what the answer says already.

    What the fields are called and mean comes from llama.cpp, and for `frequency_penalty` and `presence_penalty` from
    OpenAI's API. The values of the fields change nothing unless they are given. Penalties come first, then the
    temperature, then top_k, typical_p, top_p, min_p and XTC, each among the tokens that the one before has left. For
    penalties only generated tokens count, and not the prompt, from which answers may copy.
    """

    top_k: Annotated[int, Ge(0), Le(1 << 20)] = 0
    """Sample among so many of the most likely tokens; 0 for all."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """Sample among the tokens that are at least this many times as likely as the most likely one."""
    typical_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Sample among the tokens whose surprise is nearest to what is to be expected, whose probabilities come to this:
    locally typical sampling."""
    mirostat: Literal[0, 1, 2] = 0
    """The version of Mirostat that chooses from how many tokens to sample, in place of top_k, typical_p, top_p, min_p
    and XTC; 0 for none."""
    mirostat_tau: Annotated[float, Gt(0), Le(100)] = 5.0
    """The surprise in bits that Mirostat aims at."""
    mirostat_eta: Annotated[float, Gt(0), Le(1)] = 0.1
    """How fast Mirostat follows the surprise that it observes."""
    xtc_probability: Annotated[float, Ge(0), Le(1)] = 0.0
    """With this probability a token is not sampled from the tokens that `xtc_threshold` names: "exclude top choices". 0
    switches it off."""
    xtc_threshold: Annotated[float, Ge(0), Le(1)] = 0.1
    """XTC leaves out all tokens that are at least so likely but the least likely of them; none above 0.5."""
    repeat_penalty: Annotated[float, Ge(0.1), Le(10)] = 1.0
    """The logit of a token that was generated before is divided by this if it is positive, else multiplied with it."""
    frequency_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    """What is subtracted from the logit of a token for each time that it was generated."""
    presence_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    """What is subtracted from the logit of a token that was generated at all."""
    repeat_last_n: Annotated[int, Ge(1), Le(MAX_CONTEXT)] | None = None
    """How many of the last tokens count for the three above; None for all of the answer."""
    dry_multiplier: Annotated[float, Ge(0), Le(10)] = 0.0
    """DRY: where the last n tokens stand earlier in the answer too, `dry_multiplier` x `dry_base`^(n -
    `dry_allowed_length`) is subtracted from the logit of the token that followed there. 0 switches it off."""
    dry_base: Annotated[float, Ge(1), Le(4)] = 1.75
    dry_allowed_length: Annotated[int, Ge(1), Le(1000)] = 2
    """Shorter repetitions than this are free."""
    dry_penalty_last_n: Annotated[int, Ge(1), Le(MAX_CONTEXT)] | None = None
    """How many of the last tokens are searched for repetitions; None for all of the answer."""
    dry_sequence_breakers: Annotated[tuple[Annotated[str, Len(1, 40)], ...], Len(0, 16)] = ("\n", ":", '"', "*")
    """No repetition goes on over a token that holds one of these, and such a token is never made less likely by DRY."""

    def without_penalties(self) -> "SamplingOptions":
        """Return the same options without penalties."""
        return replace(
            DEFAULT_SAMPLING,
            top_k=self.top_k,
            min_p=self.min_p,
            typical_p=self.typical_p,
            mirostat=self.mirostat,
            mirostat_tau=self.mirostat_tau,
            mirostat_eta=self.mirostat_eta,
            xtc_probability=self.xtc_probability,
            xtc_threshold=self.xtc_threshold,
        )

    @property
    def penalises_tokens(self) -> bool:
        """Whether single tokens become less or more likely by having been generated."""
        return (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) != (1.0, 0.0, 0.0)

    @property
    def penalises(self) -> bool:
        """Whether any token becomes less or more likely by having been generated."""
        return self.penalises_tokens or self.dry_multiplier > 0

    def conflict(self) -> "OptionProblem | None":
        """Return what is impossible about these options together, or None. Each is within its own bounds."""
        if not self.mirostat:
            return None
        given_ones = {
            "top_k": self.top_k,
            "min_p": self.min_p,
            "typical_p": self.typical_p < 1,
            "xtc_probability": self.xtc_probability,
        }
        for name, given in given_ones.items():
            if given:
                return OptionProblem("mirostat", f"chooses by itself what {name} chooses", f"no {name}, or mirostat: 0")
        return None

    def problem(self) -> str | None:
        """Return which of the options is outside its bounds, or None. A registry's file is checked when it is read."""
        most, repeat_n, dry_n = MAX_CONTEXT, self.repeat_last_n, self.dry_penalty_last_n
        checks = (
            ("top_k", 0 <= self.top_k <= 1 << 20, f"0 to {1 << 20}"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("typical_p", 0 < self.typical_p <= 1, "above 0, at most 1"),
            ("mirostat", self.mirostat in (0, 1, 2), "0, 1 or 2"),
            ("mirostat_tau", 0 < self.mirostat_tau <= 100, "above 0, at most 100"),
            ("mirostat_eta", 0 < self.mirostat_eta <= 1, "above 0, at most 1"),
            ("xtc_probability", 0 <= self.xtc_probability <= 1, "0 to 1"),
            ("xtc_threshold", 0 <= self.xtc_threshold <= 1, "0 to 1"),
            ("repeat_penalty", 0.1 <= self.repeat_penalty <= 10, "0.1 to 10"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "-2 to 2"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "-2 to 2"),
            ("repeat_last_n", repeat_n is None or 1 <= repeat_n <= most, f"1 to {most}"),
            ("dry_multiplier", 0 <= self.dry_multiplier <= 10, "0 to 10"),
            ("dry_base", 1 <= self.dry_base <= 4, "1 to 4"),
            ("dry_allowed_length", 1 <= self.dry_allowed_length <= 1000, "1 to 1000"),
            (
                "dry_penalty_last_n",
                dry_n is None or 1 <= dry_n <= most,
                f"1 to {most}",
            ),
            (
                "dry_sequence_breakers",
                len(self.dry_sequence_breakers) <= 16 and all(0 < len(one) <= 40 for one in self.dry_sequence_breakers),
                "up to 16 texts of 1 to 40 characters",
            ),
        )
        wrong = (f"{name} is {getattr(self, name)}; accepted: {fine}" for name, ok, fine in checks if not ok)
        clash = self.conflict()
        return next(wrong, None if clash is None else f"{clash.option} {clash.what}; accepted: {clash.accepted}")


DEFAULT_SAMPLING: Final = SamplingOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How one model is loaded.

    `batch_invariant` makes a sequence at temperature 0 give the same tokens whatever else is in the batch. Prompts are
    then slower, and a lone sequence decodes as if it were two, or four if the kernels for its weights compute four rows
    at a time (Q4_K on x86). Micro-batches have 2 to 60 tokens, padded so that llama.cpp computes each token by the same
    kernel. The cache is split, so that a sequence's cells lie in the order of its tokens and attention sums in that
    order. The engine tries this out when it loads the model, and says so if it does not hold on the processor. It holds
    for quantised weights with flash attention, and for state-space models with quantised weights, which have no
    attention; tests show it for Q4_K, Q5_0, Q6_K and Q8_0. It does not hold for F32, F16 and BF16 weights (other
    kernels for one row than for many), nor without flash attention. Without `batch_invariant`, logits differ in their
    last bits with the batch, the prefix that was reused and the number of threads, and a greedy choice between two
    nearly equal tokens may differ.
    """

    context: ContextTokens | None = None
    """The longest sequence in tokens, prompt and answer together. None in a registry's file: as `defaults` say, but no
    more than the model was trained with. None for an engine: what the model was trained with, at most 8,192."""
    slots: SlotCount = 4
    """How many sequences are generated at a time."""
    threads: Annotated[int, Ge(1), Le(MAX_THREADS)] | None = None
    """How many threads compute, or None for as many as there are physical cores. The pool gives an engine fewer while
    others decode."""
    kv_type_k: KvType = "f16"
    """The type of the keys in the KV cache."""
    kv_type_v: KvType = "f16"
    """The type of the values in the KV cache."""
    flash_attention: FlashAttention = "auto"
    """Whether attention is computed block by block without keeping its scores; "auto" lets the engine choose
    (`engine.step_cost.attention`)."""
    mlock: bool = False
    """Whether the weights are locked in memory, so that the system cannot swap them out."""
    mmap: bool = True
    """Whether the file is mapped; otherwise the weights are read into memory of the process."""
    batch_invariant: bool = False
    """Whether greedy output must not depend on what else is in the batch, see above."""
    split: bool | None = None
    """True gives every sequence a stream of KV cells of its own, which is faster for texts that have little in common.
    With False all share one pool, in which a shared prefix is held once. None begins with streams, unless there are
    `cells`, and the engine changes between both by what it is asked for (`engine.kv.layout`)."""
    cells: Annotated[int, Ge(64), Le(MAX_CELLS)] | None = None
    """How many cells the common pool has, where few sequences become as long as `context`; None for `slots` x
    `context`. When they run out, the sequence with the most slack is preempted and computed again later."""
    experts: Annotated[int, Ge(1), Le(1024)] | None = None
    """How many experts of a mixture are used for a token; None for as many as the model was made with."""
    speculation: SpeculationOptions | None = None
    prompt_lookup: PromptLookupOptions | None = None
    lora: Annotated[Adapters, Len(1, 8)] = ()
    """Adapters that are part of the model, whatever it is asked. Those of a role are in the role's entry."""

    @property
    def splits_cache(self) -> bool:
        """Whether every sequence has a stream of cells of its own at first, where the architecture allows a choice."""
        return self.batch_invariant or self.cells is None if self.split is None else self.split

    def conflicts(self) -> Iterator[OptionProblem]:
        """Yield what is impossible about these options together. Each option is within its own bounds."""
        context = self.context or 1
        if self.batch_invariant and self.split is False:
            what = "is false, but batch_invariant needs a split cache"
            yield OptionProblem("split", what, "batch_invariant: false, or no split")
        if self.cells is not None and self.splits_cache:
            what = "is for a common pool, but batch_invariant or split gives each sequence cells of its own"
            yield OptionProblem("cells", what, "batch_invariant: false and no split, or no cells")
        if self.cells is not None and self.cells < context:
            what = f"is {self.cells:,}, and one sequence may take {context:,}"
            yield OptionProblem("cells", what, f"at least {context}, or a smaller context")
        if self.cells is None and self.slots * context > MAX_CELLS:
            what = f"{self.slots} slots of {context:,} tokens make a KV cache of {self.slots * context:,} cells"
            yield OptionProblem("slots", what, f"at most {MAX_CELLS:,}")
        if self.kv_type_v.startswith("q") and self.flash_attention == "off":
            yield OptionProblem("flash_attention", "is off, but a quantised kv_type_v needs it", "auto or on")
