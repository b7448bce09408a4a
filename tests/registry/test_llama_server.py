"""What is taken from llama-swap's configuration and llama-server's presets, and the reasons for what is not."""

from pathlib import Path

import pytest

from orchestrator.registry.errors import RegistryError
from orchestrator.registry.llama_server import ServedModel, Servers
from orchestrator.registry.server_files import read_servers, usable_aliases, usable_id

SWAP = """\
healthCheckTimeout: 90
macros:
  server: >
    /opt/llama/llama-server --port ${PORT}
    --threads ${cores}
  cores: 6
models:
  "qwen:8b":
    name: A Qwen
    cmd: |
      ${server}
      # a comment of its own
      --model models/qwen.gguf -c 32768 -np 4 \\
      -ctk q8_0 --cache-type-v q8_0 -fa on
      -md models/small.gguf --draft-max 12 --draft-min 2
      -ngl 99 --temp 0.7 --repeat-penalty 1.1 --mlock --no-mmap --jinja
    aliases: [gpt-4o, "a b"]
    ttl: 300
    env: [CUDA_VISIBLE_DEVICES=0]
  auto:
    cmd: llama-server -m /abs/auto.gguf -c 8192 --lora one.gguf --lora-scaled two.gguf 0.5
  other:
    cmd: docker run --rm vllm --model x
  bad:
    cmd: llama-server --model ${undefined}/x.gguf
  vectors:
    cmd: llama-server -m e.gguf --embeddings --override-kv qwen3moe.expert_used_count=int:4
hooks: {on_startup: {preload: [auto]}}
groups: {a: {members: [auto]}}
"""
PRESETS = """\
version = 1

[*]
t = 8
; for all
ctx-size = 4096

[mine]
model = m.gguf
LLAMA_ARG_N_PARALLEL = 2
mlock = true
no-mmap = false
alias = one,two
load-on-startup = 1

[owner/Some-GGUF:Q8_0]
c = 1024
hf-file = some-q8_0.gguf

[nothing]
top-k = 3
"""


def read(tmp_path: Path, text: str, name: str = "config.yaml") -> Servers:
    (tmp_path / name).write_text(text)
    return read_servers(tmp_path / name)


def by_id(servers: Servers) -> dict[str, ServedModel]:
    return {model.id: model for model in servers.models}


def test_a_command_of_llama_swap_becomes_an_entry(tmp_path: Path) -> None:
    models = by_id(read(tmp_path, SWAP))
    assert list(models) == ["qwen:8b", "auto", "vectors"]
    qwen = models["qwen:8b"]
    assert (qwen.file, qwen.draft, qwen.draft_tokens) == (
        tmp_path / "models/qwen.gguf",
        tmp_path / "models/small.gguf",
        12,
    )
    assert qwen.options == {
        "threads": 6,
        "kv_type_k": "q8_0",
        "kv_type_v": "q8_0",
        "flash_attention": "on",
        "mlock": True,
        "mmap": False,
        "slots": 4,
        "context": 8192,
        "description": "A Qwen",
    }
    assert (qwen.idle_seconds, qwen.aliases, qwen.hot) == (300.0, ["gpt-4o", "a b"], False)


def test_slots_that_share_a_cache_may_each_have_all_of_it(tmp_path: Path) -> None:
    auto = by_id(read(tmp_path, SWAP))["auto"]
    assert (auto.options["slots"], auto.options["context"], auto.options["cells"]) == (4, 8192, 8192)
    assert auto.options["lora"] == [
        {"file": str(tmp_path / "one.gguf")},
        {"file": str(tmp_path / "two.gguf"), "scale": 0.5},
    ]
    assert auto.hot
    assert auto.file == Path("/abs/auto.gguf")


def test_a_model_that_embeds_and_a_mixture_are_known(tmp_path: Path) -> None:
    vectors = by_id(read(tmp_path, SWAP))["vectors"]
    assert (vectors.embeds, vectors.options["experts"]) == (True, 4)
    assert "context" not in vectors.options, "as long as the model was trained for"


@pytest.mark.parametrize(
    "told",
    [
        "models.qwen:8b: gpu-layers 99: models run on the CPU here",
        "models.qwen:8b: temp 0.7: belongs to a role (temperature, top_p, max_tokens) or to the request",
        "models.qwen:8b: repeat-penalty 1.1: belongs into `sampling:` of the model or of a role, with `_` for `-`",
        "models.qwen:8b: draft-min 2: how many tokens are drafted is decided by what pays; only the most of them "
        "(draft-max) is taken",
        "models.qwen:8b: jinja: is always so here",
        "models.qwen:8b: env: engines get the environment of the daemon",
        "models.other: runs docker and not llama-server: it is another server: an entry with `backend: openai` and its "
        "address can use it",
        "models.bad: model ${undefined}/x.gguf: a macro in it is not defined",
        "models.bad: is not taken: it names no model",
        "groups: is not taken: which models are loaded together is decided by the memory that there is",
    ],
)
def test_what_is_not_taken_is_named_with_the_reason(tmp_path: Path, told: str) -> None:
    assert told in [str(one) for one in read(tmp_path, SWAP).not_taken]


