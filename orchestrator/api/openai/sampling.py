"""Read the options of a request that shape its answer, by their names in OpenAI's API, llama-server and vLLM.

An option is obeyed, or refused by its name. Only the neutral value of an unsupported option is ignored, because clients
send all options that they know.
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
from orchestrator.registry.options import SamplingOptions
from orchestrator.task.taskir.validation import BadSchema, OutputSchema

ANY_OBJECT: Final = {"type": "object"}
_UNLIMITED: Final = 1 << 22  # more tokens than any context has
_LARGEST_TOKEN: Final = (1 << 31) - 1
_REGEX: Final = (
    "characters, classes, groups, alternatives and quantifiers that are not inside of what is repeated; or a grammar "
    "in GBNF"
)
_CHOICES: Final = 1000  # the most texts of `guided_choice`
_TRUNCATING: Final = ("top_k", "min_p", "typical_p", "xtc_probability")
_OPTIONS: Final = tuple(field.name for field in fields(SamplingOptions))
_OTHERS: Final = (
    "tfs_z top_n_sigma top_a dynatemp_range dynatemp_exponent samplers adaptive_target "
    "penalty_alpha epsilon_cutoff eta_cutoff no_repeat_ngram_size encoder_repetition_penalty length_penalty "
    "use_beam_search early_stopping best_of suffix bad_words allowed_token_ids "
    "include_stop_str_in_output skip_special_tokens logits_processors modalities audio prediction web_search_options "
    "verbosity"
)
# Unsupported options of several APIs that shape an answer, and what is accepted instead.
REFUSED: Final = {
    **dict.fromkeys(("functions", "function_call"), "tools and tool_choice"),
    **dict.fromkeys(("echo", "prompt_logprobs"), "leave it out: the answer does not repeat the messages"),
    **dict.fromkeys(("n_predict", "max_new_tokens", "max_output_tokens"), "max_tokens"),
    "stop_sequences": "stop",
    "n_probs": "logprobs and top_logprobs",
    "post_sampling_probs": "leave it out: probabilities are those before sampling",
    **dict.fromkeys(_OTHERS.split(), "leave it out"),
}
# Values with which these options change nothing.
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

TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
TopP = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=2)]
MaxTokens = Annotated[int, Field(ge=1, le=1 << 22)] | Literal[-1]  # -1: as many as the context has left
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]  # OpenAI's range; -1: random, as in llama-server
TopK = Annotated[int, Field(ge=-1, le=1 << 20)]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
BiasPair = Annotated[list[Any], Field(min_length=2, max_length=2)]
Stop = str | Annotated[list[str], Field(max_length=16)]


class SamplingBody(LenientBody):
    """The options of chats, responses and completions that shape an answer, but for how much is generated."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None  # 0 and -1: all tokens
    min_p: float | None = None
    typical_p: float | None = None
    typical: float | None = None  # `typical_p` in older servers
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    # Tokens that end the answer. Their text is a part of it unless they are control tokens, as in vLLM.
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKENS)] | None = None
    # Added to the logits of tokens, by the token's id, or by a text for all of its tokens. False excludes them. A list
    # of pairs is llama-server's form.
    logit_bias: (
        Annotated[dict[str, float | bool], at_most(MAX_BIASES)]
        | Annotated[list[BiasPair], Field(max_length=MAX_BIASES, fail_fast=True)]
        | None
    ) = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None  # `repeat_penalty` in vLLM
    repeat_last_n: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Entries[str] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=1 << 22)] | None = None
    ignore_eos: bool | None = None
    grammar: str | None = None  # in GBNF (llama-server)
    json_schema: dict[str, Any] | bool | None = None  # llama-server
    guided_json: dict[str, Any] | bool | str | None = None
    guided_grammar: str | None = None
    guided_choice: Annotated[list[str], Field(min_length=1, max_length=_CHOICES)] | None = None
    guided_regex: str | None = None  # has to match the whole answer (vLLM)
    regex: str | None = None  # `guided_regex` in SGLang
    # vLLM's newer form of `guided_`: `json`, `grammar`, `choice`, `regex` or `json_object`.
    structured_outputs: dict[str, Any] | None = None


class AnswerForm(NamedTuple):
    """The form of an answer: a schema, a grammar, or neither for any text."""

    schema: dict[str, Any] | bool | None = None  # JSON Schema
    grammar: str | None = None  # GBNF


def sampling_options(body: SamplingBody) -> dict[str, Any]:
    """Return the `SamplingOptions` that a body sets, by name."""
    options = {name: getattr(body, name) for name in _OPTIONS if getattr(body, name) is not None}
    for name, alias in (("repeat_penalty", body.repetition_penalty), ("typical_p", body.typical)):
        if alias is not None:
            options.setdefault(name, alias)
    if "dry_sequence_breakers" in options:
        options["dry_sequence_breakers"] = tuple(options["dry_sequence_breakers"])
    if options.get("top_k") == -1:
        options["top_k"] = 0
    # As in llama.cpp, -1 stands for all tokens.
    return {name: None if name.endswith("last_n") and value == -1 else value for name, value in options.items()}


