"""Read the options of a request that shape its answer, by the names that OpenAI, llama-server and vLLM have for them.

What is given is obeyed, or refused by its name. Only the neutral value of an option that is not supported is ignored,
since clients send all options that they know.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from orchestrator.api.dependencies import Entries, LenientBody, at_most
from orchestrator.engine.client.grammar import literal, pattern_grammar
from orchestrator.engine.contract import MAX_BIASES, MAX_STOP_TOKENS
from orchestrator.engine.errors import BadGrammar
from orchestrator.errors import InputError, Problem
from orchestrator.task.taskir.validation import BadSchema, OutputSchema
from registry.options import SamplingOptions

ANY_OBJECT: Final = {"type": "object"}
_UNLIMITED: Final = 1 << 22
"""More tokens than any context has."""
_LARGEST_TOKEN: Final = (1 << 31) - 1
_REGEX: Final = (
    "characters, classes, groups, alternatives and quantifiers that are not inside of what is repeated; or a grammar "
    "in GBNF"
)
_CHOICES: Final = 1000
"""How many texts `guided_choice` may have."""
_TRUNCATING: Final = ("top_k", "min_p", "typical_p", "xtc_probability")
_OPTIONS: Final = tuple(field.name for field in fields(SamplingOptions))
_OTHERS: Final = (
    "tfs_z top_n_sigma top_a dynatemp_range dynatemp_exponent samplers adaptive_target "
    "penalty_alpha epsilon_cutoff eta_cutoff no_repeat_ngram_size encoder_repetition_penalty length_penalty "
    "use_beam_search early_stopping best_of suffix bad_words allowed_token_ids "
    "include_stop_str_in_output skip_special_tokens logits_processors modalities audio prediction web_search_options "
    "verbosity"
)
REFUSED: Final = {
    **dict.fromkeys(("functions", "function_call"), "tools and tool_choice"),
    **dict.fromkeys(("echo", "prompt_logprobs"), "leave it out: the answer does not repeat the messages"),
    **dict.fromkeys(("n_predict", "max_new_tokens", "max_output_tokens"), "max_tokens"),
    "stop_sequences": "stop",
    "n_probs": "logprobs and top_logprobs",
    "post_sampling_probs": "leave it out: probabilities are those before sampling",
    **dict.fromkeys(_OTHERS.split(), "leave it out"),
}
"""Options of OpenAI's and other servers' APIs that are not supported here and shape an answer, and what is accepted."""
_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys(("tfs_z", "length_penalty", "encoder_repetition_penalty", "dynatemp_exponent"), (1,)),
    **dict.fromkeys("top_a dynatemp_range penalty_alpha epsilon_cutoff eta_cutoff".split(), (0,)),
    **dict.fromkeys(("no_repeat_ngram_size", "n_probs"), (0,)),
    **dict.fromkeys(
        "use_beam_search early_stopping include_stop_str_in_output echo post_sampling_probs".split(), (False,)
    ),
    **dict.fromkeys("bad_words allowed_token_ids logits_processors".split(), ([],)),
    "top_n_sigma": (-1, 0),
    "best_of": (0, 1),
    "suffix": ("",),
    "skip_special_tokens": (True,),
    "modalities": (["text"],),
    "function_call": ("none",),
    "verbosity": ("medium",),
    "stop_sequences": ([],),
}
"""Values with which these options change nothing."""

TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""The number of a token in a vocabulary."""
TopP = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=2)]
MaxTokens = Annotated[int, Field(ge=1, le=1 << 22)] | Literal[-1]
"""The most tokens of an answer; -1 stands for as many as the context has left."""
Seed = Annotated[int, Field(ge=-1, lt=1 << 63)]
"""The seed of an answer; -1 stands for a random one."""
TopK = Annotated[int, Field(ge=-1, le=1 << 20)]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
BiasPair = Annotated[list[Any], Field(min_length=2, max_length=2)]
Stop = str | Annotated[list[str], Field(max_length=16)]


