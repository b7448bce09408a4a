import os
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.models import ModelShape, write_jamba, write_mamba
from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf import pieces, read_adapter, read_header
from orchestrator.registry.gguf_reader import FILE_TYPES, TENSOR_TYPES
from tests.registry.conftest import WriteGguf, write_adapter


def test_reads_what_the_gguf_package_wrote(tmp_path: Path, write_gguf: WriteGguf) -> None:
    path = write_gguf(tmp_path / "model.gguf", context=4096, layers=3, embedding=64, heads=8, kv_heads=2)
    header = read_header(path)
    assert header.architecture == "llama"
    assert header.name == "a test model"
    assert header.file_type == "F32"
    assert (header.context_length, header.layers, header.embedding, header.heads) == (4096, 3, 64, 8)
    assert header.kv_heads == (2, 2, 2)
    assert (header.key_length, header.value_length, header.feed_forward) == (8, 8, 192)
    assert header.vocab_size == 96
    assert header.parameters == 96 * 64 + 64
    assert header.weight_bytes == 4 * header.parameters
    assert header.file_bytes == path.stat().st_size
    assert header.chat_template == "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert (header.experts, header.experts_used, header.state_bytes) == (0, 0, 0)


def test_weights_are_counted_as_they_are_stored(tmp_path: Path, write_gguf: WriteGguf) -> None:
    header = read_header(write_gguf(tmp_path / "model.gguf", quantised=True))
    assert header.file_type == "Q8_0"
    assert header.parameters == 96 * 64 + 64
    assert header.weight_bytes == 96 * 64 * 34 // 32 + 64 * 4


def test_a_layer_may_have_its_own_number_of_heads(tmp_path: Path, write_gguf: WriteGguf) -> None:
    header = read_header(write_gguf(tmp_path / "model.gguf", architecture="jamba", layers=4, kv_heads=[0, 2, 0, 2]))
    assert header.kv_heads == (0, 2, 0, 2)


@pytest.mark.parametrize(("write", "layers"), [(write_mamba, 4), (write_jamba, 2)])
def test_layers_without_attention_have_states(tmp_path: Path, write: Callable[..., Path], layers: int) -> None:
    header = read_header(write(tmp_path / "model.gguf", ModelShape(layers=4)))
    # In F32 a convolution over four tokens, and eight numbers a channel.
    assert header.state_bytes == layers * 4 * (3 * 128 + 8 * 128)


def test_heads_for_another_number_of_layers_are_refused(tmp_path: Path, write_gguf: WriteGguf) -> None:
    path = write_gguf(tmp_path / "model.gguf", layers=4, kv_heads=[2, 2])
    with pytest.raises(GgufError, match="has 2 items, but the model has 4 layers"):
        read_header(path)


def test_vocabularies_are_distinguished(tmp_path: Path, write_gguf: WriteGguf) -> None:
    digests = [
        read_header(write_gguf(tmp_path / f"{number}.gguf", tokens=tokens)).vocab_digest
        for number, tokens in enumerate((["a", "bc"], ["a", "bc"], ["ab", "c"], ["bc", "a"]))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_long_arrays_and_long_strings_are_walked(tmp_path: Path, write_gguf: WriteGguf) -> None:
    tokens = [f"token-{number}" for number in range(300_000)]
    tokens[1000] = "x" * 3_000_000  # longer than what is read at a time
    path = write_gguf(tmp_path / "model.gguf", tokens=tokens, embedding=4, heads=2)
    header = read_header(path)
    assert header.vocab_size == 300_000
    assert header.chat_template is not None  # which is written after the tokens


def test_tables_agree_with_the_gguf_package() -> None:
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        assert TENSOR_TYPES[kind.value] == (kind.name, *sizes)
    for kind in gguf.LlamaFileType:
        if kind.name not in ("GUESSED",):
            assert FILE_TYPES[kind.value] == kind.name.removeprefix("MOSTLY_").removeprefix("ALL_")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"GG", "is not a GGUF file"),
        (b"<html>not found</html>", "is not a GGUF file: it begins with b'<htm'"),
        (b"GGUF", "is truncated: it ends at byte 4, in the version"),
        (b"GGUF" + struct.pack("<I", 1), "has GGUF version 1; little-endian versions 2 and 3"),
        (b"GGUF" + struct.pack(">I", 3), "is big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "says that it has 1,152,921,504,606,846,976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "key-values, with 0 bytes left: corrupt or truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + b"x" * 99, "the length of|a key is"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1) + b"x" * 99, "cannot be nested"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77) + b"x" * 99, "k has the unknown type 77"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "general.architecture is missing"),
    ],
)
def test_a_bad_file_is_reported_by_what_is_wrong(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError, match=reason) as caught:
        read_header(path)
    assert caught.value.path == path
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("absent", "No such file"), (".", "cannot be read|not a regular"), ("pipe", "not a regular")):
        with pytest.raises(GgufError, match=reason):
            read_header(tmp_path / name)


