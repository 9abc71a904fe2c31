"""`rdf_iri` and `rdf_literal`: values to symbols that are terms of RDF.

In: columns of codes with their types, and the texts of symbols. Out: codes of symbols. The forms are those of R2RML's
natural mapping (https://www.w3.org/TR/r2rml/#natural-mapping): a number is an xsd:integer, a float an xsd:double in its
canonical form ("1.5E0"), a bool an xsd:boolean, a symbol plain text; a float that is to be an xsd:decimal is written
without an exponent. Always: what is written has exactly the float's value. Python runs once for each distinct row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np

from engine.data.codes import Codes
from engine.expressions.distinct import Places, at, distinct_rows
from engine.expressions.strings import refuse_distinct
from engine.expressions.texts import Texts
from engine.language import rdf_terms
from engine.language.schema import ColumnType

_DATATYPES: Final[dict[ColumnType | None, str]] = {
    ColumnType.NUMBER: rdf_terms.INTEGER,
    ColumnType.FLOAT: rdf_terms.DOUBLE,
    ColumnType.BOOL: rdf_terms.BOOLEAN,
}


def iri(types: Sequence[ColumnType | None], texts: Texts, template: Codes, *parts: Codes) -> Codes:
    """types: those of the parts."""
    rows, place = distinct_rows([template, *parts])
    written = [_lexical(texts, kind, at(part, rows)) for kind, part in zip(types, parts, strict=True)]
    each = zip(texts.texts(at(template, rows)), *written, strict=True)
    return _symbols(texts, lambda row: rdf_terms.iri(row[0], row[1:]), each, place)


def literal(kind: ColumnType | None, texts: Texts, value: Codes, *suffix: Codes) -> Codes:
    """kind: the type of the value. suffix: one column, or none."""
    rows, place = distinct_rows([value, *suffix])
    written = _lexical(texts, kind, at(value, rows))
    suffixes = texts.texts(at(suffix[0], rows)) if suffix else [_DATATYPES.get(kind)] * len(rows)
    if kind is ColumnType.FLOAT and rdf_terms.DECIMAL in suffixes:
        decimals = [_decimal(x) for x in at(value, rows).view(np.float64).tolist()]
        wanted = [suffix == rdf_terms.DECIMAL for suffix in suffixes]
        written = [d if w else text for d, w, text in zip(decimals, wanted, written, strict=True)]
    each = zip(written, suffixes, strict=True)
    return _symbols(texts, lambda row: rdf_terms.literal(*row), each, place)


def _symbols(texts: Texts, write: Callable[[Any], str], rows: Iterable[Any], place: Places) -> Codes:
    symbols: list[str] = []
    bad: dict[int, str] = {}
    for i, row in enumerate(rows):
        try:
            symbols.append(write(row))
        except ValueError as error:
            bad[i] = str(error)
    refuse_distinct(bad, place)
    return texts.intern_all(symbols)[place]


def _lexical(texts: Texts, kind: ColumnType | None, codes: Codes) -> list[str]:
    """Values as RDF writes them."""
    match kind:
        case ColumnType.NUMBER:
            return [str(value) for value in codes.tolist()]
        case ColumnType.FLOAT:
            return [_double(value) for value in codes.view(np.float64).tolist()]
        case ColumnType.BOOL:
            return ["true" if value else "false" for value in codes.tolist()]
        case _:
            return texts.texts(codes)


def _double(value: float) -> str:
    """The canonical form of an xsd:double: one digit before the point, at least one behind it."""
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _decimal(value: float) -> str:
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
