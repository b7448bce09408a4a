"""One llama.cpp process per loaded model: continuous batching, shared prefixes, grammars, streaming; embeddings.

    contract     what a caller gives and gets: EngineSpec, Generation, Embeddings, ModelInfo, EngineStats
    errors       what can go wrong, as a tree
    protocol     the messages between the caller's process and the engine's, and their framing
    processor    the model of this machine's processor
    client       what runs in the caller's process: it starts the engine's process, asks it, and notices its end
    worker       what runs in the engine's process: the loop that batches requests, decodes and samples
    kv           which tokens lie in which cells of the KV cache, and who may enter it
    speculation  draft tokens: where they come from, how many are worth verifying, and which stay
    step_cost    how long a decode step takes on this machine: predicted, measured and corrected
    llama        the only package that calls llama.cpp

`client` imports none of the packages that only the engine's process needs. This file imports nothing, so that the
process starts without the dependencies of its caller.
"""
