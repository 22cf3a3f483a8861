"""The OpenMetrics format, which alone can carry exemplars: who asks for it, and an engine's metrics in it.

Engines answer in Prometheus' text format. The two differ in how a counter's family is named, in families
that say when something was created (they may not stand alone here), and in the end mark; lines of values
are alike.
"""

import re

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
END = b"# EOF\n"
_MEDIA_TYPE = "application/openmetrics-text"
_TYPES = frozenset({b"counter", b"gauge", b"histogram", b"summary", b"unknown"})
_META = re.compile(rb"# (HELP|TYPE) ([^ ]+) ?(.*)")


def of(registry: CollectorRegistry) -> bytes:
    """All metrics of a registry, without the end mark."""
    text: bytes = exposition.generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.removesuffix(END)


def is_accepted(accept: str) -> bool:
    """Whether a scraper that sends this header takes the format."""
    for each in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in each.split(";"))
        if media_type == _MEDIA_TYPE:
            return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return False


def from_text(text: bytes) -> bytes:
    """Metrics of the text format 0.0.4 without the end mark."""
    kinds = {match[2]: match[3] for match in _META.finditer(text) if match[1] == b"TYPE"}
    lines: list[bytes] = []
    is_kept = True
    for line in text.split(b"\n"):
        if line.startswith(b"#"):
            meta = _META.fullmatch(line)
            if meta is None:
                continue  # a comment
            family = meta[2]
            is_kept = not _is_creation_time(family, kinds)
            line = _meta_line(meta, kinds.get(family, b"unknown"))
        elif not line.strip():
            continue
        if is_kept:
            lines.append(line)
    return b"".join(line + b"\n" for line in lines)


def _is_creation_time(family: bytes, kinds: dict[bytes, bytes]) -> bool:
    base = family.removesuffix(b"_created")
    return base != family and (base in kinds or base + b"_total" in kinds)


def _meta_line(meta: re.Match[bytes], kind: bytes) -> bytes:
    word, family, rest = meta.groups()
    if kind == b"counter":
        if not family.endswith(b"_total"):
            kind = b"unknown"  # its values lack the suffix that a counter's must have
        family = family.removesuffix(b"_total")
    if word == b"TYPE":
        rest = kind if kind in _TYPES else b"unknown"
    return b"# " + word + b" " + family + b" " + rest
