"""Define what a caller gives an engine and gets back. Only the options of a model are imported from this program."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from registry.options import (
    DEFAULT_SAMPLING,
    MAX_CELLS,
    MAX_SLOTS,
    MAX_THREADS,
    Adapters,
    LoadOptions,
    SamplingOptions,
)
from registry.thinking import Thinking

COMPACT: Final = "x-compact"
"""A key of a JSON Schema for texts without white space outside of strings, which have fewer tokens."""

Finish = Literal["stop", "length", "deadline", "repetition", "cancelled"]
"""Why a text ended: by an end token or a stop string, at its `max_tokens`, at its deadline, in an endless repetition
under a grammar, or because it was cancelled."""
Priority = Literal["interactive", "batch"]
Vectors = NDArray[np.float32]
"""Shape (texts, size)."""

ROLES = ("system", "user", "assistant", "tool")
"""The roles of messages."""
MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_STOP_TOKENS = 64
MAX_BIASES = 1024
MAX_LOGPROBS = 20
MAX_PROMPT_BYTES = 64 << 20
MAX_GRAMMAR_BYTES = 1 << 18
MAX_CALL_GRAMMARS_BYTES = 1 << 20
"""The grammars of all calls of one request together."""

NOT_SET_UP = "not set up"
"""`EngineStats.speculation` of an engine whose spec asks for no draft tokens."""


class ToolCall(NamedTuple):
    """A call of a tool that the assistant made earlier."""

    id: str
    """What the message with its result names it by."""
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class Message(NamedTuple):
    """One message of a prompt. The model's chat template renders it, in the engine."""

    role: str
    """system, user, assistant or tool."""
    content: str
    """What was said; of a tool, its result."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls that a message of the assistant made. A template that knows none gets them as text."""
    tool_call_id: str = ""
    """The id of the call that a message of a tool answers."""

    @property
    def texts(self) -> Iterator[str]:
        """All that it says: its content, and the names and arguments of its tool calls."""
        yield self.content
        for call in self.tool_calls:
            yield from (call.name, call.arguments)


class Infill(NamedTuple):
    """A place in a text that the model shall fill, by the FIM tokens of its vocabulary ("fill in the middle")."""

    prefix: str
    """What stands before the place."""
    suffix: str
    """What stands after the place."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and contents of other files of the same project."""
    begun: str = ""
    """What the place begins with already. It is no part of the text that is generated."""

    @property
    def texts(self) -> Iterator[str]:
        """All that the model gets to see."""
        yield from (self.prefix, self.suffix, self.begun)
        for file in self.files:
            yield from file


class OfferedTool(NamedTuple):
    """A tool that the model may call, as its chat template shows it."""

    name: str
    description: str
    parameters: str
    """The JSON Schema of its arguments, as JSON."""


class GuidedCalls(NamedTuple):
    """How the arguments of calls of tools are formed that the model makes by itself."""

    family: str
    """How the model writes calls: a name in `registry.call_syntax.FAMILIES`."""
    grammars: tuple[tuple[str, str], ...]
    """The names of tools, each with the GBNF grammar, whose start is `root`, of what follows up to the end of a call
    where its arguments begin."""


class TokenLikelihood(NamedTuple):
    """A token that might have come next, and how likely it was."""

    id: int
    """Its number in the vocabulary; -1 where another server has not told it."""
    data: bytes
    """Its bytes; of a control token, its name."""
    logprob: float
    """The natural logarithm of its probability, which is minus infinity for a token that cannot come."""


class TokenLogprob(NamedTuple):
    """A token of an answer, and how likely it was."""

    id: int
    """Its number in the vocabulary; -1 where another server has not told it."""
    data: bytes
    """Its bytes, as far as they are part of the text."""
    logprob: float
    """The natural logarithm of its probability, before anything that the request asks for has changed it."""
    top: tuple[TokenLikelihood, ...] = ()
    """The most likely tokens in its place, the most likely one first."""


