"""Render chat messages into token ids exactly as the chat template in the GGUF files does."""

from collections.abc import Sequence

from benchmarks.tiny.tokenizer import BEGIN, END, SPECIAL_TOKENS, Tokenizer
from orchestrator.engine.contract import Message

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def encode_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Return the ids of `messages` up to where the answer begins. No content is encoded as a special token."""
    ids = [BEGIN]
    for message in messages:
        ids += [SPECIAL_TOKENS.index(f"<|{message.role}|>"), *tokenizer.encode(message.content), END]
    return [*ids, SPECIAL_TOKENS.index("<|assistant|>")]


def encode_answer(tokenizer: Tokenizer, answer: str) -> list[int]:
    """Return the ids of `answer` with the token that ends it."""
    return [*tokenizer.encode(answer), END]