class SamplingBody(LenientBody):
    """The options of chats, responses and completions that shape an answer, but for how much is generated."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    """0 and -1 stand for all tokens."""
    min_p: float | None = None
    typical_p: float | None = None
    typical: float | None = None
    """The same as `typical_p`, as older servers call it."""
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKENS)] | None = None
    """Tokens that end the answer. It ends with the text of such a token, unless that is a control token, as in vLLM."""
    logit_bias: (
        Annotated[dict[str, float | bool], at_most(MAX_BIASES)]
        | Annotated[list[BiasPair], Field(max_length=MAX_BIASES, fail_fast=True)]
        | None
    ) = None
    """What is added to the logits of tokens, by the token's id or by a text, all of whose tokens are meant. False rules
    them out. As a list of pairs, it is llama-server's."""
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    """The same as `repeat_penalty`, as vLLM calls it."""
    repeat_last_n: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Entries[str] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=1 << 22)] | None = None
    ignore_eos: bool | None = None
    grammar: str | None = None
    """A grammar in GBNF that the answer has to follow, as llama-server has it."""
    json_schema: dict[str, Any] | bool | None = None
    """A JSON Schema that the answer has to match, as llama-server has it."""
    guided_json: dict[str, Any] | bool | str | None = None
    guided_grammar: str | None = None
    guided_choice: Annotated[list[str], Field(min_length=1, max_length=_CHOICES)] | None = None
    guided_regex: str | None = None
    """A regular expression that the whole answer has to match, as vLLM has it."""
    regex: str | None = None
    """The same, as SGLang calls it."""
    structured_outputs: dict[str, Any] | None = None
    """What vLLM calls the `guided_` options now: `json`, `grammar`, `choice`, `regex` or `json_object`."""


class AnswerForm(NamedTuple):
    """What an answer has to look like."""

    schema: dict[str, Any] | bool | None = None
    """The JSON Schema that it has to match; None for any text."""
    grammar: str | None = None
    """The GBNF grammar that it has to follow."""


def sampling_options(body: SamplingBody) -> dict[str, Any]:
    """Return the `SamplingOptions` that a body gives. As in llama.cpp, -1 stands for all tokens."""
    given = {name: getattr(body, name) for name in _OPTIONS if getattr(body, name) is not None}
    for name, other in (("repeat_penalty", body.repetition_penalty), ("typical_p", body.typical)):
        if other is not None:
            given.setdefault(name, other)
    if "dry_sequence_breakers" in given:
        given["dry_sequence_breakers"] = tuple(given["dry_sequence_breakers"])
    if given.get("top_k") == -1:
        given["top_k"] = 0
    return {name: None if name.endswith("last_n") and value == -1 else value for name, value in given.items()}


def merged_sampling(own: SamplingOptions, given: Mapping[str, Any]) -> SamplingOptions:
    """Return a role's options with those that the client gives in their place.

    Mirostat stands against `top_k`, `min_p`, `typical_p` and XTC: where the client gives one of both, the role's other
    goes.
    """
    if given.get("mirostat"):
        own = replace(own, top_k=0, min_p=0.0, typical_p=1.0, xtc_probability=0.0)
    elif any(name in given for name in _TRUNCATING):
        own = replace(own, mirostat=0)
    return replace(own, **given)


def limit_of(*given: int | None) -> int | None:
    """Return the most tokens of the answer, by the first value that is given; None where none is.

    -1 stands for as many as the context has left: an answer is clamped to that in any case.
    """
    found = next((one for one in given if one is not None), None)
    return _UNLIMITED if found == -1 else found


