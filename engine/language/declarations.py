"""Declarations and directives: look up types, check names, make one node for each relation that a directive names.

In: the texts of directives as builder.py leaves them. Out: `Declaration` and `Directive`, or a `Fault`. The settings of
`fixpoint` are checked here: tolerance is finite and not negative, max_height positive.
Type aliases are other names for the four types: `.type Node <: symbol` makes `Node` mean `symbol`. The distinctions
that Souffle makes between subtypes are not made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lark import Token

from engine.errors import DeclarationError, UnsupportedFeatureError
from engine.language.operators import closest
from engine.language.parts import DeclarationText, DirectiveText, Fault, TypeText, span_of
from engine.language.schema import Column, ColumnType
from engine.language.syntax import FIXPOINT, Constant, Declaration, Directive, Fixpoint

_BUILT_IN = {type_.value: type_ for type_ in ColumnType}
# How a relation is stored is the placement's choice; these hints change no result.
_INPUT_OUTPUT = ("input", "output", "printsize")
# A height is kept in 31 bits beside a sign.
_LARGEST_HEIGHT = 1_000_000_000


def type_names(aliases: Sequence[TypeText]) -> dict[str, ColumnType]:
    """Every type name with the type that it denotes. Aliases may refer to ones that are defined later.

    Raises:
        Fault: an alias is defined twice, in terms of itself, by different types, or by an unknown type.
    """
    defined: dict[str, TypeText] = {}
    for alias in aliases:
        if alias.name in defined or alias.name in _BUILT_IN:
            raise Fault(DeclarationError, f"the type {alias.name} is already defined", span_of(alias.name))
        defined[alias.name.value] = alias
    users: dict[str, list[TypeText]] = {}
    for alias in aliases:
        for base in set(alias.bases):
            if base not in defined:
                _look_up(base, {**_BUILT_IN})
            users.setdefault(base.value, []).append(alias)
    # Kahn's order from the built-in types outwards: no recursion, however long a chain of aliases is.
    known = dict(_BUILT_IN)
    missing = {name: len(set(alias.bases)) for name, alias in defined.items()}
    ready = list(_BUILT_IN)
    while ready:
        for alias in users.get(ready.pop(), ()):
            missing[alias.name] -= 1
            if missing[alias.name] == 0:
                known[alias.name.value] = _common_base(alias, known)
                ready.append(alias.name.value)
    for name, alias in defined.items():
        if name not in known:
            raise Fault(
                DeclarationError, f"the type {name} is defined in terms of itself", span_of(alias.name)
            )
    return known


def declarations_of(text: DeclarationText, types: Mapping[str, ColumnType], source: str) -> list[Declaration]:
    """One declaration for each relation that the directive names.

    Raises:
        Fault: two columns have the same name, or a type is unknown.
    """
    seen: set[str] = set()
    for column in text.columns:
        if column.name in seen:
            raise Fault(DeclarationError, f"two columns are called {column.name}", column.span)
        seen.add(column.name)
    columns = tuple(Column(column.name, _look_up(column.type, types)) for column in text.columns)
    spans = tuple(column.span for column in text.columns)
    qualifiers = tuple(q.value for q in text.qualifiers if q != FIXPOINT)
    fixpoint = _fixpoint(text)
    return [
        Declaration(name.value, columns, qualifiers, text.span, spans, source, fixpoint)
        for name in text.names
    ]


def directives_of(text: DirectiveText | DeclarationText) -> list[Directive]:
    """One directive for each relation; the old form `.decl r(...) output` is an `.output` too."""
    if isinstance(text, DirectiveText):
        return [Directive(text.kind, name.value, tuple(text.parameters), text.span) for name in text.names]
    kinds = [q for q in text.qualifiers if q in _INPUT_OUTPUT]
    return [Directive(kind.value, name.value, (), span_of(kind)) for name in text.names for kind in kinds]


def _fixpoint(text: DeclarationText) -> Fixpoint | None:
    """The settings of the qualifier `fixpoint`, if it is there."""
    bare = [q for q in text.qualifiers if q == FIXPOINT]
    words = [*bare, *(given.word for given in text.fixpoints)]
    if len(words) > 1:
        raise Fault(
            DeclarationError, "the qualifier fixpoint is given twice in this declaration", span_of(words[-1])
        )
    if not text.fixpoints:
        return Fixpoint() if bare else None
    settings: dict[str, Constant] = {}
    for name, value in text.fixpoints[0].settings:
        if name not in _SETTINGS:
            near = closest(name, list(_SETTINGS))
            hint = f"did you mean {near}?" if near else f"the known settings are {', '.join(_SETTINGS)}"
            raise Fault(DeclarationError, f"fixpoint has no setting {name}; {hint}", span_of(name))
        if name in settings:
            raise Fault(DeclarationError, f"the setting {name} is given twice", span_of(name))
        settings[name.value] = value
    return Fixpoint(**{name: _SETTINGS[name](value) for name, value in settings.items()})


def _tolerance(constant: Constant) -> float:
    value = float(constant.value)
    if not 0 <= value < math.inf:
        raise Fault(
            DeclarationError, "tolerance must be a number of at least 0; 0 means exact", constant.span
        )
    return value + 0.0


def _max_height(constant: Constant) -> int:
    value = constant.value
    if not isinstance(value, int) or not 1 <= value <= _LARGEST_HEIGHT:
        message = f"max_height must be a whole number from 1 to {_LARGEST_HEIGHT}"
        raise Fault(DeclarationError, message, constant.span)
    return value


_SETTINGS: dict[str, Callable[[Constant], Any]] = {"tolerance": _tolerance, "max_height": _max_height}


def _look_up(name: Token, types: Mapping[str, ColumnType]) -> ColumnType:
    if name in types:
        return types[name]
    if name == "unsigned":
        message = "the type unsigned is not part of Zedlog's language; number is a signed 64-bit integer"
        raise Fault(UnsupportedFeatureError, message, span_of(name))
    near = closest(name, list(types))
    hint = f"did you mean {near}?" if near else f"the known types are {', '.join(types)}"
    raise Fault(DeclarationError, f"unknown type {name}; {hint}", span_of(name))


def _common_base(alias: TypeText, known: Mapping[str, ColumnType]) -> ColumnType:
    first = known[alias.bases[0]]
    for base in alias.bases[1:]:
        if known[base] is not first:
            mixed = f"{first.value} ({alias.bases[0]}) and {known[base].value} ({base})"
            raise Fault(DeclarationError, f"the type {alias.name} mixes {mixed}", span_of(base))
    return first
