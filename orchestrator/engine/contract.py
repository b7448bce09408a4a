"""Define what a caller gives an engine and gets back. A leaf: it imports only messages and the options of a model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.registry.messages import Message as Message
from orchestrator.registry.messages import OfferedTool as OfferedTool
from orchestrator.registry.messages import ToolCall as ToolCall
from orchestrator.registry.options import (
    DEFAULT_SAMPLING,
    DRAFTING,
    MAX_CELLS,
    MAX_SLOTS,
    MAX_THREADS,
    Adapters,
    DraftOptions,
    LoadOptions,
    SamplingOptions,
    shared_fields,
)
from orchestrator.registry.thinking import Thinking

# Our own JSON Schema keyword: no white space outside of strings, which saves tokens.
COMPACT: Final = "x-compact"

# "repetition": an endless repetition under a grammar.
Finish = Literal["stop", "length", "deadline", "repetition", "cancelled"]
Priority = Literal["interactive", "batch"]
Vectors = NDArray[np.float32]  # shape (texts, size)

ROLES = ("system", "user", "assistant", "tool")
MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_STOP_TOKENS = 64
MAX_BIASES = 1024
MAX_LOGPROBS = 20
MAX_PROMPT_BYTES = 64 << 20
MAX_GRAMMAR_BYTES = 1 << 18
MAX_CALL_GRAMMARS_BYTES = 1 << 20  # of all calls of one request together

NOT_SET_UP = "not set up"  # `EngineStats.speculation` of an engine whose spec asks for no draft tokens


def texts_of(messages: Iterable[Message], tools: Iterable[OfferedTool] = ()) -> Iterator[str]:
    """Yield all texts of a conversation and of the tools that are offered with it."""
    for message in messages:
        yield message.content
        for call in message.tool_calls:
            yield from (call.name, call.arguments)
    for tool in tools:
        yield from tool


class Infill(NamedTuple):
    """A place in a text for the model to fill, with the FIM tokens of its vocabulary ("fill in the middle")."""

    prefix: str
    suffix: str
    files: tuple[tuple[str, str], ...] = ()  # names and contents of other files of the project
    begun: str = ""  # text that the place starts with; not part of the generated text

    @property
    def texts(self) -> Iterator[str]:
        yield from (self.prefix, self.suffix, self.begun)
        for file in self.files:
            yield from file


class GuidedCalls(NamedTuple):
    """The grammars of the arguments when the model calls a tool of its own accord."""

    family: str  # the model's call syntax: a name in `registry.call_syntax.FAMILIES`
    # Names of tools, each with the GBNF grammar (start rule `root`) from the arguments to the end of the call.
    grammars: tuple[tuple[str, str], ...]


class TokenLikelihood(NamedTuple):
    """A candidate for the next token, with its probability."""

    id: int  # -1 if a remote server does not say it
    data: bytes  # its bytes; for a control token, its name
    logprob: float  # natural logarithm; minus infinity for a token that cannot come


class TokenLogprob(NamedTuple):
    """A token of an answer, with its probability."""

    id: int  # -1 if a remote server does not say it
    data: bytes  # its bytes, as far as they are part of the text
    logprob: float  # natural logarithm, before sampling options, biases or a grammar change it
    top: tuple[TokenLikelihood, ...] = ()  # the most likely tokens in its place, the most likely one first


class SystemPrompt(NamedTuple):
    """A system message that many prompts start with."""

    text: str
    lora: Adapters = ()
    ahead: bool = False  # the pool computes it before any request, in an engine that stays loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(LoadOptions):
    """How to start one engine: the options of its model, and what only the engine needs to know.

    `speculation.draft` is the file of the draft model. If `embeds` is set, text settings have no meaning, `context` is
    the most tokens of one text and of one batch, and `slots` the most texts of one batch.
    """

    file: str  # the GGUF file
    embeds: bool = False  # compute vectors or scores of whole texts; generate no text
    ranks: bool = False  # with `embeds`: score the relevance of texts to a query instead of making vectors
    check_tensors: bool = True  # read every weight once while loading, and refuse damaged ones
    beyond_training: bool = False  # allow a `context` larger than the training context
    niceness: int = 0  # how far below the caller's priority the process runs, 0 to 19
    always_draft: bool = False  # for measurements: verify all draft tokens, not as many as pay
    step_costs: str | None = None  # folder of the durations of steps that were measured on this machine
    prefixes: str | None = None  # folder of the KV cells of prompts, for the next engine of the model
    prefix_bytes: int = 2 << 30  # the most that the folder `prefixes` may take
    stores_all: bool = False  # for measurements: store and restore prompts whether or not that pays
    system_prompts: tuple[SystemPrompt, ...] = ()  # many prompts start with these, so recurrent states are kept there
    adapters: tuple[str, ...] = ()  # files of the adapters that `Generation.lora` may name
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the model with all of its pieces, and of its adapters, by file. Stored prompts are then usable for
    equal files on other machines; otherwise a file is identified by its size and time of change."""
    cpus: tuple[int, ...] = ()  # the logical CPUs that the process is bound to; empty for all
    log_file: str | None = None  # None: a temporary file
    name: str | None = None  # in errors; None: its file name
    hung_seconds: float = 10.0
    """Kill the engine if it has work and for this long neither uses CPU time nor sends anything. The limit is at least
    5 times the expected duration of the next step."""
    load_seconds: float = 300.0  # the same while it loads

    @classmethod
    def of(cls, options: LoadOptions, **more: Any) -> Self:
        """Return a specification with these options; `more` are fields of this class."""
        return cls(**shared_fields(LoadOptions, options), **more)

    @property
    def shown_name(self) -> str:
        return self.name or Path(self.file).name

    def problem(self) -> str | None:
        """Return why these settings are impossible, or None."""
        checks = (
            (self.context is None or 8 <= self.context <= MAX_CELLS, f"context is {self.context}"),
            (1 <= self.slots <= MAX_SLOTS, f"slots is {self.slots}; accepted: 1 to {MAX_SLOTS}"),
            (self.threads is None or 1 <= self.threads <= MAX_THREADS, f"threads is {self.threads}"),
            (self.cells is None or self.cells <= MAX_CELLS, f"cells is {self.cells}; accepted: at most {MAX_CELLS}"),
            (0 <= self.niceness <= 19, f"niceness is {self.niceness}; accepted: 0 to 19"),
            (self.experts is None or self.experts >= 1, f"experts is {self.experts}"),
            (0 < self.hung_seconds < math.inf, f"hung_seconds is {self.hung_seconds}"),
            (0 < self.load_seconds < math.inf, f"load_seconds is {self.load_seconds}"),
            *(
                (_least_number(options) >= 1, f"{DRAFTING[name].option} is {options}; accepted: numbers of at least 1")
                for name, options in self.drafting.items()
            ),
            *((False, f"{option} {reason}; accepted: {accepted}") for option, reason, accepted in self.conflicts()),
        )
        return next((reason for fine, reason in checks if not fine), None)


