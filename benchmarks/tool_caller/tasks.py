"""Generate tasks that are done with two tools, and questions without tools, with what the model is to answer.

Names of tools, parameters and things are from an open vocabulary, so that the model has to copy them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from benchmarks.tool_caller.syntax import CALCULATORS, SEARCH, ModelAnswer, TaughtCall
from orchestrator.bench.families.example import SYSTEM_PROMPTS
from orchestrator.bench.families.words import Lexicon, Split, WordingPool, sentence
from orchestrator.run.steps.role import StepInput, step_messages

JsonObject = dict[str, Any]
Number = int | float

KEYS = tuple(
    "price weight height age count stock score length width depth year size speed distance population cost rank "
    "area volume level rate total temperature balance".split()
)
# What leads from one thing to another one.
LINKS = tuple("owner author maker capital teacher manager supplier friend neighbour editor".split())
# Names of tools that look up one key.
OF_KEY = tuple("get_{k} find_{k} look_up_{k} lookup_{k} {k}_of fetch_{k} read_{k} {k} get{K} {k}_lookup".split())
OF_KEY_TELLS = ("Return the {k} of a thing.", "Get the {k}.", "Look up the {k} of something by name.", "The {k}.", "")
THING = tuple("name item thing entry subject id title of it".split())
# Names of tools that look up any key.
OF_ANY = tuple("look_up lookup find get_fact get_field read_record query fetch".split())
OF_ANY_TELLS = ("Look up a fact about a thing.", "Return one field of an entry.", "Find a fact.", "")
THING_AND_KEY = (("name", "field"), ("item", "key"), ("entity", "attribute"), ("subject", "property"), ("of", "what"))
SEARCH_TELLS = ("Search for a fact.", "Answer a query from a database.", "Search the web.", "")
QUERY = ("query", "question", "text", "q")


@dataclass(frozen=True, slots=True)
class Calculation:
    """A calculation with two numbers."""

    sign: str
    names: tuple[str, ...]  # names of tools that do it
    tells: str  # what such a tool says that it does
    word: str  # what stands between the two numbers
    then: tuple[str, ...]  # how to ask for it after the first number; {y} is the second one
    # How to ask for it with both numbers, {x} and {y}, which come in this order in the first one if they may.
    whole: tuple[str, ...]
    apply: Callable[[Number, Number], Number]


OPERATIONS: Final = (
    Calculation(
        "+",
        ("add", "add_numbers", "plus", "addition", "sum_of"),
        "Add two numbers.",
        "plus",
        ("add {y}", "add {y} to it", "add {y}"),
        ("add {x} and {y}", "add {y} to {x}"),
        lambda x, y: x + y,
    ),
    Calculation(
        "-",
        ("subtract", "subtract_numbers", "minus", "difference"),
        "Subtract the second number from the first.",
        "minus",
        ("subtract {y}", "subtract {y} from it", "take away {y}"),
        ("subtract {y} from {x}",),
        lambda x, y: x - y,
    ),
    Calculation(
        "*",
        ("multiply", "multiply_numbers", "times", "product"),
        "Multiply two numbers.",
        "times",
        ("multiply it by {y}", "multiply by {y}"),
        ("multiply {x} by {y}",),
        lambda x, y: x * y,
    ),
)
OPERANDS = (("a", "b"), ("x", "y"), ("first", "second"), ("left", "right"), ("number1", "number2"), ("m", "n"))
EXPRESSION = ("expression", "formula", "expr")

THEN = WordingPool(
    (
        "look up {x}, then {op}.",
        "look up {x} and {op}.",
        "find {x} and {op}.",
        "find {x}, then {op}.",
        "get {x}. Then {op}.",
        "get {x} and then {op}.",
        "first look up {x}. Then {op}.",
        "take {x} and {op}.",
        "look up {x}, {op}, and tell me the result.",
        "what do you get if you take {x} and {op}?",
    ),
    ("please find {x}, and after that {op}.", "first find {x}, then {op} and tell me the result."),
)
WHOLE = WordingPool(
    ("what is {x} {word} {y}?", "{whole}.", "please {whole}.", "calculate {x} {word} {y}.", "{whole}. Use the tools."),
    ("can you {whole}?", "tell me what {x} {word} {y} is."),
)
ASK = WordingPool(
    ("what is {x}?", "look up {x}.", "find {x}.", "tell me {x}.", "get {x}.", "give me {x}."),
    ("please tell me {x}.", "can you find {x}?"),
)
GREETINGS = ("hello", "hello!", "hi", "hi there", "good morning", "hey", "Hello, who are you?", "Good evening!")
WELCOME = "Hello! How can I help?"
SYSTEMS = (
    "You are a helpful assistant.",
    "Be brief.",
    "Answer the question.",
    "Use the tools to answer.",
    "You are a helpful assistant. Use tools when you need them.",
    "Think before you answer.",
    "You solve tasks step by step with tools.",
    *SYSTEM_PROMPTS.values(),
)
NOT_FOUND = ("not found", "error: not found", '{"error": "not found"}', "null", "None")
FINISHERS = (
    ("final_answer", "Provides a final answer to the given problem.", "answer"),
    ("final_answer", "Give the final answer.", "answer"),
    ("final_result", "The final response which ends this conversation", "response"),
    ("finish", "End the task with its answer.", "answer"),
)  # Tools that some agents have an answer given by: name, description, parameter


@dataclass(frozen=True, slots=True)
class CallTurn:
    """An answer, and what the tools that it calls return."""

    answer: ModelAnswer
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A request with the answers that it takes. The last one calls no tool, or one that ends the task."""

    request: str
    turns: tuple[CallTurn, ...]
    tools: tuple[JsonObject, ...] = ()  # the tools that it needs, as clients describe them


