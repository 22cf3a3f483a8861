"""Which API keys are accepted: the document `keys.yaml` of the Secret that `spec.routing.auth` names. Pure.

    - name: mobile-app            # of the key: in logs, metrics and messages
      sha256: 2cf24dba5fb0a3…     # of the key, in hex; or the key itself, as `key`
      tenant: mobile              # who shares cached KV and rate of admission; the name by default
      maxClass: interactive       # the most urgent class that it may ask for
      weight: 2                   # share of the tenant where tenants compete; 1 by default
      requestsPerMinute: 600
      tokensPerMinute: 100000

A key given in plain text is hashed here and forgotten. An error names the entry by its place (from 1) and its
name, and never repeats a value: any of them may be a key that slipped into the wrong field. That is also why
the YAML is read event by event: the messages of the YAML library quote the text, and its trees grow without
bound.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import yaml

LARGEST_FILE_BYTES = 512 * 1024
MOST_KEYS = 1000
"""Every key is compared with for each request, see `auth`."""
SHORTEST_KEY = 8
LONGEST_KEY = 512
MOST_PER_MINUTE = 10**12
LARGEST_WEIGHT = 1000

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TENANT = re.compile(r"[\x21-\x7e]{1,128}")
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_KEY = re.compile(rf"[\x21-\x7e]{{{SHORTEST_KEY},{LONGEST_KEY}}}")
_WHOLE = re.compile(r"[0-9]{1,13}")
_A_WORD = re.compile(r"[A-Za-z]{1,24}")
"""What a field may be called and still be repeated in a message; keys have digits or dashes."""

EventT = TypeVar("EventT", bound=yaml.Event)

FIELDS = ("name", "sha256", "key", "tenant", "maxClass", "weight", "requestsPerMinute", "tokensPerMinute")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class BadKeysError(ValueError):
    """The document cannot be used. The message names the entry and repeats no value of it but its name."""


@dataclass(frozen=True)
class Entry:
    """One accepted key."""

    name: str
    sha256: bytes
    tenant: str
    max_class: str = ""
    """Empty: any."""
    weight: int = 1
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


def hashed(key: str) -> bytes:
    """What is kept and compared of a key. Of a header it may hold bytes that are no text."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def rendered(fields: Mapping[str, str | int | None]) -> str:
    """An entry as text that `parse` reads, without the fields that are None."""
    lines = [f"{field}: {_quoted(str(value))}" for field, value in fields.items() if value is not None]
    return "".join(f"{'  ' if number else '- '}{line}\n" for number, line in enumerate(lines))


def _quoted(value: str) -> str:
    """In quotes where YAML could take it for something else."""
    is_plain = re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]*", value)
    return value if is_plain else "'" + value.replace("'", "''") + "'"


