from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry.errors import RegistryError
from orchestrator.registry.strict_yaml import MAX_BYTES, parse_file, parse_text

FILE = Path("some.yaml")


def test_lines_are_kept() -> None:
    document = parse_text(b"models:\n  a:\n    file: x\nroles:\n  - one\n  - two\n", FILE)
    assert document.data == {"models": {"a": {"file": "x"}}, "roles": ["one", "two"]}
    assert document.lines[("models", "a", "file")] == 3
    assert document.lines[("roles", 1)] == 6
    assert str(document.problem(("models", "a", "slots"), "is bad", "good")) == (
        "some.yaml:2: models.a.slots: is bad; accepted: good"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", r"some.yaml:4: b.c: the key is given twice \(first on line 3\)"),
        (b"a: &x [1]\nb: *x\n", "some.yaml:2: anchors and aliases are not accepted"),
        (b"a: !!python/object/apply:os.system [true]\n", "some.yaml:1: the tag .*os.system is not accepted"),
        (b"a: !!bool maybe\n", "the tag .*bool is not accepted"),
        (b"a: [1\n", "some.yaml:2: .*expected ',' or ']'"),
        (b"a: 2020-99-99\n", "month must be in"),
        (b"[" * 5000, "nested too deeply"),
        (b"? [1]\n: 2\n", "a key must be a name"),
        (b"a: \xff\n", "byte 3 is not UTF-8"),
        (b"a: 1\n---\nb: 2\n", "expected a single document"),
        (b'a:\n  b: "\\ud800"', "2: a.b: holds half of a surrogate pair"),
    ],
)
def test_what_is_not_strict_is_refused_at_its_line(text: bytes, message: str) -> None:
    with pytest.raises(RegistryError, match=message):
        parse_text(text, FILE)


def test_missing_and_large_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"absent\.yaml: cannot be read: No such file"):
        parse_file(tmp_path / "absent.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(RegistryError, match="too large; accepted: at most 1,048,576 bytes"):
        parse_file(large)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef_", min_size=1), inner, max_size=4),
    max_leaves=15,
)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@given(PLAIN)
def test_plain_documents_are_read_as_pyyaml_reads_them(data: object) -> None:
    text = yaml.dump(data, Dumper=_NoAliases, allow_unicode=True).encode()
    assert parse_text(text, FILE).data == yaml.safe_load(text)


FRAGMENTS = st.sampled_from(
    ["a: ", "- ", "\n", "  ", "&x", "*x", "!!int ", "<<: ", "? ", "| ", "'", '"', "{", "]", "0x_"]
)


@given(st.lists(FRAGMENTS | st.text(max_size=6) | st.dates().map(str), max_size=12).map("".join))
def test_no_text_gives_anything_but_registry_error(text: str) -> None:
    try:
        document = parse_text(text.encode(errors="surrogatepass"), FILE)
    except RegistryError as error:
        assert len(error.problems) == 1  # noqa: PT017 (a text that happens to be YAML is fine, too)
    else:
        assert all(line >= 1 for line in document.lines.values())
