"""From grammar.lark to the syntax tree: one method for each rule and token of the grammar.

In: the values of a rule's parts, bottom up, while lark parses. Out: nodes of `syntax`, and for clauses and directives
those of parts.py, which do not refer to the source text (parser.py adds it).
Always: a fault in the text is raised as `Fault`; nothing recurses, so the depth of the text costs no stack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from lark import Token, Transformer

from engine.errors import ProgramSyntaxError, Span, UnsafeRuleError, UnsupportedFeatureError
from engine.language import constants, mappings, operators, prefixes
from engine.language.bodies import Alternatives, check_size, conjoin, deeper, disjoin, negate
from engine.language.expressions import bounded, group_by_precedence, in_range, read_constant
from engine.language.parts import (
    Clause,
    ColumnText,
    DeclarationText,
    DirectiveText,
    Fault,
    FixpointText,
    Names,
    Parameters,
    PrefixText,
    TypeText,
    between,
    join,
    span_of,
)
from engine.language.schema import ColumnType
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Constant,
    FunctorCall,
    HeadAggregate,
    Literal,
    Term,
    Variable,
    Wildcard,
    walk,
)

Part = Any  # what lark hands over: a token, or what another method returned


def _unsupported(what: str, span: Span) -> NoReturn:
    raise Fault(UnsupportedFeatureError, f"{what} are not part of Zedlog's language", span)


class TreeBuilder(Transformer[Token, Any]):
    """The callbacks; lark calls them by name."""

    # Tokens. Each becomes its value when it is read.

    def STRING(self, token: Token) -> Constant:
        return read_constant(token, constants.read_symbol, ColumnType.SYMBOL)

    def PREFIXED(self, token: Token) -> Constant:
        return Constant(prefixes.symbol_of(token), ColumnType.SYMBOL, span_of(token))

    def NUMBER(self, token: Token) -> Constant:
        return read_constant(token, constants.read_number, ColumnType.NUMBER)

    def FLOAT(self, token: Token) -> Constant:
        return read_constant(token, constants.read_float, ColumnType.FLOAT)

    def BOOL(self, token: Token) -> Constant:
        return Constant(token == "true", ColumnType.BOOL, span_of(token))

    def WILDCARD(self, token: Token) -> Wildcard:
        return Wildcard(span_of(token))

    def FOREIGN_TERM(self, token: Token) -> NoReturn:
        _unsupported(operators.FOREIGN_TERMS[token], span_of(token))

    def FOREIGN_BLOCK(self, token: Token) -> NoReturn:
        _unsupported("algebraic data types", span_of(token))

    def FOREIGN_DIRECTIVE(self, token: Token) -> NoReturn:
        if token in operators.FOREIGN_DIRECTIVES:
            _unsupported(operators.FOREIGN_DIRECTIVES[token], span_of(token))
        near = operators.closest(token, operators.DIRECTIVES)
        hint = (
            f"; did you mean {near}?"
            if near
            else f"; the known directives are {', '.join(operators.DIRECTIVES)}"
        )
        raise Fault(
            ProgramSyntaxError, f"unknown directive {constants.shortened(token)}{hint}", span_of(token)
        )

    def QUALIFIER(self, token: Token) -> Token:
        if token == "eqrel":
            _unsupported("equivalence relations (eqrel)", span_of(token))
        if token == "choice-domain":
            _unsupported("choice domains", span_of(token))
        if token == "overridable":
            _unsupported("components (overridable)", span_of(token))
        return token

    # Terms

    def variable(self, parts: list[Part]) -> Variable:
        token = parts[0]
        if token in operators.RESERVED:
            raise Fault(
                ProgramSyntaxError, f"'{token}' is a reserved word and cannot name a variable", span_of(token)
            )
        return Variable(token.value, span_of(token))

    def parenthesis(self, parts: list[Part]) -> Term:
        term: Term = parts[1]
        in_range(term)
        return term

    def operation(self, parts: list[Part]) -> Term:
        return group_by_precedence(parts)

    def functor(self, parts: list[Part]) -> FunctorCall:
        name, *arguments, end = parts
        span = between(name, end)
        least, most = operators.FUNCTORS[name]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            wanted = f"at least {least}" if most is None else str(least)
            raise Fault(
                ProgramSyntaxError,
                f"the functor {name} takes {wanted} argument{'s' if least > 1 else ''}, not {len(arguments)}",
                span,
            )
        return bounded(FunctorCall(name.value, _terms(arguments), span))

    def aggregate_block(self, parts: list[Part]) -> tuple[list[Literal], Span]:
        alternatives, end = parts
        if len(alternatives.bodies) > 1:
            message = (
                "alternatives (;) in an aggregate are not supported; move them into a relation of their own"
            )
            raise Fault(UnsupportedFeatureError, message, span_of(end))
        return alternatives.bodies[0], span_of(end)

    def aggregate(self, parts: list[Part]) -> Aggregate:
        name, *argument, block = parts
        body, end = ([block], block.span) if isinstance(block, Atom) else block
        for term in argument:
            in_range(term)
        span = join(span_of(name), end)
        return bounded(Aggregate(name.value, argument[0] if argument else None, tuple(body), span))

    def head_aggregate(self, parts: list[Part]) -> HeadAggregate:
        name, argument, end = parts
        in_range(argument)
        return bounded(HeadAggregate(name.value, argument, between(name, end)))

    # Literals and bodies

    def head_atom(self, parts: list[Part]) -> Atom:
        name = parts[0]
        _check_relation(name)
        return Atom(name.value, _terms(parts[1:-1]), between(name, parts[-1]))

    atom = head_atom

    def comparison(self, parts: list[Part]) -> Comparison:
        left, operator, right = parts
        in_range(left)
        in_range(right)
        return Comparison(str(operator), left, right, join(left.span, right.span))

    def text_condition(self, parts: list[Part]) -> Comparison:
        name, left, right, end = parts
        in_range(left)
        in_range(right)
        return Comparison(name.value, left, right, between(name, end))

    def truth(self, parts: list[Part]) -> Comparison:
        """`true` or `false` as a literal: it has the canonical text of the condition that it abbreviates."""
        constant: Constant = parts[0]
        return Comparison("=", Constant(True, ColumnType.BOOL, constant.span), constant, constant.span)

    def negation(self, parts: list[Part]) -> Literal | Alternatives:
        return negate(parts[1], span_of(parts[0]))

    def group(self, parts: list[Part]) -> Alternatives:
        inner = parts[1]
        return Alternatives(inner.bodies, deeper(inner.depth, span_of(parts[0])))

    def conjunction(self, parts: list[Part]) -> Alternatives:
        return conjoin(parts)

    def body(self, parts: list[Part]) -> Alternatives:
        return disjoin(parts)

    # Clauses and directives

    def heads(self, parts: list[Part]) -> list[Atom]:
        return parts

    def fact(self, parts: list[Part]) -> Clause:
        heads, dot = parts
        for atom in heads:
            for term in atom.terms:
                if not isinstance(term, Constant):
                    _check_in_fact(term)
        return Clause(heads, None, join(heads[0].span, span_of(dot)))

    def rule(self, parts: list[Part]) -> Clause:
        heads, body, dot = parts
        check_size(len(heads) * len(body.bodies), 1, heads[-1].span)
        return Clause(heads, body.bodies, join(heads[0].span, span_of(dot)))

    def subsumption(self, parts: list[Part]) -> NoReturn:
        _unsupported("subsumption clauses (head <= head :- ...)", span_of(parts[1]))

    def names(self, parts: list[Part]) -> Names:
        for name in parts:
            _check_relation(name)
        return Names(parts)

    def column(self, parts: list[Part]) -> ColumnText:
        name, type_ = parts
        return ColumnText(name.value, type_, between(name, type_))

    def declaration(self, parts: list[Part]) -> DeclarationText:
        columns = [part for part in parts if isinstance(part, ColumnText)]
        qualifiers = [part for part in parts[3 + len(columns) :] if isinstance(part, Token)]
        fixpoints = [part for part in parts if isinstance(part, FixpointText)]
        last = parts[-1].end if isinstance(parts[-1], FixpointText) else parts[-1]
        return DeclarationText(parts[1].names, columns, qualifiers, fixpoints, between(parts[0], last))

    def setting(self, parts: list[Part]) -> tuple[Token, Constant]:
        name, *sign, value = parts[0], *parts[2:]
        return (name, replace(value, value=-value.value)) if sign else (name, value)

    def fixpoint(self, parts: list[Part]) -> FixpointText:
        return FixpointText(parts[0], parts[1:-1], parts[-1])

    def prefix(self, parts: list[Part]) -> PrefixText:
        return prefixes.declare(*parts)

    def TEMPLATE(self, token: Token) -> Term:
        return mappings.template(token)

    def literal(self, parts: list[Part]) -> FunctorCall:
        return mappings.literal(parts)

    def property(self, parts: list[Part]) -> list[mappings.Property]:
        return mappings.properties(parts)

    def mapped(self, parts: list[Part]) -> Atom:
        return self.atom(parts)

    def mapping(self, parts: list[Part]) -> Clause:
        clause = mappings.clause(parts)
        check_size(len(clause.heads), 1, clause.span)
        return clause

    def type_name(self, parts: list[Part]) -> Token:
        name: Token = parts[0]
        return name

    def type_alias(self, parts: list[Part]) -> TypeText:
        bases = [part for part in parts[2:] if part.type != "EQUALS"]
        return TypeText(parts[1], bases, between(parts[0], parts[-1]))

    def parameter(self, parts: list[Part]) -> tuple[str, str]:
        name, _, value = parts
        if isinstance(value, Constant):
            value = (
                value.value
                if value.type is ColumnType.SYMBOL
                else constants.write_constant(value.value, value.type)
            )
        return (name.value, str(value))

    def parameters(self, parts: list[Part]) -> Parameters:
        return Parameters(parts[:-1], parts[-1])

    def directive(self, parts: list[Part]) -> DirectiveText:
        word, names = parts[0], parts[1].names
        given = parts[2] if len(parts) > 2 else Parameters([], names[-1])
        return DirectiveText(word[1:], names, given.parameters, between(word, given.end))

    def program(self, parts: list[Part]) -> list[Part]:
        return parts

    def goal(self, parts: list[Part]) -> Atom:
        atom: Atom = parts[0]
        return atom

    def query(self, parts: list[Part]) -> tuple[Atom | None, Alternatives]:
        return None, parts[0]

    def headed_query(self, parts: list[Part]) -> tuple[Atom | None, Alternatives]:
        head, body = parts[0], parts[1]
        return head, body


def _check_relation(name: Token) -> None:
    if name in operators.RESERVED:
        message = f"'{name}' is a reserved word and cannot name a relation"
        raise Fault(ProgramSyntaxError, message, span_of(name))


def _terms(parts: list[Part]) -> tuple[Term, ...]:
    for term in parts:
        in_range(term)
    return tuple(parts)


def _check_in_fact(term: Term) -> None:
    """A fact holds constants, and what can be computed from constants."""
    for part in walk(term):
        if isinstance(part, Aggregate | HeadAggregate):
            raise Fault(
                UnsupportedFeatureError, "an aggregate cannot be used in a fact; write a rule", part.span
            )
        if isinstance(part, Variable | Wildcard):
            name = part.name if isinstance(part, Variable) else "_"
            message = f"a fact holds constants only, but {name} is a variable"
            if isinstance(part, Variable):
                message += f'; a symbol is written in double quotes, "{name}"'
            raise Fault(UnsafeRuleError, message, part.span)
