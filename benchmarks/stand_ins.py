"""Write files with the metadata of the catalogue's models, and next to no weights.

`orchestrator init` decides by the header of a model's file, so a stand-in shows what it makes of a model that is not on
this machine. The keys are those that llama.cpp reads for the architecture, and the values those that public documents
state. Chat templates are reduced to what the registry reads of them: how a turn, a thought and a switch are written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import gguf
import numpy as np

from benchmarks.models import Value, add_value, finish
from orchestrator.registry.gguf import GgufHeader, read_header

B: Final = 10**9

_TURNS: Final = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
# A thought is open unless it is switched off, and then an empty one is closed.
CHATML: Final = (
    _TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    "{% endif %}"
)
PLAIN: Final = _TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
ALWAYS: Final = _TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
# Whether it thinks is up to the model.
LFM: Final = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA: Final = (
    "{% if enable_thinking %}<|turn>system\n<|think|><turn|>\n{% endif %}"
    "{% for m in messages %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<turn|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn>model\n"
    "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}{% endif %}"
)
GLM: Final = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n"
    "{% if enable_thinking is defined and not enable_thinking %}</think>{% else %}<think>{% endif %}{% endif %}"
)
DEEPSEEK: Final = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>"
    "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>{{ '<think>' if thinking else '</think>' }}{% endif %}"
)
HARMONY: Final = (
    "<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}\n"
    "# Valid channels: analysis, commentary, final.<|end|>"
    "{% for m in messages %}<|start|>{{ m.role }}{{ '<|channel|>final' if m.role == 'assistant' }}<|message|>"
    "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """What is known of a model's file. The keys of `metadata` are without the name of the architecture."""

    architecture: str
    vocabulary: tuple[str, int]  # a name for it, and the number of tokens
    parameters: int
    active: int | None = None  # parameters that compute a token; None for all
    template: str
    metadata: Mapping[str, Value]


def _attention(layers: int, width: int, heads: int, kv_heads: Value, head: tuple[int, int]) -> dict[str, Value]:
    return {
        "block_count": layers,
        "embedding_length": width,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head[0],
        "attention.value_length": head[1],
    }


def _experts(count: int, used: int, width: int) -> dict[str, Value]:
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width}


def _delta_net(inner: int) -> dict[str, Value]:
    return {
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": inner // 128,
        "ssm.inner_size": inner,
    }


def _windows(layers: int, window: int) -> dict[str, Value]:
    return {
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": [layer % 6 != 5 for layer in range(layers)],
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
    }


def _qwen_27b() -> StandIn:
    # One of the 65 blocks is the MTP head.
    shape = _attention(65, 5120, 24, 4, (256, 256)) | _delta_net(6144)
    return StandIn(
        architecture="qwen35",
        vocabulary=("qwen35", 248_320),
        parameters=27 * B,
        template=CHATML,
        metadata=shape | {"context_length": 262_144, "feed_forward_length": 17_408, "nextn_predict_layers": 1},
    )


def _qwen_moe(layers: int, width: int, heads: int, inner: int, expert: int, parameters: int, active: int) -> StandIn:
    shape = _attention(layers, width, heads, 2, (256, 256)) | _delta_net(inner) | _experts(256, 8, expert)
    return StandIn(
        architecture="qwen35moe",
        vocabulary=("qwen35", 248_320),
        parameters=parameters,
        active=active,
        template=CHATML,
        metadata=shape | {"context_length": 262_144},
    )


