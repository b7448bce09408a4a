"""The HTTP API, on a Unix socket and optionally on TCP.

daemon      daemon, serve, listen, tls, connection, logs
checks      guard, auth, bodies, access
endpoints   runs, events, chats, models, machine, metrics, admin, and those of attachments
dialects    openai, anthropic, llama_server, mcp
page        the web page, and its login
shared      app, dependencies, errors, limiter, sse, timings, warnings
"""