def _least_number(options: DraftOptions) -> int:
    return min(value for value in shared_fields(type(options), options).values() if isinstance(value, int))


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request for text. Exactly one of `messages`, `prompt` and `infill` is set."""

    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    """A text or token ids to continue, without chat template and thinking. In a text, names of control tokens mean
    these tokens, and BOS is prepended if the model wants it; ids are taken as they are."""
    infill: Infill | None = None  # BadPrompt is raised for a model without FIM tokens
    role: str = ""  # by which the pool counts requests and tokens; does not influence the answer
    max_tokens: int | None = None  # of the answer; None: as many as the context has left
    thinking: Thinking = "auto"
    """Stop strings, schema and grammar apply to the answer only, which keeps at least a quarter of the room."""
    limits_thoughts: bool = False
    """`max_tokens` counts thoughts and answer together, as in OpenAI's API, and not the answer alone."""
    # Variables for the chat template, in addition to those for `thinking`.
    template_arguments: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    temperature: float = 0.0
    """0 is greedy. Above 0, equal seeds give equal texts whatever else the engine computes, within the limits that
    `LoadOptions` states for logits."""
    top_p: float = 1.0
    sampling: SamplingOptions = DEFAULT_SAMPLING  # applies under a grammar too, among the tokens that it allows
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    """Added to the logits before anything else: pairs of a token, or of a text that stands for all its tokens, and a
    number from -100 to 100. Minus infinity rules a token out."""
    logprobs: int | None = None  # return the log probabilities of each token and of this many alternatives
    prompt_logprobs: int | None = None
    """The same for the tokens of a raw prompt, which is then computed even if a shared prefix holds it."""
    min_tokens: int = 0  # neither end tokens nor stop strings end a shorter answer; a grammar may
    ignore_end: bool = False  # no end token ends the text
    continues: bool = False  # continue the last message, which must be the assistant's, without thinking first
    seed: int | None = None  # None: a random one
    stop: tuple[str, ...] = ()  # strings that end the text and are not part of it
    stop_tokens: tuple[int, ...] = ()
    """Tokens that end the text, after `min_tokens`. As in vLLM, the text of such a token is part of the text."""
    schema: dict[str, object] | bool | None = None
    """A JSON Schema for the text. Excludes `grammar`. May have the key `COMPACT` in its root."""
    grammar: str | None = None  # a GBNF grammar with the start rule `root` that the text must satisfy
    tools: tuple[OfferedTool, ...] = ()
    """The tools for the chat template. Call markers are then part of the text, even if they are control tokens."""
    tool_choice: str = "auto"
    """"auto", "required", or the name of the tool to call. Only remote servers get it; engines get a grammar."""
    guided: GuidedCalls | None = None
    """For calls that the model makes of its own accord. Excludes `schema` and `grammar`."""
    deadline_seconds: float | None = None  # from the call, including the queue. The text so far is returned then.
    slack: float = 0.0  # seconds by which it may finish late without harm. Requests with less slack go first.
    priority: Priority = "interactive"
    """The pool loads models for interactive requests first and adds slack to batch requests. While interactive
    sequences decode, an engine computes batch sequences no longer than these take alone."""
    lora: Adapters = ()  # in addition to the model's own; their files must be in `EngineSpec.adapters`
    fit: int | None = None
    """Accept a shorter answer of at least this many tokens if `max_tokens` do not fit, or raise PromptTooLong."""

    @property
    def prompt_texts(self) -> Iterator[str]:
        """The texts of messages and tools, of a raw prompt or of a place to fill."""
        yield from texts_of(self.messages, self.tools)
        if isinstance(self.prompt, str):
            yield self.prompt
        if self.infill is not None:
            yield from self.infill.texts

    def problem(self) -> str | None:
        """Return why no engine can carry out this request, or None."""
        checks = (
            (
                bool(self.messages) + (self.prompt is not None) + (self.infill is not None) == 1,
                "there are no messages and there is no prompt, or there are several of them",
            ),
            (all(message.role in ROLES for message in self.messages), "unknown message role"),
            (
                sum(map(len, self.prompt_texts)) <= MAX_PROMPT_BYTES,
                "the prompt is above 64 MiB",
            ),
            (self.max_tokens is None or self.max_tokens >= 1, f"max_tokens is {self.max_tokens}"),
            (0 <= self.temperature <= 100, f"temperature is {self.temperature}; accepted: 0 to 100"),
            (0 < self.top_p <= 1, f"top_p is {self.top_p}; accepted: above 0, at most 1"),
            (self.sampling.problem() is None, self.sampling.problem() or ""),
            (self.seed is None or 0 <= self.seed < 1 << 64, f"seed is {self.seed}; accepted: 0 to 2^64 - 1"),
            (len(self.stop) <= MAX_STOPS, f"{len(self.stop)} stop strings; accepted: at most {MAX_STOPS}"),
            (
                all(0 < len(s.encode()) <= MAX_STOP_BYTES for s in self.stop),
                f"a stop string is empty or too long; accepted: 1 to {MAX_STOP_BYTES} bytes",
            ),
            (
                len(self.stop_tokens) <= MAX_STOP_TOKENS and all(token >= 0 for token in self.stop_tokens),
                f"stop_tokens are {self.stop_tokens!r:.200}; accepted: at most {MAX_STOP_TOKENS} ids of tokens",
            ),
            (self.schema is None or self.grammar is None, "both a schema and a grammar are given"),
            (len(self.grammar or "") <= MAX_GRAMMAR_BYTES, "the grammar is above 256 KiB"),
            (
                self.guided is None or (self.schema is None and self.grammar is None),
                "grammars of calls are given with a grammar of the whole text",
            ),
            (
                self.guided is None or sum(len(gbnf) for _, gbnf in self.guided.grammars) <= MAX_CALL_GRAMMARS_BYTES,
                "the grammars of calls are above 1 MiB",
            ),
            (
                len(self.logit_bias) <= MAX_BIASES,
                f"logit_bias has {len(self.logit_bias)} entries; accepted: at most {MAX_BIASES}",
            ),
            *((bias == -math.inf or -100 <= bias <= 100, _bias_problem(item, bias)) for item, bias in self.logit_bias),
            (
                self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
                f"logprobs is {self.logprobs}; accepted: 0 to {MAX_LOGPROBS}",
            ),
            (
                self.prompt_logprobs is None or (0 <= self.prompt_logprobs <= MAX_LOGPROBS and self.prompt is not None),
                f"prompt_logprobs is {self.prompt_logprobs}; accepted: 0 to {MAX_LOGPROBS}, without a chat",
            ),
            (
                0 <= self.min_tokens <= (self.max_tokens or self.min_tokens),
                f"min_tokens is {self.min_tokens}; accepted: 0 to max_tokens",
            ),
            (
                not self.continues or _may_continue(self.messages),
                "the last message cannot be continued; accepted: one of the assistant's that calls no tool",
            ),
            (
                not self.sampling.mirostat or self.top_p == 1,
                "mirostat chooses by itself what top_p chooses; accepted: no top_p, or mirostat: 0",
            ),
            (self.fit is None or self.fit >= 1, f"fit is {self.fit}; accepted: at least 1"),
            (
                isinstance(self.thinking, str) or self.thinking >= 0,
                f"thinking is {self.thinking}; accepted: at least 0",
            ),
            (self.deadline_seconds is None or -math.inf < self.deadline_seconds < math.inf, "the deadline is no time"),
            (-math.inf <= self.slack <= math.inf, f"slack is {self.slack}"),
        )
        return next((reason for fine, reason in checks if not fine), None)