def test_tensors_that_overlap_are_refused(tmp_path: Path, write_gguf: WriteGguf) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    content = path.read_bytes()
    at = content.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8 + 4
    path.write_bytes(content[:at] + struct.pack("<Q", 0) + content[at + 8 :])
    with pytest.raises(GgufError, match=r"output_norm.weight lies at 0, and should at 24,576"):
        read_header(path)


@pytest.mark.parametrize("missing", [300, 20_000])
def test_a_truncated_file_is_refused(tmp_path: Path, write_gguf: WriteGguf, missing: int) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    content = path.read_bytes()
    path.write_bytes(content[:-missing])
    with pytest.raises(GgufError, match="is truncated: tensor"):
        read_header(path)


def test_every_prefix_of_a_header_is_refused(tmp_path: Path, write_gguf: WriteGguf) -> None:
    path = write_gguf(tmp_path / "model.gguf", tokens=["a", "b"], embedding=4, heads=2)
    content = path.read_bytes()
    for length in range(len(content) - 32, -1, -7):  # what comes last is padding
        os.truncate(path, length)
        with pytest.raises(GgufError):
            read_header(path)


def test_a_file_of_settings_only_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "vocab.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(GgufError, match="holds no tensors"):
        read_header(tmp_path / "vocab.gguf")


