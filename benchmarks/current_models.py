"""Write small models of the architectures that the catalogue's current models have, with random weights.

They have the same kinds of layers as the models they stand for: windows, indices, compressed keys, experts, recurrent
states. llama.cpp loads and computes them as it does those; their text has no meaning. The keys and the tensors, with
their sizes, are those that llama.cpp's loader of an architecture reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

from benchmarks.models import ModelShape, Value, add_value, add_vocabulary, finish, write_lfm2, write_qwen35

Sizes = tuple[int, ...]  # of a tensor, the number of columns first
SHAPE: Final = ModelShape(weights="f32", layers=4, context=1024)
WIDTH: Final = SHAPE.width
HEADS: Final = SHAPE.heads
HEAD: Final = 16  # numbers of a head
ROTATED: Final = 8  # numbers of a head that carry its position, in compressed attention
LATENT: Final = 24  # numbers of a compressed query
INDEX: Final = 64  # numbers of an index's key; llama.cpp rotates 64 at a time
# With few heads, many keys have the score 0, and which of them are picked would depend on their places in the cache.
INDEX_HEADS: Final = 16
INNER: Final = 32  # the width of an expert
EXPERTS: Final = 4
WINDOW: Final = 32  # tokens
_FACTORS: Final = ("scale.weight", "inp.scale", "rope_freqs.weight", "ssm_d")  # ends of the names of vectors of ones
SIGMOID, SQRT_SOFTPLUS = 2, 4  # how experts are weighted, in llama.cpp's numbers


@dataclass(frozen=True, slots=True)
class SmallModel:
    """What a model's file says, without the architecture's name in the keys, and the sizes of its tensors."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, Sizes]
    output: Mapping[str, Sizes]  # those that belong to no layer, but for the embeddings and the output


def write_current(path: Path, name: str, seed: int = 0) -> Path:
    """Write the model of this name in `CURRENT`, with random weights from `seed`, and return its path."""
    return CURRENT[name](path, seed)