@dataclass(frozen=True, slots=True)
class TokenizedText:
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]  # the bytes of each token; for a control token, its name


def _may_continue(messages: tuple[Message, ...]) -> bool:
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls


def _bias_problem(item: int | str, bias: float) -> str:
    return f"the logit_bias of {item!r:.80} is {bias}; accepted: -100 to 100, or minus infinity"


def texts_problem(texts: Sequence[str]) -> str | None:
    """Return why no engine can embed these texts, or None."""
    if not texts:
        return "there are no texts"
    return "the texts are above 64 MiB" if sum(map(len, texts)) > MAX_PROMPT_BYTES else None


@dataclass(frozen=True, slots=True)
class HeldPrefix:
    """How much of a prompt an engine need not compute, and what its KV cells depend on."""

    key: str  # equal for engines that can use each other's cells; empty if this one cannot restore any
    tokens: int  # in its cache or on its disk


@dataclass(frozen=True, slots=True)
class PrefixFile:
    """A file in an engine's folder of prefixes, from which the first `tokens` tokens of a prompt can be restored."""

    name: str
    tokens: int
    bytes: int
    digest: str  # SHA-256, in hexadecimal, of all but the last 32 bytes of the file, which are this digest


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    vectors: Vectors  # each of length 1
    tokens: int


