"""What was measured of models: kept beside them, and read again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.measured import FILE, MeasuredShares, model_file, read_measured, write_measured

SHARES = st.floats(0, 1)
CONTEXTS = st.none() | st.sampled_from(["own", "sources", "shared"])
MEASURED = st.builds(MeasuredShares, plans=SHARES, answers=SHARES, step_context=CONTEXTS)


@given(rows=st.dictionaries(st.tuples(st.text(), st.integers(0)), MEASURED))
def test_what_was_measured_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[tuple[str, int], MeasuredShares]
) -> None:
    folder = tmp_path_factory.mktemp("models")
    for file, measured in rows.items():
        write_measured(folder, file, measured)
    assert read_measured(folder) == rows
    assert {path.name for path in folder.iterdir()} <= {FILE}


def test_a_later_measurement_of_a_file_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    file, link = tmp_path / "one.gguf", tmp_path / "link.gguf"
    link.symlink_to(file)
    write_measured(tmp_path, model_file(file, 5), MeasuredShares(plans=0.5, answers=0.5))
    write_measured(tmp_path, model_file(link, 5), MeasuredShares(plans=1.0, answers=0.0, code=0.25))
    assert read_measured(tmp_path) == {(str(file), 5): MeasuredShares(plans=1.0, answers=0.0, code=0.25)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"file": "a"}',
        '[{"file": "a", "bytes": 1}]',
        '[{"file": "a", "bytes": 1, "plans": 2, "answers": 0, "code": null}]',
        '[{"file": "a", "bytes": 1, "plans": null, "answers": 0, "code": null}]',
        '[{"file": "a", "bytes": 1, "plans": 1, "answers": 0, "code": null, "step_context": "all"}]',
    ],
)
def test_a_damaged_file_says_nothing_and_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    assert read_measured(tmp_path) == {}
    write_measured(tmp_path, ("b", 1), MeasuredShares(plans=0.0, answers=1.0))
    assert read_measured(tmp_path) == {("b", 1): MeasuredShares(plans=0.0, answers=1.0)}
