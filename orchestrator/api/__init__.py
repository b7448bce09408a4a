"""The HTTP API, on a Unix socket and optionally on TCP. `python -m orchestrator.api` is the daemon.

daemon      serve, listen, tls, connection, logs
checks      guard, auth, bodies, access
endpoints   runs, events, chats, models, memory, procedures, metrics, admin
dialects    openai, anthropic, llama_server, mcp
shared      app, dependencies, errors, limiter, sse, timings, warnings
"""
