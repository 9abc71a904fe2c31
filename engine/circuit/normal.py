"""Normal form: a rule of the language as atoms, negated atoms, conditions and folds.

In: a rule that `check_rule` has passed, and the types of the columns. Out: core rules and folds over relations, some of
them internal (their names contain an `@`, which no program text can). Always: for every relation of the text the core
rules derive what the rule says; core atoms hold only variables, constants and `_`, a negated atom has no `_`, and a
condition contains no aggregate.

    head or atom with a computed argument   p(x + 1)            -> p(v), v = x + 1
    negated atom with `_`                   !p(x, _)            -> !p@0(x),  p@0(x) :- p(x, _).
    head with min or max                    sp(y, min(d + c))   -> sp(y, v), v = d + c, and a fold in place
    head with count, sum or mean            n(y, count(x))      -> r@in(y, x, ...) and a fold from there into n
    head with several                       p(y, min(a), max(b)) -> p@fold1(y, a) and p@fold2(y, b), each as above, and
                                                                   p(y, a, b) :- p@fold1(y, a), p@fold2(y, b).
    aggregate over independent parts        n = count : { a(_), b(_) } -> n = n1 * n2, n1 = count : { a(_) } ...
    aggregate in a body                     n = count : { B }   -> r@1(outer, value, inner ...) :- B. and a fold into
                                                                   r@1=(outer, result), which takes its place

    ... that needs values from around       a < x in B          -> r@1?(x) :- (the atoms around); B. and r@1?(x), and
                                                                   r@1?0(x, 0) :- r@1?(x), a contribution of 0

    range                               x = range(a, b)     -> r@range1(a, b, v), x = v, and rules for it (ranges.py)

A contribution to a fold is a distinct binding of all variables of the body, where each `_` of a positive atom is a
variable of its own. The source relations hold these bindings, so that equal values from different bindings all count.
The count and the sum of an empty group are 0, as in Souffle: such a rule has a second variant for the groups without
bindings. A variable that an aggregate's body does not bind gets its values from the atoms around the aggregate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product

from engine.circuit.ranges import SCHEMAS as RANGES
from engine.circuit.ranges import as_equation, is_range, range_rules, without_ranges
from engine.errors import Span, UnsupportedFeatureError
from engine.expressions import compile_term, distinct_locals, variable_types
from engine.language.binding import bound_by
from engine.language.canonical import rule_id
from engine.language.inference import relations_of
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    Fixpoint,
    FunctorCall,
    HeadAggregate,
    Literal,
    Negation,
    Rule,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
    depth_of,
    names_of,
    names_outside,
    terms_of,
    walk,
)
from engine.language.witnesses import is_copied, without_witnesses

INTERNAL = "@"
"""Part of the name of every internal relation; no program text can contain it."""
UNIT = "@unit"
"""A relation without columns that always holds; a body without positive atoms starts from it."""
TOGETHER = "@together"
"""Part of the id of a rule that joins several folds: the relation stands before it, the folded columns after it."""
IN_PLACE = frozenset({"min", "max"})
"""Folds whose value is one of the contributions: they are computed over the target's own tuples."""
_MOST_DEFAULTS = 4

