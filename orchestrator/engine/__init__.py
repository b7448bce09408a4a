"""One llama.cpp process per loaded model: continuous batching, shared prefixes, grammars, streaming.

    contract    what a caller gives and gets: EngineSpec, Generation, Completion, ModelInfo, EngineStats
    client      Engine: the parent's end of one process
    errors      what can go wrong, as a tree
    protocol    the messages between parent and process, and their framing
    spawn       starts the process and knows how it ended
    process     the process: its main function
    loop        take commands; choose this step's tokens; decode; sample; emit
    batching    what goes into one llama_decode, as a pure function
    slots       who may enter the KV cache, and which prefix it starts from
    prefix      which sequence holds which tokens in the KV cache
    sequence    one generation on its way through the engine
    sampling    logits to token
    text        tokens' bytes to text: whole characters, stop strings
    grammar     JSON Schema to GBNF
    chat        messages to tokens, through the model's own template
    llama       the only file that calls llama.cpp

This file imports nothing, so that the process starts without the parent's dependencies.
"""