def parse(content: bytes) -> tuple[Entry, ...]:
    """The entries of the document, in its order. Raises BadKeysError."""
    if len(content) > LARGEST_FILE_BYTES:
        raise BadKeysError(f"keys.yaml is larger than {LARGEST_FILE_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadKeysError("keys.yaml is not UTF-8 text") from None
    entries: list[Entry] = []
    for number, fields in enumerate(_mappings(text), start=1):
        if number > MOST_KEYS:
            raise BadKeysError(f"keys.yaml has more than {MOST_KEYS} entries")
        entries.append(_entry(number, fields))
    _check_together(entries)
    return tuple(entries)


def _check_together(entries: list[Entry]) -> None:
    """Raises BadKeysError for entries that contradict each other."""
    by_name: dict[str, int] = {}
    by_hash: dict[bytes, int] = {}
    by_tenant: dict[str, int] = {}
    for number, entry in enumerate(entries, start=1):
        where = _where(number, entry.name)
        if (earlier := by_name.setdefault(entry.name, number)) != number:
            raise BadKeysError(f"{where}: entry {earlier} has the same name")
        if (earlier := by_hash.setdefault(entry.sha256, number)) != number:
            raise BadKeysError(f"{where}: {_where(earlier, entries[earlier - 1].name)} has the same key")
        earlier = by_tenant.setdefault(entry.tenant, number)
        first = entries[earlier - 1]
        if first.weight != entry.weight:
            other = _where(earlier, first.name)
            raise BadKeysError(f"{where}: its weight differs from that of {other}, which has the same tenant")


def _where(number: int, name: str) -> str:
    return f"entry {number} ({name})" if name else f"entry {number}"


def _entry(number: int, fields: Mapping[str, str]) -> Entry:
    name = fields.get("name", "")
    if not _NAME.fullmatch(name):
        raise BadKeysError(
            f"{_where(number, '')}: name must be 1 to 63 letters, digits, dots, dashes or underscores"
        )
    if name == fields.get("key"):
        raise BadKeysError(f"{_where(number, '')}: name and key are the same")
    where = _where(number, name)
    for field in fields:
        if field not in FIELDS:
            shown = f" {field}" if _A_WORD.fullmatch(field) else ""
            raise BadKeysError(f"{where}: unknown field{shown}; fields are {', '.join(FIELDS)}")
    return Entry(
        name=name,
        sha256=_sha256(where, fields),
        tenant=_text(where, fields, "tenant", _TENANT, "1 to 128 visible ASCII characters") or name,
        max_class=_text(where, fields, "maxClass", _CLASS, "the name of a class"),
        weight=_number(where, fields, "weight", LARGEST_WEIGHT) or 1,
        requests_per_minute=_number(where, fields, "requestsPerMinute", MOST_PER_MINUTE),
        tokens_per_minute=_number(where, fields, "tokensPerMinute", MOST_PER_MINUTE),
    )


def _sha256(where: str, fields: Mapping[str, str]) -> bytes:
    if ("sha256" in fields) == ("key" in fields):
        raise BadKeysError(f"{where}: give either sha256 or key")
    if "sha256" in fields:
        if not _SHA256.fullmatch(fields["sha256"]):
            raise BadKeysError(f"{where}: sha256 must be 64 hex digits")
        return bytes.fromhex(fields["sha256"])
    if not _KEY.fullmatch(fields["key"]):
        raise BadKeysError(f"{where}: key must be {SHORTEST_KEY} to {LONGEST_KEY} visible ASCII characters")
    return hashed(fields["key"])


def _text(where: str, fields: Mapping[str, str], field: str, form: re.Pattern[str], allowed: str) -> str:
    value = fields.get(field, "")
    if field in fields and not form.fullmatch(value):
        raise BadKeysError(f"{where}: {field} must be {allowed}")
    return value


def _number(where: str, fields: Mapping[str, str], field: str, largest: int) -> int | None:
    if field not in fields:
        return None
    value = fields[field]
    if not _WHOLE.fullmatch(value) or not 1 <= int(value) <= largest:
        raise BadKeysError(f"{where}: {field} must be a whole number from 1 to {largest}")
    return int(value)


def _mappings(text: str) -> Iterator[dict[str, str]]:
    """The mappings of a YAML list of flat mappings, every scalar as the text that it is written as.

    No type is guessed, so that a hash of digits alone is no number and a name `no` is no boolean.
    """
    events = _Events(text)
    events.take(yaml.StreamStartEvent)
    # Nothing at all is a mishap more likely than the wish to let nobody in.
    events.take(yaml.DocumentStartEvent, "a list of entries; write [] to accept no key")
    events.take(yaml.SequenceStartEvent, "a list of entries, each of which begins with a dash")
    number = 1
    while not isinstance(events.next, yaml.SequenceEndEvent):
        yield _mapping(events, f"entry {number}")
        number += 1
    events.take(yaml.SequenceEndEvent)
    events.take(yaml.DocumentEndEvent)
    events.take(yaml.StreamEndEvent, "one document, not several")


def _mapping(events: "_Events", where: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    events.take(yaml.MappingStartEvent, f"fields such as `name: value` in {where}")
    while not isinstance(events.next, yaml.MappingEndEvent):
        line = events.line
        field = events.scalar(f"the name of a field in {where}")
        value = events.scalar(f"one value for each field of {where}")
        if field in fields:
            raise BadKeysError(f"keys.yaml line {line}: {where} has a field twice")
        fields[field] = value
    events.take(yaml.MappingEndEvent)
    # `tenant:` without a value is a field that is not set.
    return {field: value for field, value in fields.items() if value not in _NULLS}


class _Events:
    """The events of a YAML text, one ahead. Every fault becomes a BadKeysError with nothing but a line."""

    def __init__(self, text: str) -> None:
        self._events = iter(yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))
        self.next = self._read()

    @property
    def line(self) -> int:
        return self.next.start_mark.line + 1 if self.next.start_mark is not None else 1

    def take(self, kind: type[EventT], wanted: str = "a list of flat entries") -> EventT:
        """The next event, which must be of that kind."""
        taken = self.next
        if not isinstance(taken, kind):
            raise BadKeysError(f"keys.yaml line {self.line}: must be {wanted}")
        if not isinstance(taken, yaml.StreamEndEvent):
            self.next = self._read()
        return taken

    def scalar(self, wanted: str) -> str:
        """Its text. Anchors, aliases and tags have no use here and are refused."""
        line = self.line
        taken = self.take(yaml.ScalarEvent, wanted)
        if taken.anchor is not None or taken.tag is not None:
            raise BadKeysError(f"keys.yaml line {line}: a text that begins with & or ! must be in quotes")
        return str(taken.value)

    def _read(self) -> yaml.Event:
        try:
            return next(self._events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f" line {mark.line + 1}" if mark is not None else ""
            raise BadKeysError(f"keys.yaml{where}: not valid YAML") from None
        except yaml.YAMLError:
            raise BadKeysError("keys.yaml: not valid YAML") from None
