"""A collector of OpenTelemetry's protocol over HTTP, whose requests the official package parses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SECONDS = 60.0  # to wait for a request, however busy the machine is


class Receiver(ThreadingHTTPServer):
    """`requests` has what it was sent, and `answers` the statuses of its next answers; then it answers 200."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.requests: Queue[tuple[str, ExportTraceServiceRequest]] = Queue()
        self.answers: list[HTTPStatus] = []
        self.bodies: list[bytes] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def request(self) -> ExportTraceServiceRequest:
        """Return the next request."""
        path, request = self.requests.get(timeout=SECONDS)
        assert path == "/v1/traces"
        return request

    def spans(self) -> list[Span]:
        """Return the spans of the next request."""
        return spans_in(self.request())


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf"
        status = self.server.answers.pop(0) if self.server.answers else HTTPStatus.OK
        self.server.bodies.append(body)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.server.requests.put((self.path, ExportTraceServiceRequest.FromString(body)))

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Run a receiver."""
    with Receiver(port) as receiver:
        thread = Thread(target=receiver.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


def spans_in(request: ExportTraceServiceRequest) -> list[Span]:
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def attributes_in(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in attributes}
