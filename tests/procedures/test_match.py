"""Requests in words that ask for a procedure, and the many that do not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.procedures.library import MAX_WORDS, Library
from orchestrator.procedures.match import find_procedure
from orchestrator.procedures.plan import check_inputs

LIBRARY = Library()


@pytest.mark.parametrize(
    ("request_text", "name", "inputs"),
    [
        ("back up the state", "backup", {}),
        ("Back up the state to /mnt/disk/backups.", "backup", {"folder": "/mnt/disk/backups"}),
        ("please run a backup now", "backup", {}),
        ("remove model small", "remove-model", {"model": "small"}),
        ('Delete the model "old one" and its file', "remove-model", {"model": "old one", "delete_file": True}),
        ("remove-model model=small delete_file=true", "remove-model", {"model": "small", "delete_file": "true"}),
        ("set the residency of small to hot", "set-residency", {"model": "small", "residency": "hot"}),
        ("vacuum runs older than 30 days", "vacuum", {"days": "30"}),
        ("restore the backup 20260101-101010", "restore-backup", {"name": "20260101-101010"}),
        ("rotate the token", "rotate-token", {}),
        ("check the installation", "verify-installation", {}),
        ("add the model /models/x.gguf called x", "add-model", {"file": "/models/x.gguf", "id": "x"}),
        ("download the model qwen3-4b", "get-model", {"source": "qwen3-4b"}),
        ("benchmark model small", "benchmark-model", {"model": "small"}),
    ],
)
def test_an_order_in_words_is_a_procedure_with_its_inputs(request_text: str, name: str, inputs: dict[str, Any]) -> None:
    found = find_procedure(request_text, LIBRARY)
    assert found is not None
    assert (found.procedure, dict(found.inputs)) == (name, inputs)


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "Summarize a, b, c and d, then compare them",
        "Write a script that backs up the state",
        "How do I remove the model small?",
        "Explain how to back up the state to a disk",
        "remove the model",
        "remove the models small and large",
        "Add a model class to the file models.py",
        "Compare the backup of Monday with the one of Tuesday",
        "get the weather in Vienna",
        "Draft a letter that checks the model of the installation",
        "backup " * (MAX_WORDS + 1),
    ],
)
def test_other_requests_are_none(request_text: str) -> None:
    assert find_procedure(request_text, LIBRARY) is None


def test_a_request_about_a_file_of_the_run_is_none() -> None:
    assert find_procedure("get the model report", LIBRARY) is not None
    assert find_procedure("get the model report", LIBRARY, {"report"}) is None


@given(
    st.lists(
        st.sampled_from(
            [
                *"remove delete model backup vacuum get small /x/y 30 days and its file the to hot name=x".split(),
                "model=a",
                '"',
                "=",
                "folder=relative",
            ]
        ),
        max_size=8,
    ).map(" ".join)
)
def test_whatever_is_found_has_inputs_that_the_procedure_accepts(text: str) -> None:
    found = find_procedure(text, LIBRARY)
    if found is not None:
        check_inputs(LIBRARY.procedure(found.procedure), found.inputs)
