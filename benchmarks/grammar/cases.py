"""Texts that a grammar should accept or not, by the form in which it is given, and what each side says of them."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import jsonschema
import numpy as np

from benchmarks.grammar.guided import Guidance, guided_calls, guided_gbnf, guided_pattern, guided_schema
from orchestrator.engine.client.grammar import calls_grammar, left_to_validator, pattern_grammar, schema_grammar
from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama import Grammar, Llama, Vocabulary
from orchestrator.registry.call_syntax import FAMILIES, REMOTE, CallSyntax
from orchestrator.run.frontdoor.compact import plan_schema
from orchestrator.run.frontdoor.listed import Listed
from tests.orchestrator.engine.schema_cases import (
    CASES,
    IMPOSSIBLE,
    NO_JSON,
    NO_JSON_SCHEMA,
    NO_SCHEMA,
    REFUSED,
    TEXTS,
    walk,
)

Start = Callable[[], Grammar]  # makes a grammar in its first state, or raises BadGrammar
Answer = bool | str  # a text says why there is no answer
_SHOWN: Final = 160  # characters of a grammar in the results


class Form(NamedTuple):
    """A way to say which texts are wanted, and how each side makes a grammar of it."""

    name: str
    ours: Callable[[Any], str]
    guided: Callable[[Any], str]


class Case(NamedTuple):
    """A grammar, and texts that it should accept or not; none if it should be refused itself."""

    form: Form
    written: Any
    texts: tuple[tuple[str, bool], ...]


class Verdict(NamedTuple):
    """What both sides say of a text, or of whether a grammar is refused as it should be."""

    form: str
    grammar: str
    text: str | None
    wanted: bool
    ours: Answer
    llguidance: Answer


_SCHEMA: Final = Form("JSON Schema", schema_grammar, guided_schema)
_PLAN: Final = Form("plan of the frontdoor", schema_grammar, guided_schema)
_PATTERN: Final = Form("regular expression", pattern_grammar, guided_pattern)
_GBNF: Final = Form("GBNF", str, guided_gbnf)
_TOOLS: Final = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"],
    },
    "ping": {"type": "object", "properties": {}},
}
_PATTERNS: Final = (
    ("[A-Z]{2}[0-9]{4}", ("AB1234",), ("AB123", "ab1234")),
    ("^(red|green)(, (red|green))*$", ("red", "red, green"), ("red,green", "blue")),
    (r"\d+(\.\d{1,2})?", ("12", "12.50"), ("12.", "a")),
    (r"\p{Lu}\p{L}*", ("Łódź", "Ωmega"), ("łódź",)),
    ("yes|no|.{3,5}", ("yes", "maybe"), ("longer than it",)),
)
_ARITHMETIC: Final = """
root ::= expr "\\n"
expr ::= term ([-+*/] term)*   # left to right
term ::= [0-9]+ | "(" expr ")"
"""
_GRAMMARS: Final = (
    ('root ::= [0-9]{5} "!"', ("12345!",), ("1234!",)),
    ('root ::= "one, two" [a-z]{0,40}', ("one, two", "one, twoabc"), ("one",)),
    ('root ::= ("over and " | "out, ")+', ("over and out, ",), ("over",)),
    ('root ::= ("\u20ac\U0001f600"){2}', ("\u20ac\U0001f600\u20ac\U0001f600",), ("\u20ac",)),
    ('root ::= "a" root | "b"', ("aab", "b"), ("aa",)),
    (_ARITHMETIC, ("1+(2*3)\n",), ("1+\n",)),
    ('root ::= "- " item ("\\n- " item)*\nitem ::= [^\\n]+', ("- a\n- b c",), ("- ",)),
    ('root ::= sentence " END"\nsentence ::= [A-Za-z ]+', ("The harbour is full END",), ("The harbour END!",)),
    ('root ::= key ": " value\nkey ::= [a-z:]+\nvalue ::= [0-9]+', ("days: 3", "a:b: 3"), ("days:3",)),
    ("root ::= [\\u0041-\\u005A] [\\U00000061-\\U0000007A]+", ("Abc",), ("abc",)),
    ('root ::= ("a"?)* "b"', ("aab", "b"), ("a",)),
    ("root ::= Name name\nName ::= [A-Z]\nname ::= [a-z]+", ("Abc",), ("abc",)),
)
_NO_GRAMMARS: Final = ('root ::= "a', "root ::= nowhere", "x ::= [a-z]", f'root ::= {"(" * 5000}"a"{")" * 5000}')


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for schema, good, bad in (*CASES, *TEXTS):
        spellings = _spellings if (schema, good, bad) in CASES else _spelled
        accepted = [(text, True) for value in good for text in dict.fromkeys(spellings(value))]
        yield Case(_SCHEMA, schema, (*accepted, *((json.dumps(value), False) for value in bad)))
    yield Case(_SCHEMA, NO_JSON_SCHEMA, tuple((text, False) for text in NO_JSON))
    for schema in (*(schema for schema, _ in REFUSED), *IMPOSSIBLE, *NO_SCHEMA):
        yield Case(_SCHEMA, schema, ())
    yield from _plan_cases()
    for form, rows in ((_PATTERN, _PATTERNS), (_GBNF, _GRAMMARS)):
        for written, fitting, others in rows:
            yield Case(form, written, (*((text, True) for text in fitting), *((text, False) for text in others)))
    for written in _NO_GRAMMARS:
        yield Case(_GBNF, written, ())
    yield from _call_cases()


def _spelled(value: Any) -> Iterator[str]:
    yield json.dumps(value, ensure_ascii=False)


def _spellings(value: Any) -> Iterator[str]:
    yield from (json.dumps(value), json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    yield json.dumps(value, indent=2)


def _plan_cases() -> Iterator[Case]:
    part = {"role": "worker", "action": "Summarize {each}.", "each": ["a.txt", "b.txt"]}
    last = {"role": "worker", "action": "Compare the summaries.", "inputs": ["P1"], "output": "report.md"}
    plan = json.dumps({"plan": [part, last]}, separators=(",", ":"))
    wrong = (plan.replace("worker", "waiter"), plan.replace(":", ": "), plan[:-1], '{"plan":[]}')
    yield Case(_PLAN, plan_schema(["worker", "coder"], replan=True), ((plan, True), *((text, False) for text in wrong)))
    listed = Listed.of("Summarize a.txt and b.txt, then compare them in report.md.", ("a.txt", "b.txt"))
    named = plan_schema(["worker"], listed=listed)
    first = '{"plan":[{"role":"worker","inputs":["a.txt"],"action":"Summarize the text."}]}'
    yield Case(_PLAN, named, ((first, True), (first.replace("a.txt", "c.txt"), False), (first[:-3] + "}", False)))


def _call_cases() -> Iterator[Case]:
    tools = [*_TOOLS.items()]
    for syntax in FAMILIES.values():
        if syntax is REMOTE:
            continue

        def call(name: str, arguments: str, syntax: CallSyntax = syntax) -> str:
            return f"{syntax.opening}{name}{syntax.middle}{arguments}{syntax.closing}"

        def ours(syntax: CallSyntax) -> str:
            return calls_grammar(syntax, tools, most=2)

        weather, ping = call("weather", '{"city": "Łódź", "days": 2}'), call("ping", "{}")
        good = [weather, ping, *([weather + syntax.separator + ping] if syntax.several else [])]
        bad = [call("wether", "{}"), call("weather", "{}"), call("weather", '{"city": "x", "days": 0}'), weather[:-1]]
        texts = [(f"{syntax.start}{text}{syntax.end}", text in good) for text in (*good, *bad)]
        form = Form("calls of models", ours, lambda syntax: guided_calls(syntax, _TOOLS))
        yield Case(form, syntax, tuple(texts))


def _walk_ends(start: Start, vocab: Vocabulary, schema: Any) -> Answer:
    """Return whether random walks through the grammar of a schema end with a value that has it."""
    rng = np.random.default_rng(1)
    try:
        for _ in range(2):
            jsonschema.validate(json.loads(walk(start(), vocab, rng)), schema)
    except (AssertionError, BadGrammar, ValueError, jsonschema.ValidationError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]:.120}"
    return True


def accepts(start: Start, vocab: Vocabulary, text: str) -> Answer:
    """Return whether a grammar accepts a whole text, or why there is no such grammar."""
    try:
        grammar = start()
    except BadGrammar as error:
        return f"refused: {error}"
    try:
        for token in vocab.tokenize(text, special=False):
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        return any(grammar.allows(end) for end in vocab.end)
    finally:
        grammar.close()


def verdicts(llama: Llama) -> Iterator[Verdict]:
    """Yield what each side says of each text and each grammar, and of random walks through grammars of schemas."""
    guidance, vocab = Guidance(llama.vocab), llama.vocab

    def starts(form: Form, written: Any) -> tuple[Start, Start]:
        return lambda: llama.grammars.start(form.ours(written)), lambda: guidance.start(form.guided(written))

    for form, written, texts in cases():
        for text, wanted in texts:
            ours, guided = (accepts(start, vocab, text) for start in starts(form, written))
            yield Verdict(form.name, _shown(written), text, wanted, ours, guided)
        if not texts:
            ours, guided = (_is_refused(start) for start in starts(form, written))
            yield Verdict(form.name, _shown(written), None, True, ours, guided)
    for schema in (schema for schema, *_ in CASES if not [*left_to_validator(schema)]):
        ours, guided = (_walk_ends(start, vocab, schema) for start in starts(_SCHEMA, schema))
        yield Verdict("random walks", _shown(schema), None, True, ours, guided)


def _is_refused(start: Start) -> bool:
    try:
        start().close()
    except BadGrammar:
        return True
    return False


def _shown(written: Any) -> str:
    text = written if isinstance(written, str) else json.dumps(written, default=lambda syntax: syntax.family)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