@pytest.mark.parametrize("key", ["llama.block_count", "llama.context_length", "llama.embedding_length"])
@pytest.mark.parametrize("value", [-1, 1 << 62, 1.5, "many", True, [1, 2]])
def test_absurd_sizes_are_refused(tmp_path: Path, write_gguf: WriteGguf, key: str, value: object) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    sizes: dict[str, object] = {"block_count": 1, "context_length": 64, "embedding_length": 4}
    sizes[key.removeprefix("llama.")] = value
    for name, number in sizes.items():
        full = f"llama.{name}"
        match number:
            case bool():
                writer.add_bool(full, number)
            case int():
                writer.add_int64(full, number)
            case float():
                writer.add_float32(full, number)
            case str():
                writer.add_string(full, number)
            case list():
                writer.add_array(full, number)
    writer.add_token_list(["a"])
    writer.add_tensor("x", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(GgufError, match=f"{key} is .*accepted: a whole number"):
        read_header(tmp_path / "model.gguf")


def test_a_split_model_is_counted_whole(tmp_path: Path) -> None:
    for number in (1, 2):
        _write_piece(tmp_path / f"big-0000{number}-of-00002.gguf", number, 2)
    first = tmp_path / "big-00001-of-00002.gguf"
    header = read_header(first)
    assert header.parameters == 4 + 8
    assert header.file_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    with pytest.raises(GgufError, match="is piece 2 of 2; accepted: the first one"):
        read_header(tmp_path / "big-00002-of-00002.gguf")
    renamed = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(GgufError, match="is one of 2 pieces"):
        read_header(renamed)
    renamed.rename(first)
    (tmp_path / "big-00002-of-00002.gguf").unlink()
    with pytest.raises(GgufError, match=r"is split into 2 files, and big-00002-of-00002\.gguf is not next to it"):
        read_header(first)


def test_the_pieces_of_a_model_are_known_by_the_name_of_the_first(tmp_path: Path) -> None:
    names = [f"big-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    assert [piece.name for piece in pieces(tmp_path / names[0])] == names
    for alone in (names[1], "big.gguf", "big-00001-of-00000.gguf"):
        assert pieces(tmp_path / alone) == (tmp_path / alone,)


def test_models_for_embeddings_say_how_they_pool(tmp_path: Path, write_gguf: WriteGguf) -> None:
    kinds = {None: None, 0: None, 1: "mean", 2: "cls", 3: "last", 4: "rank"}
    for kind, told in kinds.items():
        assert read_header(write_gguf(tmp_path / "model.gguf", pooling=kind)).pooling == told


def test_an_adapter_is_no_model_and_a_model_no_adapter(tmp_path: Path, write_gguf: WriteGguf) -> None:
    model, adapter = write_gguf(tmp_path / "model.gguf"), write_adapter(tmp_path / "adapter.gguf")
    header = read_header(model)
    assert read_adapter(adapter, header) == 2 * 4 * 8 * 4
    with pytest.raises(GgufError, match="holds no model, but one of type 'adapter'"):
        read_header(adapter)
    with pytest.raises(GgufError, match=r"is no LoRA adapter: its general.type is 'model', its adapter.type 'none'"):
        read_adapter(model, header)
    with pytest.raises(GgufError, match=r"its adapter.type 'magic'"):
        read_adapter(write_adapter(adapter, way="magic"), header)
    with pytest.raises(GgufError, match="is an adapter for 'qwen2', and the model is 'llama'"):
        read_adapter(write_adapter(adapter, architecture="qwen2"), header)


def _write_piece(path: Path, number: int, count: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.no", number - 1)
    writer.add_uint16("split.count", count)
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_embedding_length(4)
    writer.add_token_list(["a"])
    writer.add_tensor(f"part{number}", np.zeros(4 * number, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="session")
def good_bytes(tmp_path_factory: pytest.TempPathFactory, write_gguf: WriteGguf) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path, tokens=["a", "b", "cd"], embedding=4, heads=2, layers=2, kv_heads=[1, 2], experts=4)
    read_header(path)
    return path.read_bytes()


def test_of_a_mixture_only_the_experts_that_are_used_are_active(tmp_path: Path, write_gguf: WriteGguf) -> None:
    dense = read_header(write_gguf(tmp_path / "dense.gguf", embedding=64))
    assert dense.active_parameters == dense.parameters
    mixture = read_header(write_gguf(tmp_path / "mixture.gguf", embedding=64, experts=8))
    assert mixture.parameters == dense.parameters + 8 * 64
    assert mixture.active_parameters == dense.parameters + 2 * 64


EXTREMES = [0, 1, 2, 8, 9, 127, 255, 2**16, 2**31 - 1, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
MUTATIONS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.one_of(
            st.binary(min_size=1, max_size=12),
            st.sampled_from([struct.pack("<Q", number) for number in EXTREMES]),
            st.sampled_from([struct.pack("<I", number & 0xFFFFFFFF) for number in EXTREMES]),
        ),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(mutations=MUTATIONS, keep=st.floats(0.2, 1))
def test_a_mutated_file_never_gives_anything_but_gguf_error(
    tmp_path: Path, good_bytes: bytes, mutations: list[tuple[float, bytes, bool]], keep: float
) -> None:
    content = bytearray(good_bytes)
    for where, piece, inserts in mutations:
        at = int(where * len(content))
        content[at : at if inserts else at + len(piece)] = piece
    if keep < 0.9:
        del content[int(keep * len(content)) :]
    path = tmp_path / "mutated.gguf"
    path.write_bytes(content)
    try:
        header = read_header(path)
    except GgufError as error:
        assert error.reason  # noqa: PT017 (a file that survives its mutation is fine, too)
    else:
        assert header.layers == len(header.kv_heads)
        assert header.weight_bytes <= path.stat().st_size