@dataclass(frozen=True, slots=True)
class CallExample:
    """A conversation that the model answers next."""

    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...]
    answer: ModelAnswer
    step: int  # how many answers of the same task are in the conversation already


@dataclass(frozen=True, slots=True)
class Lookup:
    """A tool that looks something up."""

    tool: JsonObject
    call: Callable[[str], TaughtCall]  # returns the call for a thing


def example(rng: Random, split: Split, *, several: bool) -> CallExample:
    """Return a random conversation and the answer to it. `several`: one answer may have more than one call."""
    words = Lexicon(rng, split)
    task = _task(words, split)
    earlier = rng.choice((_look_up, _greet, _calculate))(words, split) if rng.random() < 0.08 else None
    tools = task.tools
    if earlier is not None and not _names(earlier.tools) & _names(tools):
        tools += earlier.tools
    else:
        earlier = None
    if tools or rng.random() < 0.3:
        tools = (*tools, *_others(words, tools, rng.choice((0, 0, 0, 1)) if tools else rng.randint(1, 2)))
        tools = tuple(rng.sample(tools, len(tools)))
    turns = task.turns if several else tuple(_one_by_one(task.turns))
    flat = bool(task.tools) and rng.random() < 0.08
    if tools and rng.random() < (0.6 if flat else 0.1):  # agents that know no roles for tools mostly want this, too
        turns, tools = _ended_by_tool(rng, turns, tools)
    messages = _opening(rng)
    if earlier is not None:
        messages.append({"role": "user", "content": earlier.request})
        for turn in earlier.turns:
            messages += _told(rng, turn)
    step = rng.randrange(len(turns))
    said = f"New task:\n{task.request}" if flat else task.request
    messages.append({"role": "user", "content": said})
    for turn in turns[:step]:
        messages += _flat(rng, turn) if flat else _told(rng, turn)
    return CallExample(tuple(messages), tools, turns[step].answer, step)


def _task(words: Lexicon, split: Split) -> Task:
    kinds: list[tuple[Callable[[Lexicon, Split], Task], int]] = [
        (_look_up_and_calculate, 38),
        (_look_up_both, 16),
        (_look_up, 14),
        (_follow, 8),
        (_calculate, 6),
        (_greet, 3),
        (_read, 15),
    ]
    chosen = words.rng.choices([kind for kind, _ in kinds], [share for _, share in kinds])[0]
    return chosen(words, split)


