"""Names of sources, and of the hidden collections that hold what each source asserts.

A source is a name under which facts are sent, so that they can be taken back or replaced together. What the source `hr`
asserts of the relation `edge` is kept in a collection of its own, `edge (from hr)`, beside the relation: no program
text can contain this name, and people never see it (`is_hidden`).
"""

from __future__ import annotations

from engine.errors import InvalidRequestError, shown

MAX_SOURCE = 200
"""The most characters of a source's name."""
_FROM, _END = " (from ", ")"
_FORBIDDEN = frozenset("/\\()")


def sourced(relation: str, source: str) -> str:
    """The name of the hidden collection of what a source asserts of a relation."""
    return f"{relation}{_FROM}{source}{_END}"


def origin(name: str) -> tuple[str, str] | None:
    """The relation and the source of a hidden collection; None for a relation of people. The inverse of `sourced`."""
    relation, separator, source = name.partition(_FROM)
    return (relation, source.removesuffix(_END)) if separator else None


def relation_of(name: str) -> str:
    """The relation of people that a collection belongs to; a relation belongs to itself."""
    return name.partition(_FROM)[0]


def is_hidden(name: str) -> bool:
    """Whether a collection is internal to the product, so that nobody may be shown it as a relation."""
    return _FROM in name


def check_source(source: str) -> str:
    """A source's name as it came from a client, checked.

    Raises:
        InvalidRequestError: it is empty, too long, or has characters that it must not have.
    """
    if not isinstance(source, str) or not source or len(source) > MAX_SOURCE or not source.isprintable():
        raise InvalidRequestError(
            f"a source is a name of 1 to {MAX_SOURCE} printable characters, not {shown(source)}",
            field="source",
        )
    if source != source.strip() or source.strip(".") == "" or not _FORBIDDEN.isdisjoint(source):
        raise InvalidRequestError(
            "the name of a source must not begin or end with a space, consist of dots, or contain a slash, a backslash "
            f"or a parenthesis, but it is {shown(source)}",
            field="source",
        )
    return source
