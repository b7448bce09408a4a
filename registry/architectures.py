"""Tables of architectures that cannot generate text like a transformer, or cannot take tokens back.

The names are those for which llama.cpp's `llm_arch_is_recurrent`, `llm_arch_is_hybrid` and `llm_arch_is_diffusion`
return true; those of ROLLS_BACK satisfy `llm_arch_supports_rs_rollback`, and those of MTP have a `graph_mtp`. A test
compares the tables with the installed library.
"""

from typing import Literal

Family = Literal["transformer", "state-space", "hybrid", "diffusion", "not generative"]

STATE_SPACE = frozenset("mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7".split())
HYBRID = frozenset(
    "bailingmoe3 deepseek4 falcon-h1 glm5-next granitehybrid jamba kimi-k3 kimi-linear lfm2 lfm2moe minimax-01 "
    "nemotron_h nemotron_h_moe plamo2 qwen35 qwen35moe qwen3next qwen4exp".split()
)
# Models that keep keys which stand for several tokens each. llama.cpp gives every sequence cells of its own for them.
COMPRESSED = frozenset({"deepseek4"})
# Models with recurrent layers of which llama.cpp keeps the states after each of the last few tokens. It does so for
# deepseek4, too, whose sliding windows may lose what an earlier token needs.
ROLLS_BACK = frozenset(
    "bailingmoe3 glm5-next kimi-k3 lfm2 lfm2moe nemotron_h nemotron_h_moe qwen35 qwen35moe qwen4exp".split()
)
# Models whose MTP head llama.cpp computes (`graph_mtp`), if the file has one.
MTP = frozenset(
    "bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe hy_v3 mimo2 nemotron_h_moe qwen35 "
    "qwen35moe qwen3next step35".split()
)
EAGLE = "eagle3"  # a head in a file of its own
# Models whose graph names the inputs of its layers (`t_layer_inp`), one vector for each token. llama.cpp aborts if it
# is to hand over those of others, and no symbol of the library tells.
LAYER_INPUTS = frozenset(
    "bailingmoe3 gemma4 gpt-oss hunyuan-dense hunyuan_vl lfm2 lfm2moe llama mimo2 minimax-01 minimax-m2 muse-glimmer "
    "nanbeige nemotron_h nemotron_h_moe qwen3 qwen35 qwen35moe qwen3moe qwen3next".split()
)
DIFFUSION = frozenset("dream llada llada-moe rnd1".split())
NOT_GENERATIVE = frozenset(
    "bert clip eagle3 eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert nomic-bert "
    "nomic-bert-moe t5 t5encoder wavtokenizer-dec".split()
)


def family(architecture: str) -> Family:
    """Return the family of an architecture, given as `general.architecture`. Unknown names count as transformers."""
    if architecture in STATE_SPACE or architecture.startswith(("rwkv", "mamba")):
        return "state-space"
    if architecture in HYBRID:
        return "hybrid"
    if architecture in DIFFUSION:
        return "diffusion"
    return "not generative" if architecture in NOT_GENERATIVE else "transformer"


def why_no_rollback(architecture: str) -> str | None:
    """Return why any number of last tokens cannot be removed from the model's state, or None if they can."""
    # A draft model removes what was refused, which needs a state per position, but a recurrent layer has one state for
    # the whole sequence. Prefixes are shared all the same: see ADR 37.
    kind = family(architecture)
    if kind == "state-space":
        return f"{architecture} is a state-space model: it keeps one running state and cannot roll it back"
    if kind == "hybrid":
        return f"{architecture} is a hybrid model: its recurrent layers keep one running state and cannot roll it back"
    return None


def why_no_drafts(architecture: str) -> str | None:
    """Return why a model cannot verify draft tokens, or None if it can."""
    # The others take rejected tokens back to a state that was kept, see ADR 37.
    return why_no_rollback(architecture) if architecture in COMPRESSED else None


def why_no_mtp(architecture: str, heads: int) -> str | None:
    """Return why a model with `heads` MTP heads cannot draft for itself, or None if it can."""
    if not heads:
        return "the file has no MTP head"
    return None if architecture in MTP else f"llama.cpp does not compute the MTP heads of {architecture}"


def why_no_eagle(architecture: str) -> str | None:
    """Return why no EAGLE-3 head can draft for a model, or None if one can."""
    if architecture in LAYER_INPUTS:
        return None
    return f"llama.cpp does not hand over the inputs of the layers of {architecture}"


def why_no_generation(architecture: str) -> str | None:
    kind = family(architecture)
    if kind == "diffusion":
        return f"{architecture} is a diffusion model: it does not write one token after the other"
    if kind == "not generative":
        return f"{architecture} does not generate text"
    return None
