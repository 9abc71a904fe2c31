"""The program of a database: rules as a Z-set, declarations, and the schemas that follow from them and the facts.

A `Program` is a value: `changed` gives a new one and leaves the old one as it was, so that a refused or dry
transaction needs no undo. A rule's identity is its canonical text; a rule of weight 2 derives what one of weight 1
does, as a fact of weight 2 is there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.circuit.circuit import EMPTY, Circuit, compile_circuit
from engine.circuit.naming import may_stay, named, other_key, renamed
from engine.epoch import RuleInfo
from engine.errors import (
    NegativeWeightError,
    NotDeclaredError,
    UnsupportedFeatureError,
    WeightOverflowError,
    ZedlogError,
    shown,
)
from engine.language.canonical import canonical_text, format_declaration, rule_id
from engine.language.check import check_rule
from engine.language.inference import atoms_of, infer_schemas
from engine.language.parser import parse_declarations, parse_rules
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import CONSTRAINT, Declaration, Fixpoint, Rule, fixpoints_of
from engine.transaction import MAX_WEIGHT, Mode, RuleChange

MAX_BODY = 64
"""Atoms in one rule's body: there is a plan for each atom, and a step in each plan for each other one."""


@dataclass(frozen=True, slots=True)
class Program:
    """Rules of weight > 0 by id, the declarations in force, and every relation's schema.

    `circuit` was compiled when the columns had `types`, the relations `fixpoints` were declared so, and the rules were
    `sources`. keys: of the relations that have another key in the circuit than their name (circuit/naming.py).
    """

    rules: Mapping[str, tuple[RuleInfo, Rule]] = field(default_factory=dict)
    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    circuit: Circuit = EMPTY
    types: Mapping[str, tuple[ColumnType | None, ...]] = field(default_factory=dict)
    fixpoints: Mapping[str, Fixpoint] = field(default_factory=dict)
    sources: frozenset[str] = frozenset()
    keys: Mapping[str, str] = field(default_factory=dict)

    def key(self, relation: str) -> str:
        """The key by which circuit and placement know a relation."""
        return self.keys.get(relation, relation)

    @property
    def rule_infos(self) -> tuple[RuleInfo, ...]:
        """All rules, in the order in which they were first added."""
        return tuple(info for info, _ in self.rules.values())

    @property
    def declaration_text(self) -> str:
        """All declarations as program text."""
        return "\n".join(format_declaration(declaration) for declaration in self.declarations.values())

    def mentions(self, relation: str) -> bool:
        """Whether a declaration or a rule names the relation."""
        return relation in self.declarations or any(
            relation == atom.relation for _, rule in self.rules.values() for atom in atoms_of(rule)
        )

    def changed(
        self,
        rules: Sequence[RuleChange],
        declarations: str,
        mode: Mode,
        held: Mapping[str, Schema],
        undeclare: Sequence[str] = (),
    ) -> Program:
        """The program after rule changes, without the declarations of `undeclare`, and with further ones.

        `held` are the relations that hold facts. In the mode `set`, undeclaring what is not declared is a no-op.

        Raises:
            NotDeclaredError: a relation of `undeclare` has no declaration.
            ProgramError: text that is no rule, an unsafe rule, a contradiction of arities, types or declarations.
            NegativeWeightError, WeightOverflowError: of a rule's weight.
        """
        if not rules and not declarations and not undeclare:
            return self
        kept = dict(self.rules)
        for change in rules:
            parsed_rules = parse_rules(change.rule)
            for rule in parsed_rules:
                _check_size(rule)
                check_rule(rule)
                id_ = rule_id(rule)
                known = kept.get(id_)
                weight = _new_weight(known[0].weight if known else 0, change.weight, mode)
                if weight > MAX_WEIGHT:
                    raise WeightOverflowError(
                        f"the weight of the rule {shown(change.rule)} does not fit into 64 bits", rule=id_
                    )
                if known is not None:
                    kept[id_] = (replace(known[0], weight=weight), known[1])
                else:
                    text = change.rule.strip() if len(parsed_rules) == 1 else canonical_text(rule)
                    kept[id_] = (RuleInfo(id_, text, canonical_text(rule), weight), rule)
        negative = [info for info, _ in kept.values() if info.weight < 0]
        if negative:
            raise NegativeWeightError(
                "rules would be removed more often than they were added: "
                + "; ".join(info.text for info in negative[:10]),
                rules=[{"id": i.id, "rule": i.text, "weight": _weight_of(self, i.id)} for i in negative[:10]],
            )
        all_declarations = dict(self.declarations)
        for relation in undeclare:
            if all_declarations.pop(relation, None) is None and mode == "zset":
                raise NotDeclaredError(f"{relation} is not declared", relation=relation)
        kept_declarations = list(all_declarations.values())
        parsed = parse_declarations(declarations) if declarations else ()
        for declaration in parsed:
            known_one = all_declarations.setdefault(declaration.relation, declaration)
            all_declarations[declaration.relation] = _together(known_one, declaration)
        live = {id_: pair for id_, pair in kept.items() if pair[0].weight > 0}
        schemas = infer_schemas(
            [*kept_declarations, *parsed], held, [rule for _, rule in live.values()], self.schemas
        )
        return replace(self, rules=live, declarations=all_declarations, schemas=schemas)

    def with_facts(self, held: Mapping[str, Schema]) -> Program:
        """The program when the relations `held` hold facts whose types are now known.

        Raises:
            TypeMismatchError, ArityError: a rule uses such a relation otherwise.
        """
        rules = [rule for _, rule in self.rules.values()]
        schemas = infer_schemas(list(self.declarations.values()), held, rules, self.schemas)
        return replace(self, schemas=schemas)

    def without(self, relations: Iterable[str]) -> Program:
        """The program without relations that nothing mentions any more."""
        gone = set(relations)
        return (
            replace(self, schemas={r: s for r, s in self.schemas.items() if r not in gone}) if gone else self
        )

    def compiled(self, held: Iterable[str]) -> Program:
        """With the circuit of its rules over its relations and those in `held` (keys); the old one where it serves.

        A column whose type nothing fixes any more has no tuples, so that a circuit for the type it had still serves.

        Raises:
            StratificationError, UnsupportedFeatureError, DeclarationError: the rules cannot stand together.
        """
        types = {name: tuple(c.type for c in schema.columns) for name, schema in self.schemas.items()}
        fixpoints = fixpoints_of(self.declarations.values())
        serves = all(
            name in self.types and may_stay(columns, self.types[name]) for name, columns in types.items()
        )
        if serves and self.rules.keys() == self.sources and fixpoints == self.fixpoints:
            return self
        keys = self._keys(types)
        arities = {key: self.circuit.arities[key] for key in held}
        schemas = {keys.get(name, name): schema for name, schema in self.schemas.items()}
        rules = [renamed(rule, keys) for _, rule in self.rules.values()]
        limits = {keys.get(name, name): limit for name, limit in fixpoints.items()}
        try:
            circuit = compile_circuit(rules, schemas, arities, limits)
        except ZedlogError as error:
            raise named(error, keys) from None
        sources = frozenset(self.rules)
        return replace(self, circuit=circuit, types=types, fixpoints=fixpoints, sources=sources, keys=keys)

    def _keys(self, types: Mapping[str, tuple[ColumnType | None, ...]]) -> dict[str, str]:
        """The keys of the relations when their columns have `types`, but for those that keep their name."""
        keys = {}
        for name, columns in types.items():
            key = self.key(name)
            if not may_stay(self.types.get(name, columns), columns):
                key = other_key(key)
            if key != name:
                keys[name] = key
        return keys


def _together(known: Declaration, later: Declaration) -> Declaration:
    """The declaration in force after a later one: it may make the relation a constraint, and change its fixpoint."""
    if later.is_constraint and not known.is_constraint:
        known = replace(known, qualifiers=(*known.qualifiers, CONSTRAINT))
    return known if later.fixpoint in (None, known.fixpoint) else replace(known, fixpoint=later.fixpoint)


def _new_weight(old: int, change: int, mode: Mode) -> int:
    if mode == "zset":
        return old + change
    return max(old, 1) if change > 0 else 0


def _weight_of(program: Program, id_: str) -> int:
    known = program.rules.get(id_)
    return known[0].weight if known else 0


def _check_size(rule: Rule) -> None:
    if len(rule.body) > MAX_BODY:
        raise UnsupportedFeatureError(
            f"a rule may have {MAX_BODY} atoms in its body, this one has {len(rule.body)}; "
            "split it through a new relation",
            text=rule.text,
            span=rule.span,
        )