def _opening(rng: Random) -> list[JsonObject]:
    roll = rng.random()
    if roll < 0.4:
        return []
    text = rng.choice(SYSTEMS) if roll < 0.85 else f"{rng.choice(SYSTEMS)} {rng.choice(SYSTEMS)}"
    return [{"role": "system", "content": text}]


def _names(tools: Sequence[JsonObject]) -> set[str]:
    return {str(tool["function"]["name"]) for tool in tools}


# Tools


def _described(rng: Random, name: str, tells: str, parameters: Mapping[str, str]) -> JsonObject:
    """Return a tool as clients describe it; `parameters` are the types by name."""
    properties: JsonObject = {key: {"type": kind} for key, kind in parameters.items()}
    style = rng.random()
    if style < 0.12:
        properties = {key: {"title": sentence(key), **value} for key, value in properties.items()}
    elif style < 0.24:
        properties = {key: {**value, "description": f"The {key}."} for key, value in properties.items()}
    schema: JsonObject = {"type": "object", "properties": properties, "required": [*parameters]}
    roll = rng.random()
    if roll < 0.1:
        schema = {"properties": properties, "required": [*parameters], "type": "object"}
    elif roll < 0.25:
        schema["additionalProperties"] = False
    return {"type": "function", "function": {"name": name, "description": tells, "parameters": schema}}


