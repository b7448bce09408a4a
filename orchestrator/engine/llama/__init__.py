"""Call llama.cpp. `binding` declares what we call of it; the other files call it.

llama.cpp aborts the process on wrong arguments, so they are checked here. A `Llama` or `Embedder` is a model with one
context, for one thread. Token arrays are int32, logits and vectors float32.
"""

from orchestrator.engine.llama.batch import Batch, Tokens, as_tokens
from orchestrator.engine.llama.embedding import Embedder
from orchestrator.engine.llama.grammar import Grammar, Logits
from orchestrator.engine.llama.heads import EagleHead, Head, MtpHead, States, why_no_eagle_head, why_no_mtp_head
from orchestrator.engine.llama.loading import CannotLoad, open_library, vocabulary_of
from orchestrator.engine.llama.model import DecodeFailed, Llama
from orchestrator.engine.llama.openmp import SpinSwitch
from orchestrator.engine.llama.vocabulary import Vocabulary

__all__ = [
    "Batch",
    "CannotLoad",
    "DecodeFailed",
    "EagleHead",
    "Embedder",
    "Grammar",
    "Head",
    "Llama",
    "Logits",
    "MtpHead",
    "SpinSwitch",
    "States",
    "Tokens",
    "Vocabulary",
    "as_tokens",
    "open_library",
    "vocabulary_of",
    "why_no_eagle_head",
    "why_no_mtp_head",
]