def merged_sampling(own: SamplingOptions, options: Mapping[str, Any]) -> SamplingOptions:
    """Return a role's options, overridden by those that the client sets.

    Mirostat excludes `top_k`, `min_p`, `typical_p` and XTC: if the client sets one side, the role's other side is
    dropped.
    """
    if options.get("mirostat"):
        own = replace(own, top_k=0, min_p=0.0, typical_p=1.0, xtc_probability=0.0)
    elif any(name in options for name in _TRUNCATING):
        own = replace(own, mirostat=0)
    return replace(own, **options)


def limit_of(*limits: int | None) -> int | None:
    """Return the first limit that is set, in tokens; None if none is."""
    limit = next((value for value in limits if value is not None), None)
    # An answer is clamped to the rest of the context in any case.
    return _UNLIMITED if limit == -1 else limit


def shaping_options(body: SamplingBody) -> dict[str, Any]:
    """Return the options that shape an answer, except its form, as arguments of a `CompletionRequest`.

    Raises InputError.
    """
    return {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "seed": None if body.seed in (None, -1) else body.seed % (1 << 63),
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


def _bias(index: int, token: Any, bias: object) -> tuple[int | str, float]:
    where = f"logit_bias/{token if isinstance(token, str) else index}"
    if isinstance(token, str) and token.isascii() and token.isdecimal() and len(token) < 10:
        token = int(token)
    is_token = isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= _LARGEST_TOKEN
    if not (is_token or (isinstance(token, str) and token)):
        raise InputError(Problem(where, f"{token!r:.80} is no token", "the id of a token, or a text"))
    if bias is False:
        return token, -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
        raise InputError(Problem(where, f"is {bias!r:.80}", "a number from -100 to 100, or false"))
    return token, float(bias)


def requested_logprobs(logprobs: bool | None, top: int | None) -> int | None:
    """Return the number of candidates for each token of a chat; None for no logprobs. Raises InputError."""
    if top and not logprobs:
        raise InputError(Problem("top_logprobs", f"is {top} without logprobs", "logprobs: true with it"))
    return (top or 0) if logprobs else None


def answer_form(body: SamplingBody, schema: dict[str, Any] | bool | None, where: str) -> AnswerForm:
    """Return the form that the answer must have.

    `schema` is what the option `where`, such as `response_format`, asks for, or None. Raises InputError if several
    options set a form, or if one is invalid or unsupported.
    """
    forms = dict(_forms(body))
    if schema is not None:
        forms[where] = AnswerForm(schema)
    if len(forms) > 1:
        first, second, *_ = forms
        raise InputError(Problem(second, f"cannot be combined with {first}", "one of both"))
    return next(iter(forms.values()), AnswerForm())


def _forms(body: SamplingBody) -> list[tuple[str, AnswerForm]]:
    options = {
        "json_schema": ("json", body.json_schema),
        "guided_json": ("json", body.guided_json),
        "grammar": ("grammar", body.grammar or None),
        "guided_grammar": ("grammar", body.guided_grammar or None),
        "guided_choice": ("choice", body.guided_choice),
        "guided_regex": ("regex", body.guided_regex or None),
        "regex": ("regex", body.regex or None),
        **{f"structured_outputs/{kind}": (kind, value) for kind, value in (body.structured_outputs or {}).items()},
    }
    return [(where, _form(where, kind, value)) for where, (kind, value) in options.items() if value is not None]


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
        case "choice", [*texts] if texts and all(isinstance(choice, str) and choice for choice in texts):
            return AnswerForm(grammar="root ::= " + " | ".join(literal(str(choice)) for choice in dict.fromkeys(texts)))
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
    """Raise InputError for an unsupported option that is set: ignoring it would change what the answer means.

    `unknown` are the other fields of a body. Only those in `REFUSED` are refused, unless their value changes nothing.
    """
    for name, value in options.items():
        if value:
            raise InputError(Problem(name, f"{value!r:.80} is not supported", "leave it out"))
    for name, value in (unknown or {}).items():
        if name in REFUSED and value is not None and not _is_neutral(value, _NEUTRAL.get(name, ())):
            raise InputError(Problem(name, "is not supported, and would change the answer", REFUSED[name]))


def _is_neutral(value: object, neutral: Sequence[object]) -> bool:
    # Numbers and truth values differ here, although True == 1.
    return any(value == candidate and isinstance(value, bool) == isinstance(candidate, bool) for candidate in neutral)