def test_a_preset_file_becomes_entries(tmp_path: Path) -> None:
    servers = read(tmp_path, PRESETS, "presets.ini")
    models = by_id(servers)
    mine, hub = models["mine"], models["owner/Some-GGUF:Q8_0"]
    assert mine.file == tmp_path / "m.gguf"
    assert mine.options == {"threads": 8, "mlock": True, "slots": 2, "context": 2048}
    assert (mine.aliases, mine.hot) == (["one", "two"], True)
    assert hub.hub == "hf:owner/Some-GGUF/some-q8_0.gguf"
    assert hub.options["context"] == 1024
    assert [str(one) for one in servers.not_taken][-2:] == [
        "[nothing]: top-k 3: belongs into `sampling:` of the model or of a role, with `_` for `-`",
        "[nothing]: is not taken: it names no model",
    ]


ODD_PRESETS = """\
[alone]
model = m.gguf
draft-max = 12

[ngram]
model = m.gguf
spec-type = draft-simple,ngram-simple
spec-draft-n-max = 12
spec-ngram-simple-size-n = 5

[new-names]
model = m.gguf
mmap = off
jinja = 0
load-mode = mmap+mlock
LLAMA_ARG_SPEC_DRAFT_MODEL = d.gguf
spec-draft-n-max = 7
spec-draft-n-min = 2
reasoning-budget = 0
ui-config = {}
parallel = 5000
ctx-size = 999999999999

[url]
model-url = https://example.org/x.gguf

[file]
hf-file = x.gguf

[eagle]
model = m.gguf
spec-type = draft-eagle3
"""


def test_the_names_that_llama_server_has_now_are_known(tmp_path: Path) -> None:
    models = by_id(read(tmp_path, ODD_PRESETS, "presets.ini"))
    assert (models["ngram"].lookup, models["ngram"].draft_tokens) == (True, 12)
    new = models["new-names"]
    assert (new.draft, new.draft_tokens) == (tmp_path / "d.gguf", 7)
    assert new.options == {"mmap": False, "mlock": True, "slots": 128, "context": 1 << 20}


@pytest.mark.parametrize(
    "told",
    [
        "[alone]: draft-max 12: nothing drafts: there is no draft model (model-draft), and spec-type names no ngram",
        "[ngram]: spec-ngram-simple-size-n 5: how many tokens have to match, and how many follow, is `prompt_lookup: "
        "{ngram: N, k: N}` of the model",
        "[new-names]: no-jinja 0: chat templates are always rendered as they are",
        "[new-names]: draft-min 2: how many tokens are drafted is decided by what pays; only the most of them "
        "(draft-max) is taken",
        "[new-names]: parallel 5000: 128 slots are the most, and taken",
        "[new-names]: ctx-size 999999999999: 1,048,576 tokens a slot are the most, and taken",
        "[url]: model-url https://example.org/x.gguf: `orchestrator models get URL` downloads it, and `models add "
        "FILE` adds it",
        "[file]: hf-file x.gguf: names a file of a repository (hf-repo), and there is none",
        "[eagle]: spec-type draft-eagle3: draft-eagle3 is not there: a draft model drafts, or the text itself (ngram)",
    ],
)
def test_nothing_is_left_out_in_silence(tmp_path: Path, told: str) -> None:
    assert told in [str(one) for one in read(tmp_path, ODD_PRESETS, "presets.ini").not_taken]


def test_names_become_ids_and_stay_as_aliases(tmp_path: Path) -> None:
    qwen = by_id(read(tmp_path, SWAP))["qwen:8b"]
    assert (usable_id("qwen:8b"), usable_id("a/b c"), usable_id("ok-1.5"), usable_id("/")) == (
        "qwen-8b",
        "b-c",
        "ok-1.5",
        "model",
    )
    names, refused = usable_aliases(qwen, "qwen-8b")
    assert names == ["qwen:8b", "gpt-4o"]
    assert "alias 'a b': letters, digits" in str(refused[0])


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("models: {}\n", "config.yaml", "has no models"),
        ("- 1\n", "config.yaml", "has no models"),
        ("models: [\n", "config.yaml", "is no YAML"),
        ("[a\n", "presets.ini", "File contains no section headers|has no sections"),
        ("", "presets.ini", "has no sections"),
        ("[a]\nx = 1\nx = 2\n", "presets.ini", "option 'x' in section 'a' already exists"),
    ],
)
def test_a_file_that_is_neither_is_refused(tmp_path: Path, text: str, name: str, told: str) -> None:
    with pytest.raises(RegistryError, match=told):
        read(tmp_path, text, name)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot be read: No such file"):
        read_servers(tmp_path / "none.yaml")
