"""What a model writes is split into thoughts and answer, however it comes in pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.thinking import ThoughtSplitter
from orchestrator.engine.worker.loop import thinking_room
from orchestrator.registry.thinking import HARMONY, TAGS, template_arguments, thinking_budget, thought_markers

THINK = TAGS[0]
GEMMA = TAGS[-1]


def split(splitter: ThoughtSplitter, pieces: list[bytes]) -> tuple[str, str]:
    parts = [*map(splitter.push, pieces), splitter.finish()]
    thought, answer = (b"".join(part) for part in zip(*parts, strict=True))
    return thought.decode(), answer.decode()


def cut(text: str, places: list[int]) -> list[bytes]:
    data = text.encode()
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


FINAL = "<|channel|>final<|message|>"
CASES = [
    (THINK, "<think>\nWhy?\n</think>\n\nBecause.", ("Why?", "Because.")),
    (THINK, "  <think>é</think>ü", ("é", "ü")),
    (THINK, "<think></think>yes", ("", "yes")),
    (THINK, "A plain <think>answer</think>", ("", "A plain <think>answer</think>")),
    (THINK, "<thin ice", ("", "<thin ice")),
    (THINK, " indented", ("", " indented")),
    (THINK, "<think>a </thin b", ("a </thin b", "")),
    (THINK, "", ("", "")),
    (HARMONY, f"<|channel|>analysis<|message|>Why?<|end|><|start|>assistant{FINAL}Because.", ("Why?", "Because.")),
    (HARMONY, f"{FINAL}Because.", ("", "Because.")),
    (HARMONY, "Because.", ("", "Because.")),
    (
        HARMONY,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
        f"<|start|>assistant{FINAL}c",
        ("a\nb", "c"),
    ),
]


@pytest.mark.parametrize(("markers", "text", "expected"), CASES)
@given(places=st.lists(st.integers(0, 120), max_size=12))
def test_the_pieces_do_not_matter(markers, text, expected, places) -> None:  # type: ignore[no-untyped-def]
    assert split(ThoughtSplitter(markers), cut(text, places)) == expected


CALL = "<|channel|>commentary to=functions.look json<|message|>{}"


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}",
        " to=functions.look<|channel|>commentary json<|message|>{}",
        "<|start|>assistant to=functions.look<|channel|>commentary<|message|>{}",
    ],
)
@given(places=st.lists(st.integers(0, 120), max_size=12))
def test_a_message_to_a_tool_is_the_answer_where_it_may_call(text: str, places: list[int]) -> None:
    thought = "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant"
    assert split(ThoughtSplitter(HARMONY, calls=True), cut(thought + text.lstrip(), places)) == ("Why?", CALL)
    assert split(ThoughtSplitter(HARMONY, calls=True), cut(text, places)) == ("", CALL)
    assert split(ThoughtSplitter(HARMONY, calls=True), cut("tomorrow", places)) == ("", "tomorrow")


@pytest.mark.parametrize(
    ("markers", "prompt_end", "state"),
    [
        (THINK, "<|im_start|>assistant\n", "start"),
        (THINK, "<|im_start|>assistant\n<think>\n", "thinking"),
        (THINK, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "answering"),
        (GEMMA, "<|turn>model\n", "start"),
        (GEMMA, "<|turn>model\n<|channel>thought\n<channel|>", "answering"),
        (HARMONY, "<|start|>assistant", "start"),
        (HARMONY, f"<|start|>assistant{FINAL}", "answering"),
    ],
)
def test_the_prompt_says_where_it_begins(markers, prompt_end, state) -> None:  # type: ignore[no-untyped-def]
    assert ThoughtSplitter.after_prompt(markers, prompt_end).state == state


def test_the_marks_are_those_of_the_template_or_of_the_vocabulary() -> None:
    assert thought_markers("{{ content.split('</think>')[-1] }}", lambda _: False) is THINK
    assert thought_markers(None, {"<think>", "</think>"}.__contains__) is THINK
    assert thought_markers("{# [THINK]a[/THINK] #}", lambda _: False) is TAGS[1]
    assert thought_markers("{{ content.split('<channel|>')[-1] }}", lambda _: False) is GEMMA
    assert thought_markers("<|channel|>analysis<|message|>", lambda _: False) is HARMONY
    assert thought_markers("<|im_start|>assistant", lambda _: False) is None


def test_a_template_gets_what_it_can_read() -> None:
    qwen, gpt_oss = "{% if enable_thinking %}", "{{ reasoning_effort }}"
    assert template_arguments("auto", qwen) == {}
    assert template_arguments("off", qwen) == {"enable_thinking": False}
    assert template_arguments(0, qwen) == {"enable_thinking": False}
    assert template_arguments(500, qwen) == {"enable_thinking": True}
    assert template_arguments("high", gpt_oss) == {"reasoning_effort": "high"}
    assert template_arguments("on", gpt_oss) == {}
    assert template_arguments("off", gpt_oss) == {"reasoning_effort": "low"}
    assert template_arguments("on", None) == {}


def test_an_effort_is_a_budget_where_the_template_knows_none() -> None:
    assert thinking_budget("low", "{% if enable_thinking %}") == 1024
    assert thinking_budget("low", "{{ reasoning_effort }}") is None
    assert [thinking_budget(one, None) for one in ("auto", "on", "high", "off", 7)] == [None, None, None, 0, 7]


def test_the_room_for_thoughts() -> None:
    assert thinking_room(1000, 100, None, 4) == 896, "all that the answer does not need"
    assert thinking_room(1000, 900, None, 4) == 746, "or three quarters"
    assert thinking_room(1000, 900, 50, 4) == 50
    assert thinking_room(3, 3, None, 4) == 0
