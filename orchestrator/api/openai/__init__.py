"""The OpenAI-compatible part of the API, so that existing clients work unchanged.

chat        /v1/chat/completions
responses   /v1/responses
embeddings  /v1/embeddings, by the built-in lexical embedder or the registry's own
models      /v1/models, and what the name of a model stands for: a role, a persona, a model, `auto`, `orchestrate`
protocol    what chats and responses have in common: messages, options, the format of an answer
tools       functions that a model may call
completion  carries out a request of either: by generations on an engine, or by a whole run
"""
