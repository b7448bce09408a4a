"""The OpenAI-compatible part of the API, so that existing clients work unchanged.

names       what a model's name stands for: a role, a persona, a model of the registry, `auto`, `orchestrate`
messages    what clients send as messages, as an engine takes it
tools       functions that a model may call
sampling    what clients may ask of a generation
generating  generations under way, and what ends them
whole_run   a generation that is a whole run
chat        /v1/chat/completions
responses   /v1/responses
embeddings  /v1/embeddings, by the built-in lexical embedder or the registry's own
catalogue   /v1/models
"""
