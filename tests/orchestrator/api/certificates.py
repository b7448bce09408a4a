"""Make certificates with the `openssl` program."""

import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

CONFIG = """\
[ca]
default_ca = own
[own]
database = index.txt
serial = serial.txt
new_certs_dir = .
default_md = sha256
policy = any
[any]
commonName = supplied
[names]
subjectAltName = DNS:localhost, IP:127.0.0.1
[for_clients]
extendedKeyUsage = clientAuth
[authority]
basicConstraints = critical, CA:TRUE
"""
YESTERDAY = ("20200101000000Z", "20200102000000Z")
ALWAYS = ("20200101000000Z", "20990101000000Z")
TOMORROW = ("20980101000000Z", "20990101000000Z")


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


def self_signed(
    folder: Path, name: str, valid: tuple[str, str] = ALWAYS, extensions: str = "names", subject: str = "localhost"
) -> Pair:
    """Return a certificate of this machine, valid from and until then, and its key."""
    folder.mkdir(exist_ok=True)
    (folder / "ca.conf").write_text(CONFIG)
    (folder / "index.txt").write_text("")
    key, request, made = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, "req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={subject}")
    dates = ("-startdate", valid[0], "-enddate", valid[1])
    signing = ("-selfsign", "-rand_serial", "-keyfile", key, "-extensions", extensions)
    openssl(folder, "ca", "-config", "ca.conf", "-batch", *signing, *dates, "-notext", "-in", request, "-out", made)
    return Pair(made, key)


def signed_by(authority: Pair, name: str, addresses: Collection[str]) -> Pair:
    """Return a certificate for these addresses, made in the folder of an authority, and its key."""
    folder = authority.key.parent
    key, request, made = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
    (folder / "names.conf").write_text("subjectAltName = " + ", ".join(f"IP:{address}" for address in addresses))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, "req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    signing = ("-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial", "-days", "36500")
    openssl(folder, "x509", "-req", *signing, "-extfile", "names.conf", "-in", request, "-out", made)
    return Pair(made, key)


def encrypted(key: Path) -> Path:
    """Return a copy of a key that is encrypted with a password."""
    made = key.with_suffix(".secret")
    openssl(key.parent, "ec", "-in", key, "-out", made, "-aes256", "-passout", "pass:sesame")
    return made


def openssl(folder: Path, *arguments: str | Path) -> None:
    """Run `openssl` in a folder."""
    subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True)