Types = Mapping[str, ColumnType | None]
Around = Sequence[Sequence[Literal]]
"""The literals around an aggregate that contain no aggregate: those of the rule's body, then those of each aggregate
that encloses it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """An index that a plan or a fold needs: `relation` by the codes of `columns` (ascending)."""

    relation: str
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoreRule:
    """A rule in normal form. `types` are those of its variables; `origin` is the rule that the user wrote."""

    id: str
    head: Atom
    body: tuple[Literal, ...]
    types: tuple[tuple[str, ColumnType | None], ...]
    origin: Rule


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate: `target` holds one tuple for each group, with the folded value in column `place`.

    function: count, sum, mean, min, max. sources: relations of (group ..., value, binding ...), whose tuples are the
    contributions; none for a fold in place, where the contributions are the target's own supported tuples. domain: the
    relation of the groups that are asked for, if the atoms around the aggregate determine them. fixpoint: when a
    recursive fold stops. types: those of the target's columns. written: the function as the rule has it, if it is a
    different one. part_of: the relation that several folds make up, if this fold is one of them; `columns` are those
    that it contributes.
    """

    target: str
    arity: int
    function: str
    place: int
    type: ColumnType | None
    sources: tuple[str, ...] = ()
    domain: str | None = None
    fixpoint: Fixpoint | None = None
    types: tuple[ColumnType | None, ...] = ()
    written: str | None = None
    part_of: str | None = None
    columns: tuple[int, ...] = ()

    @property
    def relation(self) -> str:
        """The relation in whose heads the aggregate stands; for an aggregate in a body, the target itself."""
        return self.part_of or self.target

    @property
    def takes_facts(self) -> bool:
        """Whether a fact of the relation is a contribution, which is so if the relation is folded by min or max
        alone."""
        return not self.sources and self.part_of is None

    @property
    def result(self) -> ColumnType | None:
        """The type of the folded value."""
        return _result_type(self.function, self.type)

    @property
    def group(self) -> tuple[int, ...]:
        """The target's columns that name the group."""
        return tuple(column for column in range(self.arity) if column != self.place)

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The indexes by group that a fold over sources needs: of the target, and of each source."""
        if not self.sources:
            return ()
        first = tuple(range(len(self.group)))
        return Demand(self.target, self.group), *(Demand(source, first) for source in self.sources)


@dataclass(frozen=True, slots=True)
class Normal:
    """The normal form of one rule."""

    rules: tuple[CoreRule, ...]
    folds: tuple[Fold, ...]


def normalise(rule: Rule, schemas: Mapping[str, Schema], id_: str | None = None) -> Normal:
    """The normal form of a checked rule; `id_` is its `rule_id`, where that is known.

    Raises:
        UnsupportedFeatureError: the rule is well-formed, but cannot be evaluated (the minimum of symbols, say).
    """
    renamed = distinct_locals(without_ranges(without_witnesses(rule)))
    mentioned = {name: RANGES.get(name) or schemas[name] for name in relations_of(renamed)}
    types = dict(variable_types(renamed, mentioned))
    return _Normaliser(renamed, types, id_ or rule_id(renamed)).normal()


@dataclass(slots=True)
class _Default:
    """An empty group of a count or sum: `result` is `zero` if no tuple of `groups` matches."""

    atom: Atom
    groups: Atom
    result: Variable
    zero: Constant


@dataclass(slots=True)
class _Body:
    literals: list[Literal] = field(default_factory=list)
    defaults: list[_Default] = field(default_factory=list)


class _Normaliser:
    def __init__(self, rule: Rule, types: dict[str, ColumnType | None], id_: str) -> None:
        self._rule = rule
        self._id = id_
        self._types = types
        self._rules: list[CoreRule] = []
        self._folds: list[Fold] = []
        self._fresh = 0
        self._aggregates = 0
        self._factored = 0
        aggregates = (node for literal in (rule.head, *rule.body) for node in walk(literal))
        self._countable = sum(
            isinstance(node, Aggregate) and node.function in ("count", "sum") for node in aggregates
        )
        self._ranges = 0

    def normal(self) -> Normal:
        rule = self._rule
        if any(isinstance(t, HeadAggregate) and t.function not in IN_PLACE for t in rule.head.terms):
            # Every match of the body is a contribution.
            rule = self._rule = replace(rule, body=tuple(map(self._named, rule.body)))
        around: Around = (_without_aggregates(rule.body),)
        body = self._body(rule.body, names_outside(rule.head, *rule.body), around)
        for id_, head in self._heads(body, around):
            self._add_variants(id_, head, body)
        return Normal(tuple(self._rules), tuple(self._folds))

    def _add_variants(self, id_: str, head: Atom, body: _Body) -> None:
        """The rule, once for each choice of which of its counts and sums are empty."""
        if len(body.defaults) > _MOST_DEFAULTS:
            raise UnsupportedFeatureError(
                f"a body may contain at most {_MOST_DEFAULTS} counts and sums; move some of them into a new relation",
                text=self._rule.text,
                span=self._rule.span,
            )
        for number, choice in enumerate(product((False, True), repeat=len(body.defaults))):
            literals = list(body.literals)
            for empty, default in zip(choice, body.defaults, strict=True):
                if empty:
                    literals.append(Negation(default.groups))
                    literals.append(Comparison("=", default.result, default.zero))
                else:
                    literals.append(default.atom)
            self._add(id_ if number == 0 else f"{id_}{INTERNAL}empty{number}", head, literals)

    # ---- the parts of a rule

    def _refuse_order(self, function: str, kind: ColumnType | None, span: Span) -> None:
        if function in IN_PLACE and kind not in (ColumnType.NUMBER, ColumnType.FLOAT, None):
            raise UnsupportedFeatureError(
                f"{function} works on numbers and floats, not on {kind.value if kind else ''}s",
                text=self._rule.text,
                span=span,
            )

    def _heads(self, body: _Body, around: Around) -> list[tuple[str, Atom]]:
        """The heads that the rule derives, each with the id of its core rule: one for each aggregate in the head."""
        head = self._rule.head
        scope = names_outside(head, *self._rule.body)
        folded = {i: term for i, term in enumerate(head.terms) if isinstance(term, HeadAggregate)}
        arguments = [term.argument if isinstance(term, HeadAggregate) else term for term in head.terms]
        simple = [self._simple(self._term(term, body, scope, around), body) for term in arguments]
        if not folded:
            return [(self._id, replace(head, terms=tuple(simple)))]
        group = [i for i in range(head.arity) if i not in folded]
        heads = []
        for number, (place, term) in enumerate(folded.items()):
            kind = self._type(simple[place])
            self._refuse_order(term.function, kind, term.span)
            fold = Fold(head.relation, head.arity, term.function, place, kind)
            if len(folded) > 1:
                target, columns = _part(head.relation, place), (*group, place)
                fold = Fold(
                    target,
                    len(columns),
                    term.function,
                    len(group),
                    kind,
                    part_of=head.relation,
                    columns=columns,
                )
            heads.append(
                self._fold_head(fold, group, simple, place, f"{INTERNAL}head{place}" if number else "")
            )
        if len(folded) > 1:
            self._put_together(head, group, list(folded))
        return heads

    def _fold_head(
        self, fold: Fold, group: Sequence[int], simple: Sequence[Term], place: int, suffix: str
    ) -> tuple[str, Atom]:
        """The head of contributions to a fold; adds the fold."""
        id_, keys = self._id + suffix, [simple[i] for i in group]
        if fold.function in IN_PLACE:
            self._folds.append(fold)
            terms = (*keys[: fold.place], simple[place], *keys[fold.place :])
            return id_, Atom(fold.target, terms, self._rule.head.span)
        source = f"{id_}{INTERNAL}in"
        self._folds.append(replace(fold, sources=(source,)))
        names = (name for name in names_outside(*self._rule.body) if not is_copied(name))
        bindings = _other_variables(names, (*keys, simple[place]))
        return id_, Atom(source, (*keys, simple[place], *bindings), self._rule.head.span)

    def _put_together(self, head: Atom, group: Sequence[int], places: Sequence[int]) -> None:
        """The rule that joins the folds of a group into one tuple; the same for all rules that fold the same
        columns."""
        columns = [Variable(f"{INTERNAL}{i}") for i in range(head.arity)]
        body = tuple(
            Atom(_part(head.relation, place), tuple(columns[i] for i in (*group, place))) for place in places
        )
        id_ = f"{head.relation}{TOGETHER}{'_'.join(map(str, places))}"
        whole = Atom(head.relation, tuple(columns), head.span)
        self._rules.append(CoreRule(id_, whole, body, (), self._rule))

    def _body(self, literals: Sequence[Literal], scope: Set[str], around: Around) -> _Body:
        """`scope`: the variables outside of aggregates. `around`: what can bind an aggregate's variables."""
        body = _Body()
        for literal in literals:
            match literal:
                case Atom() if is_range(literal):
                    body.literals.append(self._range(literal, body, scope, around))
                case Atom():
                    body.literals.append(self._atom(literal, body, scope, around))
                case Negation():
                    negated = self._atom(literal.atom, body, scope, around)
                    body.literals.append(Negation(self._projected(negated), literal.span))
                case Comparison():
                    left = self._term(literal.left, body, scope, around)
                    right = self._term(literal.right, body, scope, around)
                    body.literals.append(replace(literal, left=left, right=right))
        return body

    def _atom(self, atom: Atom, body: _Body, scope: Set[str], around: Around) -> Atom:
        terms = [self._simple(self._term(term, body, scope, around), body) for term in atom.terms]
        return replace(atom, terms=tuple(terms))

    def _range(self, literal: Atom, body: _Body, scope: Set[str], around: Around) -> Atom:
        """The values of a range as an atom (ranges.py); its arguments get their values from the literals around it."""
        self._ranges += 1
        name = f"{self._id}{INTERNAL}range{self._ranges}"
        *arguments, value = literal.terms
        needed = names_of(*arguments)
        literals = self._binding(needed, literal, around)
        asking = self._body(literals, names_outside(*literals, *arguments), (literals,))
        asked = Atom(f"{name}?", tuple(self._simple(argument, asking) for argument in arguments))
        self._add(asked.relation, asked, asking.literals)
        numbers = dict.fromkeys(("a", "b", "s", "i", "n", "h", "j", "m", "v"), ColumnType.NUMBER)
        for number, (head, plain) in enumerate(range_rules(asked, f"{name}+", name)):
            used = sorted(names_of(head, *plain))
            types = tuple((one, numbers[one]) for one in used)
            self._rules.append(CoreRule(f"{name}{INTERNAL}{number}", head, tuple(plain), types, self._rule))
        terms = (
            *(self._simple(self._term(argument, body, scope, around), body) for argument in arguments),
            value,
        )
        return Atom(name, terms, literal.span)

    def _binding(self, needed: set[str], literal: Atom, around: Around) -> list[Literal]:
        """Literals around a range that give its arguments their values: the nearest ones, and as few ranges as
        possible, so that two ranges that do not need each other do not depend on each other."""
        near: list[Literal] = []
        for level in reversed(around):
            near = [*level, *near]
            ranges = [other for other in near if is_range(other) and other is not literal]
            kept = [other for other in near if not is_range(other)]
            while True:
                literals, given = _bound_together(kept)
                if needed <= given:
                    return literals
                ready = [
                    other for other in ranges if other not in kept and _names_of_arguments(other) <= given
                ]
                if not ready:
                    break
                kept += ready
        raise UnsupportedFeatureError(
            f"the arguments of this range get their values from an aggregate ({', '.join(sorted(needed))}); put the "
            "aggregate into a rule of its own",
            text=self._rule.text,
            span=literal.span,
        )

    def _simple(self, term: Term, body: _Body) -> Term:
        """The term, or a new variable that is equal to it."""
        if isinstance(term, Variable | Constant | Wildcard):
            return term
        variable = self._variable(compile_term(term, self._types).type)
        body.literals.append(Comparison("=", variable, term, term.span))
        return variable

    def _projected(self, atom: Atom) -> Atom:
        """A negated atom without its wildcards."""
        kept = [i for i, term in enumerate(atom.terms) if not isinstance(term, Wildcard)]
        return atom if len(kept) == atom.arity else self._projection(atom, kept)

    def _projection(self, atom: Atom, kept: Sequence[int]) -> Atom:
        name = f"{atom.relation}{INTERNAL}{'_'.join(map(str, kept))}"
        variables = {i: Variable(f"{INTERNAL}{i}") for i in kept}
        whole = Atom(atom.relation, tuple(variables.get(i, Wildcard()) for i in range(atom.arity)))
        self._rules.append(CoreRule(name, Atom(name, tuple(variables.values())), (whole,), (), self._rule))
        return Atom(name, tuple(atom.terms[i] for i in kept), atom.span)

    def _term(self, term: Term, body: _Body, scope: Set[str], around: Around) -> Term:
        """The term with its aggregates replaced by variables."""

        def inner(part: Term) -> Term:
            return self._term(part, body, scope, around)

        match term:
            case Aggregate():
                return self._aggregate(term, body, scope, around)
            case BinaryOperation():
                return BinaryOperation(term.operator, inner(term.left), inner(term.right), term.span)
            case UnaryOperation():
                return UnaryOperation(term.operator, inner(term.operand), term.span)
            case FunctorCall():
                return FunctorCall(term.functor, tuple(map(inner, term.arguments)), term.span)
            case _:
                return term

    def _aggregate(self, aggregate: Aggregate, body: _Body, scope: Set[str], around: Around) -> Variable:
        factors = self._factors(aggregate, scope)
        if len(factors) > 1:
            terms: list[Term] = [self._aggregate(factor, body, scope, around) for factor in factors]
            product = self._variable(ColumnType.NUMBER)
            term = reduce(lambda left, right: BinaryOperation("*", left, right, aggregate.span), terms)
            body.literals.append(Comparison("=", product, term, aggregate.span))
            return product
        self._aggregates += 1
        name = f"{self._id}{INTERNAL}{self._aggregates}"
        shared = sorted(names_of(aggregate) & scope)
        literals = [self._named(literal) for literal in aggregate.body]
        inner_scope, inner_around = scope | names_outside(*literals), (*around, _without_aggregates(literals))
        inside = self._body(literals, inner_scope, inner_around)
        argument = aggregate.argument
        if argument is not None:
            argument = self._term(argument, inside, inner_scope, inner_around)
        value: Term = Constant(1, ColumnType.NUMBER) if argument is None else self._simple(argument, inside)
        kind = self._type(value)
        domain = self._bind(name, shared, inside, around)
        group = tuple(map(Variable, shared))
        target = f"{name}="
        place = len(shared)
        result = self._variable(_result_type(aggregate.function, kind))
        atom = Atom(target, (*group, result), aggregate.span)
        self._refuse_order(aggregate.function, kind, aggregate.span)
        if aggregate.function in IN_PLACE:
            self._add_variants(name, Atom(target, (*group, value)), inside)
            self._folds.append(Fold(target, place + 1, aggregate.function, place, kind))
            body.literals.append(atom)
            return result
        found = names_outside(*inside.literals, *(default.atom for default in inside.defaults))
        self._add_variants(
            name, Atom(name, (*group, value, *_other_variables(found, (*group, value)))), inside
        )
        fold = Fold(
            target, place + 1, aggregate.function, place, kind, (name,), domain.relation if domain else None
        )
        is_float = self._types[result.name] is ColumnType.FLOAT
        zero = Constant(0.0, ColumnType.FLOAT) if is_float else Constant(0, ColumnType.NUMBER)
        if aggregate.function == "mean" or self._types[result.name] is None:
            # A mean of nothing has no value; neither has a sum while nothing says whether it is 0 or 0.0.
            body.literals.append(atom)
        elif domain is not None and domain.arity == place:
            # Every group that is asked for gets a contribution of 0, at the same height as its others: the groups may
            # depend on the rule's own head, and then "no contribution" must not be found true too early.
            fill = f"{domain.relation}0"
            self._add(fill, Atom(fill, (*domain.terms, zero)), [domain])
            fold = replace(fold, function="sum", written=fold.function, sources=(name, fill))
            body.literals.append(atom)
        else:
            body.defaults.append(_Default(atom, self._projection(atom, range(place)), result, zero))
        self._folds.append(fold)
        return result

    def _factors(self, aggregate: Aggregate, scope: Set[str]) -> list[Aggregate]:
        """The aggregates whose product this one is: for a count or a sum of numbers over parts that have no variables
        in common except those of the group. Then only the bindings of the parts are kept instead of all their
        combinations. The parts must not compute anything: a value that does not exist must not cause a refusal if
        another part is empty and the result therefore 0."""
        argument = aggregate.argument
        computes = any(
            is_range(literal) or any(map(depth_of, terms_of(literal))) for literal in aggregate.body
        )
        if computes or (argument is not None and depth_of(argument)):
            return [aggregate]
        kind = None if argument is None else self._type(argument)
        if aggregate.function != "count" and (aggregate.function, kind) != ("sum", ColumnType.NUMBER):
            return [aggregate]
        parts = _independent(aggregate.body, scope)
        # Each part may be a group of its own that is empty, and there is a limit to these.
        more = self._factored + len(parts) - 1
        if len(parts) == 1 or more > _MOST_DEFAULTS - self._countable:
            return [aggregate]
        own = set() if argument is None else names_of(argument) - scope
        # The part that is summed; the others say how often.
        summed = next((i for i, part in enumerate(parts) if own & names_of(*part)), 0)
        if not own <= names_of(*parts[summed]):
            return [aggregate]
        self._factored = more
        return [
            replace(aggregate, body=tuple(part))
            if i == summed
            else replace(aggregate, function="count", argument=None, body=tuple(part))
            for i, part in enumerate(parts)
        ]

    def _bind(self, name: str, shared: list[str], inside: _Body, around: Around) -> Atom | None:
        """Give values from around the aggregate to the shared variables that its body does not bind.

        The atom for this has all shared variables that the literals around the aggregate bind.
        """
        bound = {
            t.name for a in inside.literals if isinstance(a, Atom) for t in a.terms if isinstance(t, Variable)
        }
        missing = [variable for variable in shared if variable not in bound]
        if not missing:
            return None
        # The nearest literals that will do: the fewer there are, the less the groups depend on.
        near: list[Literal] = []
        literals, given, complete = near, set[str](), False
        for level in reversed(around):
            near = [*level, *near]
            literals, given = _bound_together(near)
            complete = given.issuperset(shared)
            if complete:
                break
        domain = Atom(f"{name}?", tuple(map(Variable, shared if complete else missing)))
        for variable in missing:
            if variable not in given:
                raise UnsupportedFeatureError(
                    f"the variable {variable} gets its value from another aggregate, and no atom inside this one "
                    "binds it; move one of the two aggregates into a rule of its own",
                    text=self._rule.text,
                    span=self._rule.span,
                )
        plain = self._body(literals, names_outside(*literals), (literals,))
        self._add(domain.relation, domain, plain.literals)
        inside.literals.append(domain)
        return domain

    def _named(self, literal: Literal) -> Literal:
        """A positive atom of an aggregated body with a variable for each `_`: every match is a contribution."""
        if not isinstance(literal, Atom):
            return literal
        terms = (self._variable(None) if isinstance(term, Wildcard) else term for term in literal.terms)
        return replace(literal, terms=tuple(terms))

    # ---- results

    def _variable(self, kind: ColumnType | None) -> Variable:
        self._fresh += 1
        variable = Variable(f"{INTERNAL}v{self._fresh}")
        self._types[variable.name] = kind
        return variable

    def _type(self, term: Term) -> ColumnType | None:
        return (
            self._types.get(term.name) if isinstance(term, Variable) else compile_term(term, self._types).type
        )

    def _add(self, id_: str, head: Atom, literals: Sequence[Literal]) -> None:
        body = tuple(literals)
        if not any(isinstance(literal, Atom) for literal in body):
            body = (Atom(UNIT, ()), *body)
        used = sorted(names_of(head, *body))
        types = tuple((name, self._types.get(name)) for name in used)
        self._rules.append(CoreRule(id_, head, body, types, self._rule))


