"""Run one llama.cpp process for each loaded model.

    contract     types of the API: EngineSpec, Generation, Embeddings, ModelInfo, EngineStats
    errors       the tree of errors
    protocol     messages between the two processes, and their framing
    processor    this machine's processor and its usable CPUs
    waits        waits of requests for a model that is paused
    thinking     splits a model's output into thoughts and answer
    tool_calls   parses tool calls; xml_calls, xml_values and literal_calls those that are no JSON (whole_calls)
    client       the caller's side: starts the engine's process, sends requests, detects its end
    worker       the engine's process: batches requests, decodes and samples
    kv           contents of the KV cache, and admission to it
    speculation  sources, number and acceptance of draft tokens
    step_cost    the duration of a decode step on this machine
    llama        the only package that calls llama.cpp; its `binding` loads the library

`client` imports nothing that only the engine's process needs. This file imports nothing, so that the process starts
without its caller's dependencies.
"""