def _write(architecture: str, make: Callable[[], SmallModel], path: Path, seed: int) -> Path:
    model = make()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    shared = {
        "context_length": SHAPE.context,
        "embedding_length": WIDTH,
        "block_count": SHAPE.layers,
        "vocab_size": SHAPE.vocabulary,
        "attention.head_count": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    for key, value in {**shared, **model.metadata}.items():
        add_value(writer, f"{architecture}.{key}", value)
    add_vocabulary(writer, SHAPE)
    rng = np.random.default_rng(seed)
    around = dict.fromkeys(("token_embd.weight", "output.weight"), (WIDTH, SHAPE.vocabulary))
    for name, sizes in {**around, "output_norm.weight": (WIDTH,), **model.output, **model.tensors}.items():
        writer.add_tensor(name, _weights(rng, name, sizes))
    finish(writer)
    return path


def _weights(rng: np.random.Generator, name: str, sizes: Sizes) -> npt.NDArray[np.float32 | np.int32]:
    shape = sizes[::-1]
    if "tid2eid" in name:  # the experts of each token
        return np.argsort(rng.random((shape[0], EXPERTS)), axis=1)[:, : shape[1]].astype(np.int32)
    if name.endswith("ssm_a"):
        return np.full(shape, -1.0, dtype=np.float32)
    if name.endswith("attn_q_norm.weight"):
        return np.full(shape, 0.25, dtype=np.float32)  # Gemma 4 does not scale its scores, so they would be too large
    if ("norm" in name and name.endswith("weight")) or name.endswith(_FACTORS):
        return np.ones(shape, dtype=np.float32)
    scale = 1 / np.sqrt(sizes[0]) if len(sizes) > 1 else 0.1
    return rng.normal(0.0, scale, shape).astype(np.float32)


def _blocks(*kinds: Mapping[str, Sizes]) -> dict[str, Sizes]:
    """Name the tensors of all layers, given those of each one."""
    return {f"blk.{layer}.{name}": sizes for layer, kind in enumerate(kinds) for name, sizes in kind.items()}


def _attention(head: int = HEAD, kv_heads: int = SHAPE.kv_heads) -> dict[str, Sizes]:
    return {
        "attn_norm.weight": (WIDTH,),
        "attn_q.weight": (WIDTH, HEADS * head),
        "attn_k.weight": (WIDTH, kv_heads * head),
        "attn_v.weight": (WIDTH, kv_heads * head),
        "attn_output.weight": (HEADS * head, WIDTH),
    }


def _experts(*, gated: bool = True) -> dict[str, Sizes]:
    inward = ("gate", "up") if gated else ("up",)
    return {
        "ffn_gate_inp.weight": (WIDTH, EXPERTS),
        **{f"ffn_{name}_exps.weight": (WIDTH, INNER, EXPERTS) for name in inward},
        "ffn_down_exps.weight": (INNER, WIDTH, EXPERTS),
    }


def _shared_expert(*, gated: bool = True) -> dict[str, Sizes]:
    inward = ("gate", "up") if gated else ("up",)
    return {**{f"ffn_{name}_shexp.weight": (WIDTH, INNER) for name in inward}, "ffn_down_shexp.weight": (INNER, WIDTH)}


def _dense(inner: int = SHAPE.feed_forward) -> dict[str, Sizes]:
    return {**{f"ffn_{name}.weight": (WIDTH, inner) for name in ("gate", "up")}, "ffn_down.weight": (inner, WIDTH)}


_EXPERT_COUNTS: Final[dict[str, Value]] = {
    "expert_count": EXPERTS,
    "expert_used_count": 2,
    "expert_feed_forward_length": INNER,
}
_ONE_HEAD: Final[dict[str, Value]] = {"block_count": SHAPE.layers + 1, "nextn_predict_layers": 1}
_BALANCED: Final[dict[str, Sizes]] = {"exp_probs_b.bias": (EXPERTS,)}
_FFN_NORM: Final[dict[str, Sizes]] = {"ffn_norm.weight": (WIDTH,)}
_MTP: Final[dict[str, Sizes]] = {
    "nextn.eh_proj.weight": (2 * WIDTH, WIDTH),
    **{f"nextn.{name}.weight": (WIDTH,) for name in ("enorm", "hnorm", "shared_head_norm")},
}


def _gemma4(*, experts: bool) -> SmallModel:
    """Layers with a window have heads of another size than the others, which have no values of their own."""
    wide = 2 * HEAD
    windows = [layer % 3 != 2 for layer in range(SHAPE.layers)]
    norms = ("post_attention_norm", "ffn_norm", "post_ffw_norm")
    mixed = ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2") if experts else ()
    rest: dict[str, Sizes] = {f"{name}.weight": (WIDTH,) for name in (*norms, *mixed)}
    rest |= {"layer_output_scale.weight": (1,), **_dense()}
    if experts:
        rest |= {
            "ffn_gate_inp.weight": (WIDTH, EXPERTS),
            "ffn_gate_inp.scale": (WIDTH,),
            "ffn_gate_up_exps.weight": (WIDTH, 2 * INNER, EXPERTS),
            "ffn_down_exps.weight": (INNER, WIDTH, EXPERTS),
        }
    layers = []
    for windowed in windows:
        head, kv_heads = (HEAD, SHAPE.kv_heads) if windowed else (wide, 1)
        attention = _attention(head, kv_heads) | {f"attn_{name}_norm.weight": (head,) for name in "qk"}
        if not windowed:
            del attention["attn_v.weight"]
        layers.append(attention | rest)
    return SmallModel(
        {
            "feed_forward_length": SHAPE.feed_forward,
            "attention.head_count_kv": [SHAPE.kv_heads if windowed else 1 for windowed in windows],
            "attention.key_length": wide,
            "attention.value_length": wide,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "attention.sliding_window": WINDOW,
            "attention.sliding_window_pattern": windows,
            "attention.shared_kv_layers": 0,
            "embedding_length_per_layer_input": 0,
            "rope.dimension_count": wide,
            "rope.dimension_count_swa": HEAD,
            "rope.freq_base_swa": 10_000.0,
            "final_logit_softcapping": 30.0,
            **(_EXPERT_COUNTS if experts else {}),
        },
        _blocks(*layers),
        {"rope_freqs.weight": (wide // 2,)},
    )


def _gpt_oss() -> SmallModel:
    biases: dict[str, Sizes]
    biases = {f"attn_{name}.bias": (count,) for name, count in (("q", WIDTH), ("k", 32), ("v", 32), ("output", WIDTH))}
    biases |= {f"ffn_{name}_exps.bias": (INNER, EXPERTS) for name in ("gate", "up")}
    biases |= {"ffn_down_exps.bias": (WIDTH, EXPERTS), "ffn_gate_inp.bias": (EXPERTS,)}
    layer = _attention() | _experts() | biases
    layer |= {"attn_sinks.weight": (HEADS,), "post_attention_norm.weight": (WIDTH,)}
    return SmallModel(
        {
            "attention.head_count_kv": SHAPE.kv_heads,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.sliding_window": WINDOW,
            **_EXPERT_COUNTS,
        },
        _blocks(*[layer] * SHAPE.layers),
        {},
    )


def _minimax() -> SmallModel:
    norms = {"attn_q_norm.weight": (HEADS * HEAD,), "attn_k_norm.weight": (SHAPE.kv_heads * HEAD,)}
    layer = _attention() | norms | _FFN_NORM | _experts() | _BALANCED
    return SmallModel(
        {
            "attention.head_count_kv": SHAPE.kv_heads,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_count": ROTATED,
            "feed_forward_length": INNER,
            "expert_gating_func": SIGMOID,
            **_EXPERT_COUNTS,
        },
        _blocks(*[layer] * SHAPE.layers),
        {},
    )


def _nemotron() -> SmallModel:
    """Layers are recurrent (M), have experts (E) or attend (*). The MTP head does the last two in one layer."""
    order, groups, state, inner, kernel = "ME*M", 2, 8, 2 * WIDTH, 4
    heads, convolved = 8, inner + 2 * groups * state
    recurrent: dict[str, Sizes] = {
        "attn_norm.weight": (WIDTH,),
        "ssm_in.weight": (WIDTH, inner + convolved + heads),
        "ssm_conv1d.weight": (kernel, convolved),
        "ssm_conv1d.bias": (convolved,),
        "ssm_dt.bias": (heads,),
        "ssm_a": (1, heads),
        "ssm_d": (1, heads),
        "ssm_norm.weight": (inner // groups, groups),
        "ssm_out.weight": (inner, WIDTH),
    }
    norm: dict[str, Sizes] = {"attn_norm.weight": (WIDTH,)}
    experts = _experts(gated=False) | _shared_expert(gated=False) | _BALANCED
    kinds = {"M": recurrent, "E": norm | experts, "*": _attention()}
    head = _attention() | experts | {"post_attention_norm.weight": (WIDTH,)} | _MTP
    return SmallModel(
        {
            **_ONE_HEAD,
            "attention.head_count_kv": [*(SHAPE.kv_heads * (kind == "*") for kind in order), SHAPE.kv_heads],
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.layer_norm_epsilon": 1e-5,
            "feed_forward_length": [*(INNER * (kind == "E") for kind in order), INNER],
            "ssm.conv_kernel": kernel,
            "ssm.inner_size": inner,
            "ssm.state_size": state,
            "ssm.time_step_rank": heads,
            "ssm.group_count": groups,
            "expert_shared_feed_forward_length": INNER,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
            "expert_gating_func": SIGMOID,
            **_EXPERT_COUNTS,
        },
        _blocks(*(kinds[kind] for kind in order), head),
        {},
    )


def _glm() -> SmallModel:
    """A latent vector for each token, an index that picks 16 of them, and a first layer without experts."""
    latent, plain = 16, HEAD - ROTATED
    layer: dict[str, Sizes] = {
        "attn_norm.weight": (WIDTH,),
        "attn_q_a_norm.weight": (LATENT,),
        "attn_kv_a_norm.weight": (latent,),
        "attn_q_a.weight": (WIDTH, LATENT),
        "attn_q_b.weight": (LATENT, HEADS * HEAD),
        "attn_kv_a_mqa.weight": (WIDTH, latent + ROTATED),
        "attn_k_b.weight": (plain, latent, HEADS),
        "attn_v_b.weight": (latent, HEAD, HEADS),
        "attn_output.weight": (HEADS * HEAD, WIDTH),
        "indexer.k_norm.weight": (INDEX,),
        "indexer.k_norm.bias": (INDEX,),
        "indexer.proj.weight": (WIDTH, INDEX_HEADS),
        "indexer.attn_k.weight": (WIDTH, INDEX),
        "indexer.attn_q_b.weight": (LATENT, INDEX_HEADS * INDEX),
        **_FFN_NORM,
    }
    sparse = layer | _experts() | _shared_expert() | _BALANCED
    return SmallModel(
        {
            **_ONE_HEAD,
            "attention.head_count_kv": 1,
            "attention.key_length": latent + ROTATED,
            "attention.value_length": latent,
            "attention.key_length_mla": HEAD,
            "attention.value_length_mla": HEAD,
            "attention.q_lora_rank": LATENT,
            "attention.kv_lora_rank": latent,
            "attention.indexer.head_count": INDEX_HEADS,
            "attention.indexer.key_length": INDEX,
            "attention.indexer.top_k": 16,
            "rope.dimension_count": ROTATED,
            "feed_forward_length": SHAPE.feed_forward,
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
            "expert_gating_func": SIGMOID,
            **_EXPERT_COUNTS,
        },
        _blocks(layer | _dense(), *[sparse] * (SHAPE.layers - 1), sparse | _MTP),
        {},
    )


def _deepseek4() -> SmallModel:
    """A window, and keys that stand for 4 or 128 tokens; the first layer picks experts by the token itself."""
    ratios, groups, rank, streams = [0, 4, 128, 4], 2, 8, 4
    mixed, mixes = streams * WIDTH, (2 + streams) * streams
    shared: dict[str, Sizes] = {
        "attn_norm.weight": (WIDTH,),
        "attn_sinks.weight": (HEADS,),
        "attn_q_a.weight": (WIDTH, LATENT),
        "attn_q_a_norm.weight": (LATENT,),
        "attn_q_b.weight": (LATENT, HEADS * HEAD),
        "attn_kv.weight": (WIDTH, HEAD),
        "attn_kv_a_norm.weight": (HEAD,),
        "attn_output_a.weight": (HEADS * HEAD // groups, rank, groups),
        "attn_output_b.weight": (groups * rank, WIDTH),
        **{f"hc_{part}_fn.weight": (mixed, mixes) for part in ("attn", "ffn")},
        **{f"hc_{part}_base.weight": (mixes,) for part in ("attn", "ffn")},
        **{f"hc_{part}_scale.weight": (3,) for part in ("attn", "ffn")},
        **_FFN_NORM,
        **_experts(),
        **_shared_expert(),
    }
    layers = []
    for number, ratio in enumerate(ratios):
        layer = dict(shared)
        layer |= _BALANCED if number else {"ffn_gate_tid2eid.weight": (2, SHAPE.vocabulary)}
        if ratio:
            layer |= _compressor("attn_compressor", HEAD, ratio)
        if ratio == 4:
            layer |= {
                "indexer.proj.weight": (WIDTH, INDEX_HEADS),
                "indexer.attn_q_b.weight": (LATENT, INDEX_HEADS * INDEX),
            }
            layer |= _compressor("indexer_compressor", INDEX, ratio)
        layers.append(layer)
    return SmallModel(
        {
            "attention.head_count_kv": 1,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.q_lora_rank": LATENT,
            "attention.sliding_window": WINDOW,
            "attention.indexer.head_count": INDEX_HEADS,
            "attention.indexer.key_length": INDEX,
            "attention.indexer.top_k": 8,
            "attention.output_group_count": groups,
            "attention.output_lora_rank": rank,
            "attention.compress_rope_freq_base": 10_000.0,
            "attention.compress_ratios": ratios,
            "hyper_connection.count": streams,
            "hyper_connection.sinkhorn_iterations": 2,
            "hyper_connection.epsilon": 1e-6,
            "hash_layer_count": 1,
            "rope.dimension_count": ROTATED,
            "swiglu_clamp_exp": 10.0,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
            "expert_gating_func": SQRT_SOFTPLUS,
            **_EXPERT_COUNTS,
        },
        _blocks(*layers),
        {
            "output_hc_fn.weight": (mixed, streams),
            "output_hc_base.weight": (streams,),
            "output_hc_scale.weight": (1,),
        },
    )


def _compressor(name: str, size: int, ratio: int) -> dict[str, Sizes]:
    columns = size * (2 if ratio == 4 else 1)
    return {
        f"{name}_kv.weight": (WIDTH, columns),
        f"{name}_gate.weight": (WIDTH, columns),
        f"{name}_ape.weight": (columns, ratio),
        f"{name}_norm.weight": (size,),
    }


def _qwen35(experts: int, path: Path, seed: int) -> Path:
    return write_qwen35(path, SHAPE, seed, experts=experts, mtp=True)


CURRENT: Final[Mapping[str, Callable[[Path, int], Path]]] = {
    "qwen35": partial(_qwen35, 0),
    "qwen35moe": partial(_qwen35, EXPERTS),
    "gemma4": partial(_write, "gemma4", partial(_gemma4, experts=False)),
    "gemma4-moe": partial(_write, "gemma4", partial(_gemma4, experts=True)),
    "gpt-oss": partial(_write, "gpt-oss", _gpt_oss),
    "minimax-m2": partial(_write, "minimax-m2", _minimax),
    "nemotron_h_moe": partial(_write, "nemotron_h_moe", _nemotron),
    "glm-dsa": partial(_write, "glm-dsa", _glm),
    "deepseek4": partial(_write, "deepseek4", _deepseek4),
    "lfm2moe": lambda path, seed: write_lfm2(path, SHAPE, seed, experts=EXPERTS),
}