def _independent(literals: Sequence[Literal], given: Set[str]) -> list[list[Literal]]:
    """The literals in parts that share only variables in `given`; each part has a positive atom; their order is
    kept."""
    parts: list[tuple[set[str], list[int]]] = []
    loose: list[int] = []
    for place, literal in enumerate(literals):
        own, places = names_of(literal) - given, [place]
        if isinstance(literal, Atom) and any(isinstance(term, Wildcard) for term in literal.terms):
            own.add(f"_{place}")
        if not own:
            # It holds or not, for the group: once is enough.
            loose.append(place)
            continue
        joined = [part for part in parts if part[0] & own]
        for part in joined:
            parts.remove(part)
            own, places = own | part[0], places + part[1]
        parts.append((own, places))
    alone = [places for _, places in parts if not any(isinstance(literals[i], Atom) for i in places)]
    whole = [places for _, places in parts if places not in alone]
    if not whole:
        return [list(literals)]
    first = min(whole)
    first += [place for places in alone for place in places] + loose
    return [[literals[i] for i in sorted(places)] for places in sorted(whole, key=min)]


def _bound_together(around: Iterable[Literal]) -> tuple[list[Literal], set[str]]:
    """The atoms and conditions that can be bound without the results of aggregates, and the variables that they
    bind."""
    kept: list[Literal] = [literal for literal in around if isinstance(literal, Atom | Comparison)]
    while True:
        bound = bound_by(map(as_equation, kept))
        usable = [literal for literal in kept if names_of(literal) <= bound]
        if len(usable) == len(kept):
            return kept, bound
        kept = usable


def _names_of_arguments(literal: Literal) -> set[str]:
    """The variables of the arguments of a range."""
    return names_of(*terms_of(literal)[:-1])


def _part(relation: str, place: int) -> str:
    """The name of the relation for one of the several folds that make up `relation`."""
    return f"{relation}{INTERNAL}fold{place}"


def _other_variables(names: Iterable[str], terms: Iterable[Term]) -> list[Variable]:
    """The variables of `names` that are not yet among the terms, in order."""
    there = {term.name for term in terms if isinstance(term, Variable)}
    return [Variable(name) for name in sorted(names) if name not in there]


def _result_type(function: str, kind: ColumnType | None) -> ColumnType | None:
    return {"count": ColumnType.NUMBER, "mean": ColumnType.FLOAT}.get(function, kind)


def _without_aggregates(literals: Iterable[Literal]) -> list[Literal]:
    return [literal for literal in literals if not any(isinstance(node, Aggregate) for node in walk(literal))]
