"""The OpenAI-compatible part of the API, so that existing clients work unchanged.

chat              /v1/chat/completions
text_completions  /v1/completions
responses         /v1/responses
files             /v1/files
embeddings        /v1/embeddings, by the built-in lexical embedder or the registry's
rerank            /v1/rerank, by a reranker or an embedder's vectors
models            /v1/models
names             resolves `model`: a role, a persona, a model, `auto`, `orchestrate`, or an alias
protocol          shared parts of bodies: messages, token ids, thinking, response format
sampling          options that shape an answer: obeyed, or refused by name
logprobs          logprobs in the forms of chats and completions
tools             functions that a model may call
calling           generation with tools: reads, checks and repairs calls
completion        carries out a request, by generations on an engine or by a whole run
run_answers       answers of whole runs: progress as thoughts, then the answer
given_files       files that come with a request to a run
"""
