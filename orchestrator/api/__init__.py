"""HTTP over a Unix socket, and TCP where it is asked for. `python -m orchestrator.api` is the daemon.

serve       the program: configuration, logs, signals, listeners
listen      where it listens, and what it refuses to listen on
tls         certificate and key of TCP
connection  HTTP on one connection, and how long a client may take to ask and to read
auth        the token of TCP
guard       what every request has to pass: host, origin, token, size, time, number
app         the application, put together
errors      the one shape of errors
runs        submit, list, show, cancel, retry, delete, export, artifacts
events      what happens to a run, as server-sent events
models      pool, roles, personas
upkeep      health, metrics, backups
openai/     the OpenAI-compatible part
"""