def _qwen_coder(layers: int, width: int, heads: int, feed_forward: int, parameters: int) -> StandIn:
    shape = _attention(layers, width, heads, 2, (width // heads, width // heads))
    return StandIn(
        architecture="qwen2",
        vocabulary=("qwen2", 151_936),
        parameters=parameters,
        template=PLAIN,
        metadata=shape | {"context_length": 32_768, "feed_forward_length": feed_forward},
    )


def _gemma(
    layers: int, width: int, heads: int, kv_heads: tuple[int, int], feed_forward: int, parameters: int
) -> StandIn:
    per_layer = [kv_heads[layer % 6 == 5] for layer in range(layers)]
    shape = _attention(layers, width, heads, per_layer, (512, 512)) | _windows(layers, 1024)
    return StandIn(
        architecture="gemma4",
        vocabulary=("gemma4", 262_144),
        parameters=parameters,
        template=GEMMA,
        metadata=shape | {"context_length": 262_144, "feed_forward_length": feed_forward},
    )


def _gpt_oss(layers: int, experts: int, parameters: int, active: int) -> StandIn:
    shape = _attention(layers, 2880, 64, 8, (64, 64)) | _experts(experts, 4, 2880)
    return StandIn(
        architecture="gpt-oss",
        vocabulary=("gpt-oss", 201_088),
        parameters=parameters,
        active=active,
        template=HARMONY,
        metadata=shape | {"context_length": 131_072, "attention.sliding_window": 128},
    )


def _nemotron() -> StandIn:
    # Blocks are recurrent (M), experts (E) or attention (*).
    blocks = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    kv_heads, experts = [2 * (block == "*") for block in blocks], [1856 * (block == "E") for block in blocks]
    shape = _attention(len(blocks), 2688, 32, kv_heads, (128, 128)) | _experts(128, 6, 1856)
    state = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 8, "ssm.inner_size": 4096}
    return StandIn(
        architecture="nemotron_h_moe",
        vocabulary=("nemotron", 131_072),
        parameters=31_600_000_000,
        active=3_600_000_000,
        template=CHATML,
        metadata=shape | state | {"context_length": 1_048_576, "feed_forward_length": experts},
    )


def _lfm() -> StandIn:
    attends = (2, 6, 10, 14, 18, 21)
    shape = _attention(24, 2048, 32, [8 * (layer in attends) for layer in range(24)], (64, 64)) | _experts(32, 4, 1792)
    return StandIn(
        architecture="lfm2moe",
        vocabulary=("lfm25", 128_000),
        parameters=8_470_000_000,
        active=1_500_000_000,
        template=LFM,
        metadata=shape | {"context_length": 128_000, "feed_forward_length": 7168, "shortconv.l_cache": 3},
    )


STAND_INS: Final[Mapping[str, StandIn]] = {
    "qwen3.8-27b": _qwen_27b(),
    "qwen3.6-27b": _qwen_27b(),
    "qwen3.6-35b-a3b": _qwen_moe(40, 2048, 16, 4096, 512, 34_700_000_000, 3 * B),
    "qwen3.5-122b-a10b": _qwen_moe(48, 3072, 32, 8192, 1024, 122 * B, 10 * B),
    "gemma-4-12b": _gemma(48, 3840, 16, (8, 1), 15_360, 11_907_350_576),
    "gemma-4-26b-a4b": replace(
        gemma := _gemma(30, 2816, 16, (8, 2), 2112, 25_230_000_000),
        active=3_800_000_000,
        metadata={**gemma.metadata, **_experts(128, 8, 704)},
    ),
    "gemma-4-31b": _gemma(60, 5376, 32, (16, 4), 21_504, 30_700_000_000),
    "glm-5.2": StandIn(
        architecture="glm-dsa",
        vocabulary=("glm5", 154_880),
        parameters=743 * B,
        active=40 * B,
        template=GLM,
        metadata=_attention(79, 6144, 64, 1, (576, 512))
        | _experts(256, 8, 2048)
        | {
            "context_length": 1_048_576,
            "feed_forward_length": 12_288,
            "nextn_predict_layers": 1,
            "attention.key_length_mla": 256,
            "attention.value_length_mla": 256,
            "attention.indexer.key_length": 128,
        },
    ),
    "deepseek-v4-flash": StandIn(
        architecture="deepseek4",
        vocabulary=("deepseek4", 129_280),
        parameters=284 * B,
        active=13 * B,
        template=DEEPSEEK,
        metadata=_attention(43, 4096, 64, 1, (512, 512))
        | _experts(256, 6, 2048)
        | {
            "context_length": 1_048_576,
            "attention.sliding_window": 128,
            "attention.indexer.key_length": 128,
            "attention.compress_ratios": [0, 0, *(4 if layer % 2 == 0 else 128 for layer in range(2, 43)), 0],
        },
    ),
    "minimax-m2.7": StandIn(
        architecture="minimax-m2",
        vocabulary=("minimax-m2", 200_064),
        parameters=230 * B,
        active=10 * B,
        template=ALWAYS,
        metadata=_attention(62, 3072, 48, 8, (128, 128))
        | _experts(256, 8, 1536)
        | {"context_length": 196_608, "feed_forward_length": 1536},
    ),
    "nemotron-3.5-lightning-30b-a3b": _nemotron(),
    "lfm2.5-8b-a1b": _lfm(),
    "qwen2.5-coder-0.5b": _qwen_coder(24, 896, 14, 4864, 630_167_424),
    "qwen2.5-coder-1.5b": _qwen_coder(28, 1536, 12, 8960, 1_777_088_000),
    "gpt-oss-20b": _gpt_oss(24, 32, 20_900_000_000, 3_600_000_000),
    "gpt-oss-120b": _gpt_oss(36, 128, 116_800_000_000, 5_100_000_000),
}


def write_stand_in(path: Path, name: str) -> Path:
    """Write the stand-in of a model of the catalogue, with one small tensor, and return its path."""
    model = STAND_INS[name]
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_name(name)
    for key, value in model.metadata.items():
        add_value(writer, f"{model.architecture}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(model.vocabulary[0])
    writer.add_token_list([f"{model.vocabulary[0]}-{number}" for number in range(8)])
    writer.add_chat_template(model.template)
    writer.add_tensor("output_norm.weight", np.ones(8, dtype=np.float32))
    finish(writer)
    return path


def stand_in_header(folder: Path, name: str, file_bytes: int) -> GgufHeader:
    """Return the header of the model's stand-in, which is written into `folder`, as if it had all its weights."""
    model = STAND_INS[name]
    header = read_header(write_stand_in(folder / f"{name}.gguf", name))
    active = model.parameters if model.active is None else model.active
    counted = replace(header, parameters=model.parameters, active_parameters=active, vocab_size=model.vocabulary[1])
    return replace(counted, weight_bytes=file_bytes, file_bytes=file_bytes)
