"""Where the daemon listens, and what it refuses to listen on."""

import socket
import stat
from pathlib import Path

import pytest

from orchestrator.api.listen import tcp_address, unix_socket
from orchestrator.errors import InputError
from orchestrator.run.journal.errors import JournalError
from orchestrator.service.configuration import ServerSettings


@pytest.mark.parametrize("tcp", ["127.0.0.1:8484", "[::1]:8484", "localhost:8484", "127.0.0.2:0"])
def test_loopback_addresses_are_accepted(tcp: str) -> None:
    address = tcp_address(ServerSettings(tcp=tcp))
    assert address is not None
    assert address.url.startswith("http://")
    assert address.url.endswith(f":{address.port}")


@pytest.mark.parametrize("tcp", ["0.0.0.0:8484", "[::]:8484", ":8484", "192.168.0.7:8484", "some.host:8484"])
def test_beyond_loopback_tls_or_a_flag_is_needed(tcp: str) -> None:
    with pytest.raises(InputError, match="read the token"):
        tcp_address(ServerSettings(tcp=tcp))
    assert tcp_address(ServerSettings(tcp=tcp, insecure=True)) is not None
    over_tls = tcp_address(ServerSettings(tcp=tcp, tls_certificate="cert.pem", tls_key="key.pem"))
    assert over_tls is not None
    assert over_tls.url.startswith("https://")


@pytest.mark.parametrize("tcp", ["8484", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_text_that_is_no_address_is_refused(tcp: str) -> None:
    with pytest.raises(InputError, match="ADDRESS:PORT"):
        tcp_address(ServerSettings(tcp=tcp))


def test_tcp_is_off_by_default() -> None:
    assert tcp_address(ServerSettings()) is None
    with pytest.raises(InputError, match="both, or none"):
        tcp_address(ServerSettings(tls_key="key.pem"))


def test_a_stale_socket_is_replaced_by_one_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with unix_socket(path):
        pass
    with unix_socket(path) as listening, socket.socket(socket.AF_UNIX) as caller:
        listening.listen()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        caller.connect(str(path))


def test_a_file_that_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    path.write_text("mine")
    with pytest.raises(JournalError):
        unix_socket(path)
    assert path.read_text() == "mine"
    with pytest.raises(JournalError, match="too long"):
        unix_socket(tmp_path / ("x" * 120))