def shaping_options(body: SamplingBody) -> dict[str, Any]:
    """Return the options of a body that shape its answer, but for its form, as arguments of a `CompletionRequest`.

    Raises InputError.
    """
    return {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "seed": None if body.seed == -1 else body.seed,
        "sampling": sampling_options(body),
        "stop": (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        "stop_tokens": tuple(dict.fromkeys(body.stop_token_ids or ())),
        "logit_bias": biases_of(body),
        "min_tokens": body.min_tokens or 0,
        "ignore_end": bool(body.ignore_eos),
    }


def biases_of(body: SamplingBody) -> tuple[tuple[int | str, float], ...]:
    """Return the biases of tokens and texts. Raises InputError."""
    pairs = list(body.logit_bias.items()) if isinstance(body.logit_bias, dict) else body.logit_bias or []
    return tuple(_bias(index, *pair) for index, pair in enumerate(pairs))


def _bias(index: int, one: Any, bias: object) -> tuple[int | str, float]:
    where = f"logit_bias/{one if isinstance(one, str) else index}"
    if isinstance(one, str) and one.isascii() and one.isdecimal() and len(one) < 10:
        one = int(one)
    is_token = isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= _LARGEST_TOKEN
    if not (is_token or (isinstance(one, str) and one)):
        raise InputError(Problem(where, f"{one!r:.80} is no token", "the id of a token, or a text"))
    if bias is False:
        return one, -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
        raise InputError(Problem(where, f"is {bias!r:.80}", "a number from -100 to 100, or false"))
    return one, float(bias)


def requested_logprobs(logprobs: bool | None, top: int | None) -> int | None:
    """Return how many likely tokens are wanted beside each of a chat; None for no logprobs. Raises InputError."""
    if top and not logprobs:
        raise InputError(Problem("top_logprobs", f"is {top} without logprobs", "logprobs: true beside it"))
    return (top or 0) if logprobs else None


def answer_form(body: SamplingBody, schema: dict[str, Any] | bool | None, where: str) -> AnswerForm:
    """Return what the answer has to look like.

    `schema` is what the option `where`, such as `response_format`, asks for, or None. Raises InputError where several
    options say it, and for one that is no schema, no grammar, or not supported.
    """
    found = dict(_forms(body))
    if schema is not None:
        found[where] = AnswerForm(schema)
    if len(found) > 1:
        first, second, *_ = found
        raise InputError(Problem(second, f"cannot be combined with {first}", "one of both"))
    return next(iter(found.values()), AnswerForm())


def _forms(body: SamplingBody) -> list[tuple[str, AnswerForm]]:
    given = {
        "json_schema": ("json", body.json_schema),
        "guided_json": ("json", body.guided_json),
        "grammar": ("grammar", body.grammar or None),
        "guided_grammar": ("grammar", body.guided_grammar or None),
        "guided_choice": ("choice", body.guided_choice),
        "guided_regex": ("regex", body.guided_regex or None),
        "regex": ("regex", body.regex or None),
        **{f"structured_outputs/{kind}": (kind, value) for kind, value in (body.structured_outputs or {}).items()},
    }
    return [(where, _form(where, kind, value)) for where, (kind, value) in given.items() if value is not None]


def _form(where: str, kind: str, value: object) -> AnswerForm:
    match kind, value:
        case "json", _:
            return AnswerForm(schema=_schema(where, value))
        case "json_object", True:
            return AnswerForm(schema=dict(ANY_OBJECT))
        case "grammar", str(text) if text.strip():
            return AnswerForm(grammar=text)
        case "regex", str(pattern):
            try:
                return AnswerForm(grammar=pattern_grammar(pattern))
            except BadGrammar as error:
                raise InputError(Problem(where, str(error), _REGEX)) from error
        case "choice", [*texts] if texts and all(isinstance(one, str) and one for one in texts):
            return AnswerForm(grammar="root ::= " + " | ".join(literal(str(one)) for one in dict.fromkeys(texts)))
    accepted = "json, json_object: true, a grammar in GBNF, a choice of texts, or a regular expression"
    raise InputError(Problem(where, f"{value!r:.80} is not supported", accepted))


def _schema(where: str, value: object) -> dict[str, Any] | bool:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InputError(Problem(where, f"is no JSON: {error}", "a JSON Schema")) from error
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict):
        raise InputError(Problem(where, f"{value!r:.80} is no JSON Schema", "a JSON Schema"))
    try:
        OutputSchema(value)
    except BadSchema as error:
        raise InputError(Problem(where, str(error), "a JSON Schema")) from error
    return value


def refuse_options(options: Mapping[str, object], unknown: Mapping[str, object] | None = None) -> None:
    """Raise InputError for an option that is set but not supported: ignoring it would change what the answer means.

    `unknown` are the fields of a body that it has no name for. Most of them concern nothing that an answer means, and
    are ignored; those of other servers' APIs that shape an answer are refused, unless their value changes nothing.
    """
    for name, value in options.items():
        if value:
            raise InputError(Problem(name, f"{value!r:.80} is not supported", "leave it out"))
    for name, value in (unknown or {}).items():
        if name in REFUSED and value is not None and not _is_neutral(value, _NEUTRAL.get(name, ())):
            raise InputError(Problem(name, "is not supported, and would change the answer", REFUSED[name]))


def _is_neutral(value: object, neutral: Sequence[object]) -> bool:
    """Return whether a value is one of these, where numbers and truth values are not the same."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)
