"""Load the certificate and the key for TCP, and refuse those that no client could accept.

Errors name the setting and the file. Renewed files are loaded into the same context: open connections continue, and new
ones get the new certificate.
"""

import ssl
from contextlib import suppress
from typing import Final, NoReturn

from orchestrator.errors import InputError, Problem
from orchestrator.service.configuration import ServerSettings

CERTIFICATE: Final = "tls_certificate of [server]"
KEY: Final = "tls_key of [server]"


def tls_context(settings: ServerSettings) -> ssl.SSLContext:
    """Return a server context with the configured certificate and key. Raises InputError for unusable files."""
    client = _trusting_client(settings.tls_certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, settings)
    _check_handshake(context, client, settings)
    return context


def renew(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Load the files again for new connections. Raises InputError for unusable files, and then changes nothing."""
    tls_context(settings)
    _load(context, settings)


def _trusting_client(certificate: str) -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # It trusts the certificate itself, and also its issuer if the file has that one too.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        client.load_verify_locations(certificate)
    except ssl.SSLError as error:
        raise _refused(CERTIFICATE, certificate, "holds no certificate", "a PEM file of one") from error
    except OSError as error:
        raise _unreadable(CERTIFICATE, certificate, error) from error
    return client


def _load(context: ssl.SSLContext, settings: ServerSettings) -> None:
    def refuse() -> NoReturn:
        raise _refused(
            KEY,
            settings.tls_key,
            "is encrypted, and the daemon cannot ask for the passphrase",
            "a key that is not encrypted",
        )

    try:
        with open(settings.tls_key, "rb"):
            pass  # `load_cert_chain` does not say which of the files is missing
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem, accepted = f"is not the key of {settings.tls_certificate}", "the key that it was made with"
        else:
            problem, accepted = f"cannot be used: {error.reason or 'it holds no key'}", "a PEM file of a private key"
        raise _refused(KEY, settings.tls_key, problem, accepted) from error
    except OSError as error:
        raise _unreadable(KEY, settings.tls_key, error) from error


def _check_handshake(context: ssl.SSLContext, client: ssl.SSLContext, settings: ServerSettings) -> None:
    # In memory, and only until the client has checked the certificate.
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = context.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server)
    try:
        for side in (client_side, server_side, client_side):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        accepted = "a certificate of a server that is valid now"
        raise _refused(CERTIFICATE, settings.tls_certificate, error.verify_message, accepted) from error


def _unreadable(where: str, file: str, error: OSError) -> InputError:
    return _refused(where, file, f"cannot be read: {error.strerror}", "a PEM file")


def _refused(where: str, file: str, problem: str, accepted: str) -> InputError:
    return InputError(Problem(where, f"{file}: {problem}", accepted))