class SystemPrompt(NamedTuple):
    """A system message that many prompts begin with."""

    text: str
    lora: Adapters = ()
    """The `Generation.lora` of these prompts."""
    ahead: bool = False
    """Whether the pool computes it before any request, in an engine that stays loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(LoadOptions):
    """How to start one engine: the options of its model, and what only the engine needs to know.

    `speculation.draft` is the file of the draft model. An engine that `embeds` makes vectors and generates no text;
    settings that concern text have no meaning then, `context` is the most tokens of one text and of one batch, and
    `slots` the most texts of one batch.
    """

    file: str
    """The GGUF file."""
    embeds: bool = False
    """Whether the engine computes with whole texts, into vectors or scores, instead of generating text."""
    ranks: bool = False
    """Whether an engine that embeds makes no vectors, but says how relevant texts are to a query."""
    check_tensors: bool = True
    """Whether every weight is read once while loading, and damaged ones are refused."""
    beyond_training: bool = False
    """Whether `context` may be larger than the context that the model was trained on."""
    niceness: int = 0
    """How much lower the priority of the engine's process is than that of the caller's, 0 to 19."""
    always_draft: bool = False
    """Whether to verify as many draft tokens as there are instead of as many as pay. For measurements."""
    step_costs: str | None = None
    """A folder that keeps what was measured on this machine: how long steps of models take, and how long a spin."""
    prefixes: str | None = None
    """A folder where a stopped engine leaves the KV cells of `system_prompts` for the next engine of the model."""
    prefix_bytes: int = 2 << 30
    """The most bytes that the folder `prefixes` may take."""
    system_prompts: tuple[SystemPrompt, ...] = ()
    """The system messages whose KV cells are kept in `prefixes`."""
    adapters: tuple[str, ...] = ()
    """The files of the adapters that requests may ask for, see `Generation.lora`."""
    cpus: tuple[int, ...] = ()
    """The logical CPUs that the process is bound to; none: it may use all."""
    log_file: str | None = None
    """None keeps the log in a temporary file."""
    name: str | None = None
    """What errors call the model; None: by the name of its file."""
    hung_seconds: float = 10.0
    """The engine is killed when it has work and for this long neither uses CPU time nor sends anything; or for 5 times
    as long as its next step should take, if that is longer."""
    load_seconds: float = 300.0
    """The same while it loads."""

    @classmethod
    def of(cls, options: LoadOptions, **more: Any) -> Self:
        """Return a specification with these options; `more` are the fields of this class."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(LoadOptions)}, **more)

    @property
    def shown_name(self) -> str:
        """What errors call the model."""
        return self.name or Path(self.file).name

    def problem(self) -> str | None:
        """Return what makes these settings impossible, or None."""
        lookup, drafts = self.prompt_lookup, self.speculation
        checks = (
            (self.context is None or 8 <= self.context <= MAX_CELLS, f"context is {self.context}"),
            (1 <= self.slots <= MAX_SLOTS, f"slots is {self.slots}; accepted: 1 to {MAX_SLOTS}"),
            (self.threads is None or 1 <= self.threads <= MAX_THREADS, f"threads is {self.threads}"),
            (self.cells is None or self.cells <= MAX_CELLS, f"cells is {self.cells}; accepted: at most {MAX_CELLS}"),
            (0 <= self.niceness <= 19, f"niceness is {self.niceness}; accepted: 0 to 19"),
            (lookup is None or min(lookup.ngram, lookup.k) >= 1, f"prompt_lookup is {lookup}; accepted: at least 1"),
            (drafts is None or drafts.k >= 1, f"speculation is {drafts}; accepted: k of at least 1"),
            (self.experts is None or self.experts >= 1, f"experts is {self.experts}"),
            (0 < self.hung_seconds < math.inf, f"hung_seconds is {self.hung_seconds}"),
            (0 < self.load_seconds < math.inf, f"load_seconds is {self.load_seconds}"),
            *((False, f"{option} {what}; accepted: {accepted}") for option, what, accepted in self.conflicts()),
        )
        return next((what for fine, what in checks if not fine), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request for text."""

    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    """Instead of messages, a text or the ids of tokens that the model goes on with. No chat template and no thinking
    comes in between. Names of control tokens in a text mean these tokens, and BOS comes first where the model wants it;
    ids are taken as they are."""
    infill: Infill | None = None
    """Instead of messages, a place in a text that is to be filled. Raises BadPrompt for a model without FIM tokens."""
    role: str = ""
    """The role that asks, by which the pool counts requests and tokens; empty for a model that is asked without one. It
    changes nothing about the answer."""
    max_tokens: int | None = None
    """The most tokens of the answer; None: as many as the context has left."""
    thinking: Thinking = "auto"
    """How much the model shall think before it answers. Its thoughts are no part of the text, no stop string ends them,
    and schema and grammar hold for the answer that follows. At least a quarter of the room is left to the answer."""
    limits_thoughts: bool = False
    """Whether `max_tokens` is for thoughts and answer together, as in OpenAI's API, and not for the answer alone."""
    template_arguments: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    """Variables for the model's chat template, besides those that follow from `thinking`."""
    temperature: float = 0.0
    """0 is greedy. Above it, the same `seed` gives the same text whatever else the engine computes, as far as
    `LoadOptions` says of logits."""
    top_p: float = 1.0
    """Sample among the most likely tokens whose probabilities come to this."""
    sampling: SamplingOptions = DEFAULT_SAMPLING
    """Which tokens may be sampled, and what keeps the text from repeating itself. It holds under a grammar too, among
    the tokens that are allowed."""
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    """What is added to the logits of tokens before anything else is done with them: pairs of a token, or of a text all
    of whose tokens are meant, and a number from -100 to 100. Minus infinity rules a token out."""
    logprobs: int | None = None
    """Return for each token of the text how likely it was, and so many of the most likely ones in its place, see
    `TokenLogprob`; None for nothing of that."""
    prompt_logprobs: int | None = None
    """Return the same for each token of the prompt, which has to be a raw one. All of the prompt is computed then, even
    where a shared prefix holds it."""
    min_tokens: int = 0
    """Before so many tokens of the answer, neither an end token nor a stop string ends it. A grammar that allows only
    an end token does."""
    ignore_end: bool = False
    """Whether no end token ends the text, which then goes on up to its limit."""
    continues: bool = False
    """Whether the text goes on with the last message, which has to be the assistant's, in place of a new message. The
    model does not think before."""
    seed: int | None = None
    """None: a random one."""
    stop: tuple[str, ...] = ()
    """Strings that end the text and are not part of it."""
    stop_tokens: tuple[int, ...] = ()
    """Tokens of the vocabulary that end the text, after `min_tokens`. As in vLLM, the text of such a token is part of
    it; control tokens have none."""
    schema: dict[str, object] | bool | None = None
    """A JSON Schema that the text has to satisfy. At most one of `schema` and `grammar` may be given. With the key
    `COMPACT` in its root, the text has no white space outside of strings."""
    grammar: str | None = None
    """A GBNF grammar that the text has to satisfy, with the rule `root` as its start."""
    tools: tuple[OfferedTool, ...] = ()
    """The tools that the model's chat template is given. The marks of calls are then part of the text, even where the
    vocabulary has them as control tokens."""
    tool_choice: str = "auto"
    """Whether a tool has to be called: "auto", "required", or the name of the one that has to be. Only another server
    is told it: what an engine has to call is said by a grammar."""
    guided: GuidedCalls | None = None
    """Grammars that hold for the arguments of calls, from the place at which the model has named the tool by itself.
    None with a grammar for all of the text."""
    deadline_seconds: float | None = None
    """How long the request may take from the call on, in the queue too. What there is of the text is returned then."""
    slack: float = 0.0
    """How many seconds later than possible it may finish without harm. Requests with less slack go first."""
    priority: Priority = "interactive"
    """Where models have to make room for each other, they are loaded for interactive requests first; and the pool adds
    slack to requests of a batch. While interactive sequences decode, an engine computes those of a batch for as long as
    these take alone."""
    lora: Adapters = ()
    """The adapters that are used beside the model's own. Their files have to be among `EngineSpec.adapters`."""
    fit: int | None = None
    """Where the context has fewer tokens left than `max_tokens`, the answer may have what is left, if that is at least
    `fit` tokens. Otherwise, and without `fit`, PromptTooLong is raised."""

    @property
    def prompt_texts(self) -> Iterator[str]:
        """The texts of the prompt: of messages and tools, of a raw prompt or of a place to fill. Ids have none."""
        for message in self.messages:
            yield from message.texts
        if isinstance(self.prompt, str):
            yield self.prompt
        if self.infill is not None:
            yield from self.infill.texts
        for tool in self.tools:
            yield from tool

    def problem(self) -> str | None:
        """Return what makes this request impossible for any engine, or None."""
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
            (all(0 < len(s.encode()) <= MAX_STOP_BYTES for s in self.stop), "a stop string is empty or too long"),
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
                self.guided is None or sum(len(one) for _, one in self.guided.grammars) <= MAX_CALL_GRAMMARS_BYTES,
                "the grammars of calls are above 1 MiB",
            ),
            (
                len(self.logit_bias) <= MAX_BIASES,
                f"logit_bias has {len(self.logit_bias)} entries; accepted: at most {MAX_BIASES}",
            ),
            *((bias == -math.inf or -100 <= bias <= 100, _bias_problem(one, bias)) for one, bias in self.logit_bias),
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
                "the last message is to be continued; accepted: one of the assistant's that calls no tool",
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
        return next((what for fine, what in checks if not fine), None)


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text as tokens of a model's vocabulary."""

    tokens: tuple[int, ...]
    """The ids."""
    pieces: tuple[bytes, ...]
    """The bytes that each token stands for; of a control token, its name."""


