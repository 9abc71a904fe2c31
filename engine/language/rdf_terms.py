"""RDF terms from values: the texts of the functors `rdf_iri` and `rdf_literal`, and what may stand in them.

In: a template and texts, or a text and what follows it. Out: the symbol of the term, or a `ValueError` whose text
continues a sentence that starts with the functor.
Always: symbols are in the canonical form of N-Triples, as imports write them, so equal terms are equal symbols. A value
becomes part of an IRI as in R2RML (https://www.w3.org/TR/r2rml/#from-template): every character that is not in
`iunreserved` of RFC 3987 is percent-encoded, so that a value stays the part of the IRI for which it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from engine.language.syntax import Constant, FunctorCall

IRI: Final = "rdf_iri"
LITERAL: Final = "rdf_literal"
FUNCTORS: Final = frozenset({IRI, LITERAL})
HOLE: Final = "{}"
"""Where a value goes in a template. No IRI holds braces."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
INTEGER, DOUBLE, BOOLEAN, DECIMAL = (
    f"<{_XSD}{name}>" for name in ("integer", "double", "boolean", "decimal")
)
_PLAIN = f"<{_XSD}string>"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NEEDS_TAG = frozenset({f"<{_RDF}langString>", f"<{_RDF}dirLangString>"})
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f<>\"{}|^`\\]*")
# Only a text from an older state can hold half of a pair.
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r"@[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")
_ENCODED = re.compile(
    r"[^A-Za-z0-9._~\-\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14))
    + "\U000e1000-\U000efffd]"
)
_WRITTEN = {
    **{code: f"\\u{code:04X}" for code in (*range(0x20), 0x7F)},
    **str.maketrans(
        {"\t": "\\t", "\b": "\\b", "\n": "\\n", "\r": "\\r", "\f": "\\f", '"': '\\"', "\\": "\\\\"}
    ),
}


def is_iri(text: str) -> bool:
    """Whether it is an absolute IRI, without its angle brackets."""
    return _ABSOLUTE.fullmatch(text) is not None and not _SURROGATE.search(text)


def iri(template: str, parts: Sequence[str]) -> str:
    """The symbol of the IRI in which the parts stand, percent-encoded, in place of `{}`.

    Raises:
        ValueError: the template has another number of places, or is not an absolute IRI.
    """
    pieces = _pieces(template, len(parts))
    filled = [piece + _encoded(part) for piece, part in zip(pieces, parts, strict=False)]
    return f"<{''.join(filled)}{pieces[-1]}>"


@lru_cache(maxsize=1024)
def _pieces(template: str, count: int) -> list[str]:
    """What stands around the places of a template that is sound and has so many."""
    pieces = template.split(HOLE)
    if len(pieces) != count + 1:
        raise ValueError(f"has no value, because the template has {len(pieces) - 1} {HOLE}, not {count}")
    if not is_iri("".join(pieces)) or ":" not in pieces[0]:
        raise ValueError("has no value, because the text is not an absolute IRI, such as http://example.org/")
    return pieces


def literal(text: str, suffix: str | None = None) -> str:
    """The symbol of a literal. suffix: the symbol of its datatype, or `@` and a language tag; without it the literal is
    a plain text.

    Raises:
        ValueError: the suffix is neither.
    """
    quoted = f'"{text.translate(_WRITTEN)}"'
    return quoted if suffix is None else quoted + _suffix(suffix)


@lru_cache(maxsize=1024)
def _suffix(suffix: str) -> str:
    """What stands behind the quotes."""
    if suffix == _PLAIN:
        return ""
    if _TAG.fullmatch(suffix):
        return suffix.lower()
    if not (suffix.startswith("<") and suffix.endswith(">") and is_iri(suffix[1:-1])):
        raise ValueError('has no value, because its type is neither an IRI, "<...>", nor a language, "@en"')
    if suffix in _NEEDS_TAG:
        raise ValueError('has no value, because a literal of this type has a language, such as "@en"')
    return f"^^{suffix}"


def fault(call: FunctorCall) -> str | None:
    """Why a call of one of the two functors has no value whatever its variables are; None if nothing says so."""
    try:
        match call:
            case FunctorCall(functor="rdf_iri", arguments=(Constant(value=str(template)), *parts)):
                _pieces(template, len(parts))
            case FunctorCall(functor="rdf_literal", arguments=(_, Constant(value=str(suffix)))):
                _suffix(suffix)
    except ValueError as error:
        return str(error)
    return None


def may_fail(call: FunctorCall) -> bool:
    """Whether it is a call of one of the two functors that has no value for some values of its variables."""
    if call.functor not in FUNCTORS or (call.functor == LITERAL and len(call.arguments) == 1):
        return False
    return not (isinstance(call.arguments[0 if call.functor == IRI else 1], Constant) and fault(call) is None)


def _encoded(text: str) -> str:
    return _ENCODED.sub(_percent, text)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
