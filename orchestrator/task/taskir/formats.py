"""The formats of JSON Schema that are enforced: what they accept, and which of it a grammar writes.

Dates and times follow RFC 3339, section 5.6, with real month lengths but without leap seconds and the year 0. `email`
accepts dot-atoms (RFC 5322, section 3.4.1) at a host name.
"""

from typing import Final, NamedTuple


class TextFormat(NamedTuple):
    """Two regular expressions. What `written` matches, `accepted` matches too."""

    written: str  # for a grammar, so without a quantifier inside a repetition
    accepted: str


_YEAR: Final = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_BY_FOUR: Final = "(?:0[48]|[2468][048]|[13579][26])"
_MONTHS: Final = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE: Final = f"(?:{_YEAR}-{_MONTHS}|(?:[0-9]{{2}}{_BY_FOUR}|{_BY_FOUR}00)-02-29)"
_HOUR: Final = "(?:[01][0-9]|2[0-3])"
_CLOCK: Final = f"{_HOUR}:[0-5][0-9]:[0-5][0-9]"
_OFFSET: Final = f"[+-]{_HOUR}:[0-5][0-9]"
_TIME: Final = TextFormat(rf"{_CLOCK}(?:\.[0-9]{{1,6}})?(?:Z|{_OFFSET})", rf"{_CLOCK}(?:\.[0-9]+)?(?:[Zz]|{_OFFSET})")
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9][0-9]|[0-9])"
_UUID: Final = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SHORT_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_EMAIL: Final = TextFormat(
    rf"[A-Za-z0-9_+-]{{1,32}}(?:\.[A-Za-z0-9_+-]{{1,31}})?"
    rf"@{_SHORT_LABEL}\.(?:{_SHORT_LABEL}\.)?(?:{_SHORT_LABEL}\.)?[A-Za-z]{{2,24}}",
    rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*",
)


def _whole(written: str, accepted: str | None = None) -> TextFormat:
    return TextFormat(f"^{written}$", f"^{accepted or written}$")


FORMATS: Final = {
    "date": _whole(_DATE),
    "time": _whole(*_TIME),
    "date-time": _whole(f"{_DATE}T{_TIME.written}", f"{_DATE}[Tt]{_TIME.accepted}"),
    "uuid": _whole(_UUID),
    "ipv4": _whole(r"\.".join([_BYTE] * 4)),
    "email": _whole(*_EMAIL),
}
# The other formats of JSON Schema (2020-12). Any further name is an annotation, as `int32` is.
NOT_ENFORCED: Final = frozenset(
    "duration hostname idn-email idn-hostname ipv6 iri iri-reference json-pointer regex relative-json-pointer uri "
    "uri-reference uri-template".split()
)