@dataclass(frozen=True, slots=True)
class Ranking:
    scores: tuple[float, ...]  # the classifier's output for each text; larger is more relevant
    tokens: int  # the query counts once for each text


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    pid: int
    description: str  # llama.cpp's description of the model
    architecture: str  # `general.architecture` of the GGUF header
    parameters: int
    bytes: int  # the size of the weights
    vocabulary: int  # number of tokens
    context: int  # the most tokens of one sequence
    training_context: int  # in tokens
    cells: int  # the size of the KV cache, in tokens of all sequences
    slots: int  # the most sequences at the same time
    threads: int  # the most threads it computes with
    chat_template: bool  # the file holds a chat template
    bos: str  # as templates spell it; empty if there is none
    eos: str  # as templates spell it; empty if there is none
    shares_prefixes: bool  # sequences with a common prefix compute it once
    batch_invariant: bool  # greedy text is independent of the batch; see `LoadOptions`
    split_cache: bool  # each sequence has its own stream of KV cells at first
    llama_cpp: str  # version
    load_seconds: float
    thinks: bool = False  # whether it is known to think before it answers if allowed
    embedding: int | None = None  # numbers in a vector; None for an engine that generates text or ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What steps of an engine take in a nearly empty cache, as it expects now, and its latest step without a prompt.

    Times are in seconds, sizes in tokens.
    """

    decode: tuple[tuple[int, float], ...]  # by the number of sequences, with one token each
    verify: tuple[tuple[int, float], ...]  # by the number of tokens of one sequence
    prompt_token: float  # one more token of a large prompt
    cell: float  # for each token and cell that it attends to
    pads: bool  # steps are padded if a wider one takes less
    measured: bool  # otherwise assumed, or in doubt
    width: int  # sequences of the latest step; 0 before the first
    tokens: int  # of the latest step, with drafts
    seconds: float  # of the latest step


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since the model was loaded, and the current state."""

    steps: int = 0  # calls of llama_decode
    decode_steps: int = 0  # steps in which at least one sequence decoded
    prompt_tokens: int = 0
    reused_tokens: int = 0  # prompt tokens that came from a shared prefix
    prefill_tokens: int = 0  # prompt tokens that were computed
    preempted: int = 0  # preemptions of sequences because the KV cache was full
    recomputed_tokens: int = 0  # tokens computed again after a preemption
    stored_prefixes: int = 0  # prompts whose KV cells were written to disk
    restored_prefixes: int = 0  # requests for which such cells were read from disk; the tokens count as reused
    restored_tokens: int = 0
    output_tokens: int = 0
    grammar_rejections: int = 0  # how often a grammar did not allow the token that was sampled first
    finished: int = 0  # requests that ended, without those that were cancelled or failed
    cancelled: int = 0
    failed: int = 0
    drafted: int = 0  # draft tokens that were verified
    accepted: int = 0  # draft tokens that became part of a text
    refused_drafts: int = 0  # drafts of which a token was refused, with those after it
    saved_seconds: float = 0.0  # time saved by speculation, by the cost model; negative if it costs time
    speculation: str = NOT_SET_UP  # whether speculation is in use now, and why
    llama_seconds: float = 0.0  # time in llama.cpp, to decode and to tokenize prompts
    own_seconds: float = 0.0  # time outside of llama.cpp, without waiting for work
    running: int = 0  # sequences that decode
    prefilling: int = 0  # sequences in prefill
    queued: int = 0  # sequences that wait to be admitted; when embedding, requests with texts to start
    retained: int = 0  # finished sequences whose prefix is kept for others
    used_cells: int = 0  # KV cells that are held or reserved, in tokens
    cells: int = 0  # size of the KV cache, in tokens
    threads: int = 0  # threads in use: fewer than allowed while other processes use the cores
    calibrated: bool = False  # nothing is left to measure in idle moments
    layout_changes: int = 0  # changes of the cache between streams and a pool
    split_cache: bool = False  # each sequence has its own stream of KV cells now
    attention_changes: int = 0  # changes between flash attention and attention that keeps its scores
    keeps_scores: bool = False  # attention keeps its scores now
    cells_by_role: dict[str, int] = field(default_factory=dict)  # held by sequences of requests of a role
    finished_cells: int = 0  # held by finished prompts alone, for others that start like them
    step_times: StepTimes | None = None  # None for an engine that does not generate
