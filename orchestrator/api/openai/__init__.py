"""The OpenAI-compatible part of the API, so that existing clients work unchanged.

chat        /v1/chat/completions
text_completions  /v1/completions: go on with a text
responses   /v1/responses
files       /v1/files: upload, list, content, delete
embeddings  /v1/embeddings, by the built-in lexical embedder or the registry's own
rerank      /v1/rerank, by a model that ranks, or by the vectors of an embedder
models      /v1/models
names       what the name of a model stands for: a role, a persona, a model, `auto`, `orchestrate`, or an alias
protocol    what several of them have in common: messages, ids of tokens, thinking, the format of an answer
sampling    the options that shape an answer: honoured, or refused by name
logprobs    how likely the tokens of an answer were, in the forms of chats and completions
tools       functions that a model may call
calling     generates an answer that may call them: reads, checks and repairs its calls
completion  carries out a request for answers: by generations on an engine, or by a whole run
run_answers what a whole run answers: plan, steps and retries as thoughts, then the answer
given_files the files that come with a request to a run
"""
