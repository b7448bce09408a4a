"""KV cells of a prompt move from an engine to one on another machine, in a file that the first writes on request."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, PrefixFile
from orchestrator.engine.kv.prefix_value import LEAST_TOKENS
from tests.orchestrator.engine.test_stored_prefixes import PERSONA, SYSTEM, ask, spec_of

DOCUMENT = PERSONA * 2
LAYOUTS = [{"batch_invariant": True}, {"batch_invariant": False, "split": False, "flash_attention": "on"}]


def copied(spec: EngineSpec, folder: Path, more: bytes = b"") -> EngineSpec:
    """Return `spec` for another machine: with its own copy of the model, of another time, and its own folder.

    What follows the tensors of the model, as `more` does, is not read.
    """
    folder.mkdir()
    file, content = folder / "copy.gguf", Path(spec.file).read_bytes() + more
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return replace(spec, file=str(file), prefixes=str(folder / "prefixes"), digests={str(file): digest})


@asynccontextmanager
async def two_engines(models: Path, folder: Path, **options: Any) -> AsyncIterator[tuple[Engine, Engine]]:
    spec = spec_of(models, folder, **{"stores_all": False, "context": 2048, **options})
    async with await Engine.start(copied(spec, folder / "a")) as first:
        async with await Engine.start(copied(spec, folder / "b")) as second:
            yield first, second


def carry(file: PrefixFile, source: Engine, target: Engine) -> None:
    """Do what a cluster does, and check what it relies on."""
    assert source.spec.prefixes is not None
    assert target.spec.prefixes is not None
    path = Path(source.spec.prefixes) / file.name
    content = path.read_bytes()
    assert (len(content), content[-32:].hex()) == (file.bytes, file.digest)
    assert hashlib.sha256(content[:-32]).hexdigest() == file.digest
    Path(target.spec.prefixes).mkdir(exist_ok=True)
    shutil.copyfile(path, Path(target.spec.prefixes) / file.name)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_another_engine_continues_a_prompt_while_the_first_is_still_answering(
    models: Path, tmp_path: Path, layout: dict[str, object]
) -> None:
    async with two_engines(models, tmp_path, **layout) as (first, second):
        begun = asyncio.Event()
        long = replace(ask(DOCUMENT, "tell me all", max_tokens=600), ignore_end=True)
        running = asyncio.create_task(first.generate(long, lambda _: begun.set()))
        await begun.wait()
        request = ask(DOCUMENT, "and now for something else")
        held = await second.locate(request)
        assert held.key
        assert held.tokens == 0
        file = await first.export(request, held.key, LEAST_TOKENS)
        assert not running.done()
        assert file is not None
        assert file.tokens >= LEAST_TOKENS
        carry(file, first, second)
        assert (await second.locate(request)).tokens == file.tokens
        restored = await second.generate(request)
        assert restored.usage.cached_tokens == file.tokens
        running.cancel()
    if layout["batch_invariant"]:
        async with await Engine.start(spec_of(models, tmp_path, prefixes=None, context=2048)) as alone:
            assert (await alone.generate(request)).text == restored.text


async def test_what_is_on_disk_is_not_written_again(models: Path, tmp_path: Path) -> None:
    async with two_engines(models, tmp_path) as (first, second):
        request = ask(DOCUMENT)
        await first.generate(request)
        key = (await second.locate(request)).key
        file = await first.export(request, key, LEAST_TOKENS)
        assert file is not None
        assert first.spec.prefixes is not None
        path = Path(first.spec.prefixes) / file.name
        before = path.stat().st_ino
        assert await first.export(request, key, LEAST_TOKENS) == file
        assert path.stat().st_ino == before


async def test_there_is_no_file_of_what_another_engine_cannot_use(models: Path, tmp_path: Path) -> None:
    async with two_engines(models, tmp_path) as (first, second):
        request = ask(DOCUMENT)
        key = (await second.locate(request)).key
        assert await first.export(request, key, LEAST_TOKENS) is None  # it has computed nothing yet
        await first.generate(request)
        assert await first.export(request, "0" * 32, LEAST_TOKENS) is None
        assert await first.export(request, key, 2000) is None
        assert await first.export(ask(SYSTEM + "other"), key, LEAST_TOKENS) is None


async def test_models_of_other_content_have_other_keys(models: Path, tmp_path: Path) -> None:
    spec = spec_of(models, tmp_path)
    keys = []
    for number, content in enumerate((b"", b"", b"x")):
        async with await Engine.start(copied(spec, tmp_path / str(number), content)) as engine:
            keys.append((await engine.locate(ask(DOCUMENT))).key)
    assert keys[0] == keys[1] != keys[2]


async def test_an_engine_without_a_folder_has_no_key(models: Path, tmp_path: Path) -> None:
    async with await Engine.start(spec_of(models, tmp_path, prefixes=None)) as engine:
        await engine.generate(ask(DOCUMENT))
        held = await engine.locate(ask(DOCUMENT))
        assert (held.key, held.tokens) == ("", 0)
        assert await engine.export(ask(DOCUMENT), "", LEAST_TOKENS) is None


async def test_a_recurrent_state_moves_as_a_whole(recurrent_models: Path, tmp_path: Path) -> None:
    own = {"file": str(recurrent_models / "mamba.gguf"), "batch_invariant": False, "context": 1024}
    async with two_engines(recurrent_models, tmp_path, **own) as (first, second):
        await first.generate(ask(DOCUMENT, "tell me all " * 20))
        request = ask(DOCUMENT, "and now for something else " * 10)
        held = await second.locate(request)
        file = await first.export(request, held.key, LEAST_TOKENS)
        assert file is not None
        carry(file, first, second)
        restored = await second.generate(request)
        assert restored.usage.cached_tokens == file.tokens
        assert restored.text == (await first.generate(request)).text