def _looks_up(words: Lexicon, key: str) -> Lookup:
    """Return a tool that finds the `key` of a thing."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.6:
        name = rng.choice(OF_KEY).format(k=key, K=sentence(key))
        thing = rng.choice(THING)
        tool = _described(rng, name, rng.choice(OF_KEY_TELLS).format(k=key), {thing: "string"})
        return Lookup(tool, lambda of: TaughtCall(name, {thing: of}))
    if roll < 0.85:
        name, (thing, which) = rng.choice(OF_ANY), rng.choice(THING_AND_KEY)
        tool = _described(rng, name, rng.choice(OF_ANY_TELLS), {thing: "string", which: "string"})
        return Lookup(tool, lambda of: TaughtCall(name, {thing: of, which: key}))
    name, query = rng.choice(SEARCH), rng.choice(QUERY)
    tool = _described(rng, name, rng.choice(SEARCH_TELLS), {query: "string"})
    return Lookup(tool, lambda of: TaughtCall(name, {query: f"{key} of {of}"}))


def _calculates(rng: Random, operation: Calculation) -> tuple[JsonObject, Callable[[Number, Number], TaughtCall]]:
    """Return a tool that does the calculation, and what returns its call."""
    if rng.random() < 0.15:
        name, expression = rng.choice(CALCULATORS), rng.choice(EXPRESSION)
        tool = _described(rng, name, "Evaluate an expression.", {expression: "string"})
        return tool, lambda x, y: TaughtCall(name, {expression: f"{x} {operation.sign} {y}"})
    name, (left, right) = rng.choice(operation.names), rng.choice(OPERANDS)
    kind = rng.choice(("integer", "number"))
    tool = _described(rng, name, operation.tells if rng.random() < 0.8 else "", {left: kind, right: kind})
    return tool, lambda x, y: TaughtCall(name, {left: x, right: y})


def _others(words: Lexicon, tools: Sequence[JsonObject], count: int) -> list[JsonObject]:
    """Return `count` tools that a task does not need."""
    rng, others = words.rng, list[JsonObject]()
    needed = json.dumps(tools)
    taken = _names(tools)
    operations = [operation for operation in OPERATIONS if not taken & {*operation.names, *CALCULATORS}]
    while len(others) < count:
        key = _key(words)
        if operations and rng.random() < 0.35:
            operation = operations.pop(rng.randrange(len(operations)))
            name, kinds = rng.choice(operation.names), dict.fromkeys(rng.choice(OPERANDS), "integer")
            others.append(_described(rng, name, operation.tells, kinds))
        elif key not in needed:
            name = rng.choice(OF_KEY).format(k=key, K=sentence(key))
            tells = rng.choice(OF_KEY_TELLS).format(k=key)
            others.append(_described(rng, name, tells, {rng.choice(THING): "string"}))
            needed += key
    return others


# Requests


def _key(words: Lexicon) -> str:
    return words.rng.choice(KEYS) if words.rng.random() < 0.6 else words.word()


def _thing(words: Lexicon) -> str:
    return words.name() if words.rng.random() < 0.5 else words.word()


def _number(words: Lexicon) -> Number:
    number = words.number()
    return number if words.rng.random() < 0.92 else number + words.rng.randrange(1, 10) / 10


def _result(rng: Random, value: object, key: str, subject: str) -> str:
    """Return what a tool returns: the value alone, as JSON, or in a sentence."""
    roll = rng.random()
    if roll < 0.6:
        return str(value)
    if roll < 0.8:
        return json.dumps({rng.choice((key, "result", "value")): value}, ensure_ascii=False)
    return str({key: value}) if roll < 0.85 else sentence(f"{subject} is {value}.")


def _final(value: object) -> ModelAnswer:
    return ModelAnswer(f"The result is {value}.", f"The result is {value}.")


def _look_up(words: Lexicon, split: Split) -> Task:
    rng = words.rng
    key, thing = _key(words), _thing(words)
    value: object = _number(words) if rng.random() < 0.6 else _thing(words)
    lookup, subject = _looks_up(words, key), f"the {key} of {thing}"
    missing = rng.random() < 0.12
    result = rng.choice(NOT_FOUND) if missing else _result(rng, value, key, subject)
    last = (
        _not_found(subject)
        if missing
        else ModelAnswer(f"{sentence(subject)} is {value}.", f"{sentence(subject)} is {value}.")
    )
    first = CallTurn(ModelAnswer(f"I look up {subject}.", calls=(lookup.call(thing),)), (result,))
    return Task(sentence(ASK.pick(rng, split).format(x=subject)), (first, CallTurn(last)), (lookup.tool,))


def _not_found(subject: str) -> ModelAnswer:
    return ModelAnswer(f"{sentence(subject)} was not found.", f"I could not find {subject}.")


def _look_up_and_calculate(words: Lexicon, split: Split) -> Task:
    rng = words.rng
    key, thing = _key(words), _thing(words)
    x, y = _number(words), _number(words)
    operation = rng.choice(OPERATIONS)
    lookup, subject = _looks_up(words, key), f"the {key} of {thing}"
    tool, call = _calculates(rng, operation)
    if rng.random() < 0.65:
        request = THEN.pick(rng, split).format(x=subject, op=rng.choice(operation.then).format(y=y))
    else:
        request = _whole(rng, split, operation, rng.choice(operation.whole), subject, y)
    first = ModelAnswer(f"I look up {subject} first.", calls=(lookup.call(thing),))
    if rng.random() < 0.05:
        turns: tuple[CallTurn, ...] = (CallTurn(first, (rng.choice(NOT_FOUND),)), CallTurn(_not_found(subject)))
    else:
        value = _calculated(rng, operation, x, y)
        turns = (
            CallTurn(first, (_result(rng, x, key, subject),)),
            CallTurn(_calculation(subject, operation, x, y, call), (_result(rng, value, "result", "the result"),)),
            CallTurn(_final(value)),
        )
    return Task(sentence(request), turns, (lookup.tool, tool))


def _whole(rng: Random, split: Split, operation: Calculation, whole: str, x: object, y: object) -> str:
    return WHOLE.pick(rng, split).format(x=x, y=y, word=operation.word, whole=whole.format(x=x, y=y))


def _calculated(rng: Random, operation: Calculation, x: Number, y: Number) -> Number:
    """Return the result, now and then as a number with a fraction, which some tools always return."""
    value = round(operation.apply(x, y), 2)
    return float(value) if rng.random() < 0.12 else value


def _calculation(
    subject: str, operation: Calculation, x: Number, y: Number, call: Callable[[Number, Number], TaughtCall]
) -> ModelAnswer:
    thought = f"{sentence(subject)} is {x}. Now {x} {operation.sign} {y}." if subject else f"{x} {operation.sign} {y}."
    return ModelAnswer(thought, calls=(call(x, y),))


def _look_up_both(words: Lexicon, split: Split) -> Task:
    """Return a task that takes two lookups at a time, and a calculation with what they return."""
    rng = words.rng
    key, things = _key(words), (_thing(words), _thing(words))
    x, y = _number(words), _number(words)
    operation = rng.choice(OPERATIONS)
    lookup, (subject, other) = _looks_up(words, key), [f"the {key} of {thing}" for thing in things]
    tool, call = _calculates(rng, operation)
    request = _whole(rng, split, operation, operation.whole[0], subject, other)
    value = _calculated(rng, operation, x, y)
    turns = (
        CallTurn(
            ModelAnswer(f"I look up {subject} and {other}.", calls=tuple(lookup.call(thing) for thing in things)),
            (_result(rng, x, key, subject), _result(rng, y, key, other)),
        ),
        CallTurn(
            ModelAnswer(f"They are {x} and {y}. Now {x} {operation.sign} {y}.", calls=(call(x, y),)),
            (_result(rng, value, "result", "the result"),),
        ),
        CallTurn(_final(value)),
    )
    return Task(sentence(request), turns, (lookup.tool, tool))


def _follow(words: Lexicon, split: Split) -> Task:
    """Return a task in which the result of one lookup is what the next one is about."""
    rng = words.rng
    link, key = rng.choice(LINKS), _key(words)
    thing, other, value = _thing(words), _thing(words), _number(words)
    first, second = _looks_up(words, link), _looks_up(words, key)
    if first.tool["function"]["name"] == second.tool["function"]["name"]:
        second = Lookup(first.tool, lambda of: _with_key(first.call(of), link, key))
    subject, next_subject = f"the {link} of {thing}", f"the {key} of {other}"
    turns = (
        CallTurn(
            ModelAnswer(f"I look up {subject} first.", calls=(first.call(thing),)),
            (_result(rng, other, link, subject),),
        ),
        CallTurn(
            ModelAnswer(f"{sentence(subject)} is {other}. I look up {next_subject}.", calls=(second.call(other),)),
            (_result(rng, value, key, next_subject),),
        ),
        CallTurn(ModelAnswer(f"{sentence(next_subject)} is {value}.", f"{sentence(next_subject)} is {value}.")),
    )
    request = ASK.pick(rng, split).format(x=f"the {key} of {subject}")
    tools = (first.tool,) if second.tool is first.tool else (first.tool, second.tool)
    return Task(sentence(request), turns, tools)


def _with_key(call: TaughtCall, link: str, key: str) -> TaughtCall:
    """Return the same call for another key."""
    texts = {name: key if text == link else text for name, text in call.arguments.items()}
    return TaughtCall(
        call.name,
        {name: text.replace(f"{link} of ", f"{key} of ", 1) for name, text in texts.items()},
    )


def _calculate(words: Lexicon, split: Split) -> Task:
    rng = words.rng
    x, y = _number(words), _number(words)
    operation = rng.choice(OPERATIONS)
    tool, call = _calculates(rng, operation)
    value = _calculated(rng, operation, x, y)
    request = _whole(rng, split, operation, operation.whole[0], x, y)
    first = CallTurn(_calculation("", operation, x, y, call), (_result(rng, value, "result", "the result"),))
    return Task(sentence(request), (first, CallTurn(_final(value))), (tool,))


def _greet(words: Lexicon, split: Split) -> Task:
    return Task(sentence(words.rng.choice(GREETINGS)), (CallTurn(ModelAnswer("I greet back.", WELCOME)),))


def _read(words: Lexicon, split: Split) -> Task:
    """Return a question whose answer stands in the request."""
    rng = words.rng
    facts = [(_key(words), _thing(words), _number(words)) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.5:
        facts = [(key, facts[0][1], value) for key, _, value in facts]
    facts = list({(key, thing): (key, thing, value) for key, thing, value in facts}.values())
    lines = [rng.choice(("The {k} of {n} is {v}.", "{n}: {k} {v}.")).format(k=k, n=n, v=v) for k, n, v in facts]
    key, thing, value = rng.choice(facts)
    subject = f"the {key} of {thing}"
    question, text = ASK.pick(rng, split).format(x=subject), f"{sentence(subject)} is {value}."
    roll = rng.random()
    if roll < 0.3:
        question, text = (
            rng.choice(("give {x} as JSON.", "answer with JSON: {x}.")).format(x=subject),
            f'{{"{key}": {value}}}',
        )
    elif roll < 0.5:
        question, text = (
            rng.choice(("{q} Answer with the number.", "{q} Only the number.")).format(q=question),
            str(value),
        )
    question = sentence(question)
    if rng.random() < 0.5:
        sources = [StepInput(words.file() if rng.random() < 0.6 else f"S{rng.randint(1, 9)}", " ".join(lines))]
        request = step_messages("", "", sources, question)[1].content
    else:
        request = f"{' '.join(lines)}{rng.choice((' ', chr(10)))}{question}"
    return Task(request, (CallTurn(ModelAnswer(f"{sentence(subject)} is {value}.", text)),))


# Conversations


def _one_by_one(turns: Iterable[CallTurn]) -> Iterator[CallTurn]:
    """Yield turns that make one call each."""
    for turn in turns:
        if not turn.answer.calls:
            yield turn
        for index, (call, result) in enumerate(zip(turn.answer.calls, turn.results, strict=True)):
            thought = "I look up the next one." if index else turn.answer.thought
            yield CallTurn(ModelAnswer(thought, calls=(call,)), (result,))


def _ended_by_tool(
    rng: Random, turns: tuple[CallTurn, ...], tools: tuple[JsonObject, ...]
) -> tuple[tuple[CallTurn, ...], tuple[JsonObject, ...]]:
    """Return turns whose last one gives its answer by a tool, and the tools with that one."""
    name, tells, parameter = rng.choice(FINISHERS)
    kind = rng.choice(("string", "any"))
    tool = _described(rng, name, tells, {parameter: kind})
    last = turns[-1].answer
    ended = CallTurn(ModelAnswer(last.thought, calls=(TaughtCall(name, {parameter: last.text}),)))
    place = rng.randint(0, len(tools))
    return (*turns[:-1], ended), (*tools[:place], tool, *tools[place:])


def _id(rng: Random) -> str:
    return rng.choice(("call_", "", "chatcmpl-tool-")) + "".join(
        rng.choices("0123456789abcdef", k=rng.choice((8, 9, 24)))
    )


def _calls(rng: Random, turn: CallTurn) -> list[JsonObject]:
    return [
        {"id": _id(rng), "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in turn.answer.calls
    ]


def _told(rng: Random, turn: CallTurn) -> list[JsonObject]:
    """Return the messages of a turn: the model's, and one for each result."""
    calls = _calls(rng, turn)
    said: JsonObject = {"role": "assistant", "content": turn.answer.text}
    if calls:
        said["tool_calls"] = calls
    answered = zip(calls, turn.results, strict=True)
    return [said, *({"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in answered)]


def _flat(rng: Random, turn: CallTurn) -> list[JsonObject]:
    """Return the messages of a turn as agents tell it that know no roles for tools."""
    if not turn.answer.calls:
        return _told(rng, turn)
    return [
        {"role": "assistant", "content": f"Calling tools:\n{_calls(rng, turn)}"},
        {"role": "user", "content": "Observation:\n" + "\n".join(turn.results)},
    ]
