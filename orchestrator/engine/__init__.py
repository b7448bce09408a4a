"""One llama.cpp process per loaded model: continuous batching, shared prefixes, grammars, streaming; embeddings.

    contract    what a caller gives and gets: EngineSpec, Generation, Embeddings, ModelInfo, EngineStats
    client      Engine: the parent's end of one process
    errors      what can go wrong, as a tree
    protocol    the messages between parent and process, and their framing
    spawn       starts the process and knows how it ended
    watchdog    notices a process that hangs
    process     the process: its main function
    loop        take commands; choose this step's tokens; decode; sample; emit
    embedding   the loop of an engine that embeds: take texts; fill a batch; compute; answer
    batching    what goes into one llama_decode, as a pure function
    curve       how long a step takes: measured points, interpolation, corrections; the favoured width
    curve_cache measured curves in a folder
    curves      what is learned of a curve from the steps that are done, and when it is no longer believed
    measure     measures curves and attention, a step at a time
    idle        when that is done: in moments without other work
    contention  whether other processes had the cores during a step
    threads     how many threads compute beside other processes, as a pure state machine
    waiting     how long threads spin when they wait for each other
    sequences   who is queued, in prefill, decoding; into the cache and out of it
    urgency     who goes first, and who gives way, as pure functions
    slots       who may enter a common pool of cells, and which prefix it starts from
    streams     the same where every sequence has cells of its own
    prefix      which sequence holds which tokens in the KV cache
    prefix_store KV cells of beginnings in a folder
    warm        which of them an engine begins with and leaves behind
    sequence    one generation on its way through the engine
    drafting    draft tokens for the sequences of a step, from a lookup or a draft model
    lookup      what a sequence has said before
    draft_model a smaller model that guesses
    speculate   how many draft tokens are worth it, and whether drafting pays
    verify      which draft tokens stay
    sampling    logits to token
    text        tokens' bytes to text: whole characters, stop strings
    grammar     JSON Schema to GBNF
    chat        messages to tokens, through the model's own template
    llama       the only package that calls llama.cpp

This file imports nothing, so that the process starts without the parent's dependencies.
"""
