"""Secrets are removed from what is shown, and nothing else is."""

from pathlib import Path

import pytest

from orchestrator.service.redaction import HIDDEN, redacted, secrets_of


def test_variables_with_telling_names_and_tokens_are_secrets(tmp_path: Path) -> None:
    environment = {
        "OPENAI_API_KEY": "0123456789",
        "HF_TOKEN": "abcdefghijkl",
        "SHORT_KEY": "abc",
        "KEY_FILE": str(tmp_path),
        "HOME": "/home/somebody",
    }
    assert secrets_of(environment, ["mnopqrstuvwxyz"]) == ("mnopqrstuvwxyz", "abcdefghijkl", "0123456789")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdefgh.ijkl", f"Authorization: Bearer {HIDDEN}"),
        ("http://host/#login=abc-DEF_1", f"http://host/#login={HIDDEN}"),
        ("https://host/v1?api_key=abc&x=1", f"https://host/v1?api_key={HIDDEN}&x=1"),
        ("https://ann:pass@host/v1", f"https://ann:{HIDDEN}@host/v1"),
        ("the key sk-proj-0123456789ab is wrong", f"the key {HIDDEN} is wrong"),
        ("known secret-value, twice: secret-value", f"known {HIDDEN}, twice: {HIDDEN}"),
        ("128 tokens in 3 s, bearer of news: /tmp/a.txt", "128 tokens in 3 s, bearer of news: /tmp/a.txt"),
        ("half a pair: \ud800", "half a pair: ?"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    assert redacted(text, ["secret-value"]) == shown


def test_values_of_all_depths_are_redacted() -> None:
    value = {"event": "x", "facts": [{"error": "secret-value", "count": 3, "none": None}]}
    assert redacted(value, ["secret-value"]) == {"event": "x", "facts": [{"error": HIDDEN, "count": 3, "none": None}]}