def _may_continue(messages: tuple[Message, ...]) -> bool:
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls


def _bias_problem(one: int | str, bias: float) -> str:
    return f"the logit_bias of {one!r:.80} is {bias}; accepted: -100 to 100, or minus infinity"


def texts_problem(texts: Sequence[str]) -> str | None:
    """Return what makes these texts impossible to embed for any engine, or None."""
    if not texts:
        return "there are no texts"
    return "the texts are above 64 MiB" if sum(map(len, texts)) > MAX_PROMPT_BYTES else None


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """The vectors of some texts."""

    vectors: Vectors
    """Float32 of shape (texts, size), each of length 1."""
    tokens: int
    """How many tokens the texts have in all."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How relevant some texts are to a query."""

    scores: tuple[float, ...]
    """A score for each text, in their order: what the model's classifier gives, larger for what is more relevant."""
    tokens: int
    """How many tokens the query and each text have, in all: the query counts for each text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What was loaded into an engine's process."""

    pid: int
    """The process."""
    description: str
    """What llama.cpp calls the model."""
    architecture: str
    """The GGUF header's `general.architecture`."""
    parameters: int
    """How many weights it has."""
    bytes: int
    """How many bytes its weights take."""
    vocabulary: int
    """How many tokens the vocabulary has."""
    context: int
    """The most tokens of one sequence."""
    training_context: int
    """How many tokens of context it was trained on."""
    cells: int
    """The size of the KV cache, in tokens of all sequences."""
    slots: int
    """The most sequences at the same time."""
    threads: int
    """How many threads it may compute with."""
    chat_template: bool
    """Whether the file holds a chat template."""
    bos: str
    """The token that begins a text, as it is spelled in a template; empty if there is none."""
    eos: str
    """The token that ends a text, as it is spelled in a template; empty if there is none."""
    shares_prefixes: bool
    """Whether sequences that begin alike compute that beginning once."""
    batch_invariant: bool
    """Whether greedy text is independent of the batch; see `LoadOptions`."""
    split_cache: bool
    """Whether each sequence has a stream of KV cells of its own, at first."""
    llama_cpp: str
    """The version of llama.cpp."""
    load_seconds: float
    """How long loading took."""
    thinks: bool = False
    """Whether it is known to think before it answers, if it is let."""
    embedding: int | None = None
    """How many numbers a vector has; None for an engine that generates text or ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since the model was loaded, and what is going on now."""

    steps: int = 0
    """Calls of llama_decode."""
    decode_steps: int = 0
    """Steps in which at least one sequence decoded."""
    prompt_tokens: int = 0
    """Tokens of all prompts."""
    reused_tokens: int = 0
    """Tokens of prompts that were not computed, since a shared prefix held them."""
    prefill_tokens: int = 0
    """Tokens of prompts that were computed."""
    preempted: int = 0
    """How often a sequence was preempted, since the KV cache was full."""
    recomputed_tokens: int = 0
    """Tokens that were computed again after a preemption."""
    restored_prefixes: int = 0
    """Prefixes of system prompts that were read from disk at the start."""
    restored_tokens: int = 0
    """The tokens of these prefixes."""
    output_tokens: int = 0
    """Tokens that were generated."""
    grammar_rejections: int = 0
    """How often a grammar did not allow the token that was sampled first."""
    finished: int = 0
    """Requests that have ended, but for those that were cancelled or failed."""
    cancelled: int = 0
    """Requests that were cancelled."""
    failed: int = 0
    """Requests that failed."""
    drafted: int = 0
    """Draft tokens that were verified."""
    accepted: int = 0
    """Draft tokens that became part of a text."""
    saved_seconds: float = 0.0
    """The time that speculation has saved, by the cost model; negative if it has cost time."""
    speculation: str = NOT_SET_UP
    """Whether speculation is in use now, and why."""
    llama_seconds: float = 0.0
    """Time spent in llama.cpp, to decode and to tokenize prompts."""
    own_seconds: float = 0.0
    """Time spent outside of llama.cpp, without waiting for work."""
    running: int = 0
    """Sequences that decode."""
    prefilling: int = 0
    """Sequences whose prompt is being computed."""
    queued: int = 0
    """Sequences that wait to be admitted. Of an engine that embeds: requests of which not all texts are begun."""
    retained: int = 0
    """Finished sequences whose prefix is kept for others."""
    used_cells: int = 0
    """KV cells that are held or reserved, in tokens."""
    cells: int = 0
    """The size of the KV cache, in tokens."""
    threads: int = 0
    """How many threads the engine computes with: as many as it may, or fewer while other processes use the cores."""
    calibrated: bool = False
    """Whether there is nothing left to measure in idle moments."""
    layout_changes: int = 0
    """How often the cache was changed between streams and a pool."""
    split_cache: bool = False
    """Whether each sequence has a stream of KV cells of its own now."""
