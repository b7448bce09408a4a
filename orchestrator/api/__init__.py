"""The HTTP API, on a Unix socket and, where it is configured, TCP. `python -m orchestrator.api` is the daemon.

serve         the daemon: configuration, logs, signals, listeners
listen        where it listens, and which addresses it refuses to listen on
tls           the certificate and the key of TCP
connection    HTTP on one connection, and how long a client may take to send a request and to read the answer
auth          the token of TCP
guard         what every request is checked for: host, origin, token, size, time, number
app           builds the FastAPI application
errors        the body of every error
dependencies  what endpoints are given: the service, the limiter
limiter       how many requests generate at the same time; a client that disconnects ends its generation
sse           sends server-sent events
runs          submit, list, show, cancel, retry, delete, export, artifacts
events        what happens to a run, as server-sent events
models        the pool, the registry, personas
metrics       counters and gauges for Prometheus
admin         health, backups, vacuum
logs          the daemon's log
openai/       the OpenAI-compatible part
"""
