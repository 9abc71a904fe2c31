"""The program of a database: rules as a Z-set, declarations, and the schemas that follow from them and the facts.

A `Program` is a value: `changed` gives a new one and leaves the old one as it was, so that a refused transaction or a
dry run needs no undo. A rule's identity is its canonical text; a rule of weight 2 derives the same as one of weight 1,
just as a fact of weight 2 is present once.

Programs share what they have in common. The cost of a change depends on what it concerns: the rules that change, and
those through which a type can have become known or unknown; in addition, some dictionaries are copied, which takes
about a microsecond for ten rules or relations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.circuit.circuit import EMPTY, Circuit
from engine.circuit.compile import update_circuit
from engine.circuit.naming import may_stay, named, other_key, renamed
from engine.data.transaction import MAX_WEIGHT, Mode, RuleChange
from engine.database.epoch import RuleInfo
from engine.errors import (
    DeclarationError,
    NegativeWeightError,
    NotDeclaredError,
    UnsupportedFeatureError,
    WeightOverflowError,
    ZedlogError,
    shown,
)
from engine.language.canonical import canonical_id, canonical_text, format_declaration, rule_id
from engine.language.check import check_rule
from engine.language.inference import infer_schemas, relations_of, update_schemas
from engine.language.parser import expanded, parse_declarations, parse_prefixes, parse_rules
from engine.language.prefixes import Prefixes, format_prefix, label_of
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import CONSTRAINT, Declaration, Fixpoint, Rule

MAX_BODY = 64
"""The most atoms in one rule's body: there is a plan for each atom, with a step for each other atom."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The declarations in force, and what follows from them: their texts, the relations that must stay empty, and the
    settings of the relations that are declared `fixpoint`. prefixes: IRIs by their names.
    """

    by_relation: Mapping[str, Declaration] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    constraints: frozenset[str] = frozenset()
    fixpoints: Mapping[str, Fixpoint] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many relations and prefixes are declared."""
        return len(self.by_relation) + len(self.prefixes)

    def without(self, names: Sequence[str], mode: Mode) -> Declared:
        """names: of relations, and of prefixes with their colon. Raises NotDeclaredError; in the mode `set`,
        undeclaring what is not declared is a no-op.
        """
        left, prefixes = dict(self.by_relation), dict(self.prefixes)
        for name in names:
            label = label_of(name)
            known = left.pop(name, None) if label is None else prefixes.pop(label, None)
            if known is None and mode == "zset":
                raise NotDeclaredError(f"{name} is not declared", relation=name)
        return replace(self, prefixes=prefixes)._of(left, names)

    def with_prefixes(self, prefixes: Mapping[str, str]) -> Declared:
        """These declarations and further prefixes.

        Raises:
            DeclarationError: a prefix is declared otherwise.
        """
        for label, iri in prefixes.items():
            known = self.prefixes.get(label, iri)
            if known != iri:
                raise DeclarationError(
                    f"the prefix {label}: is already declared as <{known}>, and not as <{iri}>; undeclare {label}: to "
                    "change it, which leaves rules as they are",
                    prefix=label,
                )
        return replace(self, prefixes={**self.prefixes, **prefixes})._of(self.by_relation, ())

    def together_with(self, declarations: Sequence[Declaration]) -> Declared:
        """These declarations with further ones. Does not check that they agree with the existing ones."""
        by_relation = dict(self.by_relation)
        for declaration in declarations:
            known = by_relation.setdefault(declaration.relation, declaration)
            by_relation[declaration.relation] = _together(known, declaration)
        return self._of(by_relation, [declaration.relation for declaration in declarations])

    def _of(self, by_relation: Mapping[str, Declaration], changed: Iterable[str]) -> Declared:
        texts, fixpoints = dict(self.texts), dict(self.fixpoints)
        constraints = set(self.constraints)
        for relation in changed:
            declaration = by_relation.get(relation)
            fixpoints.pop(relation, None)
            constraints.discard(relation)
            if declaration is None:
                texts.pop(relation, None)
            else:
                texts[relation] = format_declaration(declaration)
                if declaration.is_constraint:
                    constraints.add(relation)
                if declaration.fixpoint is not None:
                    fixpoints[relation] = declaration.fixpoint
        lines = [*(format_prefix(label, iri) for label, iri in self.prefixes.items()), *texts.values()]
        return Declared(
            by_relation, texts, "\n".join(lines), frozenset(constraints), fixpoints, self.prefixes
        )


@dataclass(frozen=True, slots=True)
class Program:
    """Rules of weight > 0 by id, the declarations in force, and every relation's schema.

    stored: the relations that hold facts, whose types these fix. users: for each relation the ids of the rules that
    mention it. rule_infos: all rules, in the order in which they were first added.

    `circuit` was compiled when the columns had `types` and the declared fixpoints were `fixpoints`. keys: of the
    relations whose key in the circuit is not their name (circuit/naming.py); key_ids: for the rules that mention such a
    relation, their ids in the circuit. stale_rules: came or went since then. stale: the relations whose schemas have
    changed since then.
    """

    rules: Mapping[str, tuple[RuleInfo, Rule]] = field(default_factory=dict)
    declared: Declared = field(default_factory=Declared)
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    stored: Mapping[str, Schema] = field(default_factory=dict)
    users: Mapping[str, Mapping[str, None]] = field(default_factory=dict)
    rule_infos: tuple[RuleInfo, ...] = ()
    circuit: Circuit = EMPTY
    types: Mapping[str, tuple[ColumnType | None, ...]] = field(default_factory=dict)
    fixpoints: Mapping[str, Fixpoint] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    key_ids: Mapping[str, str] = field(default_factory=dict)
    stale_rules: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()

    def key(self, relation: str) -> str:
        """The key by which circuit and placement know a relation."""
        return self.keys.get(relation, relation)

    @property
    def public_names(self) -> dict[str, str]:
        """The names of relations by their keys, and the ids of rules by their ids in the circuit, where these
        differ.
        """
        return {other: own for of in (self.keys, self.key_ids) for own, other in of.items()}

    @property
    def declarations(self) -> Mapping[str, Declaration]:
        """The declarations in force, by relation."""
        return self.declared.by_relation

    @property
    def declaration_text(self) -> str:
        """All declarations as program text."""
        return self.declared.text

    def tree(self, id_: str) -> Rule | None:
        """The rule with this id, if there is one."""
        known = self.rules.get(id_)
        return None if known is None else known[1]

    def in_order(self, ids: Collection[str]) -> list[Rule]:
        """The rules with these ids, in the order in which they were added."""
        if len(ids) < 2:
            return [self.rules[id_][1] for id_ in ids]
        return [rule for id_, (_, rule) in self.rules.items() if id_ in ids]

    def changed(
        self,
        rules: Sequence[RuleChange],
        declarations: str,
        mode: Mode,
        emptied: Collection[str] = (),
        undeclare: Sequence[str] = (),
    ) -> Program:
        """The program after rule changes, when the relations `emptied` hold no facts any more, without the declarations
        of `undeclare`, and with further ones. In the mode `set`, undeclaring what is not declared is a no-op.

        Raises:
            NotDeclaredError: a relation of `undeclare` has no declaration. ProgramError: text that is not a rule, an
            unsafe rule, a contradiction of arities, types or declarations. NegativeWeightError, WeightOverflowError: of
            a rule's weight.
        """
        if not (rules or declarations or undeclare or emptied):
            return self
        prefixes = parse_prefixes(declarations)
        # Also those that are withdrawn, so that a program and what it declares can be withdrawn together.
        changed, moved = self._with_rules(rules, mode, {**self.declared.prefixes, **prefixes})
        parsed = parse_declarations(declarations) if declarations else ()
        declared = changed.declared
        if undeclare:
            declared = declared.without(undeclare, mode)
        if prefixes:
            declared = declared.with_prefixes(prefixes)
        if parsed:
            declared = declared.together_with(parsed)
        stored = changed.stored
        if emptied:
            stored = {name: schema for name, schema in stored.items() if name not in emptied}
        after = replace(changed, declared=declared, stored=stored)
        withdrawn = [name for name in undeclare if label_of(name) is None]
        relations = {*withdrawn, *emptied, *(declaration.relation for declaration in parsed)}
        return after._with_schemas(self, moved, relations, parsed)

    def _with_rules(
        self, rules: Sequence[RuleChange], mode: Mode, prefixes: Prefixes
    ) -> tuple[Program, frozenset[str]]:
        """The program with other weights of rules, and the ids of the rules that came or went. The schemas are as
        before. A rule's text is kept with whole IRIs, so that it means the same under other prefixes.
        """
        if not rules:
            return self, frozenset()
        kept = dict(self.rules)
        touched: dict[str, None] = {}
        for change in rules:
            parsed_rules = parse_rules(change.rule, prefixes)
            written = expanded(change.rule, prefixes)
            if written is not change.rule:
                parsed_rules = parse_rules(written)
            for rule in parsed_rules:
                _check_size(rule)
                check_rule(rule)
                canonical = canonical_text(rule)
                id_ = canonical_id(canonical)
                touched[id_] = None
                known = kept.get(id_)
                weight = _new_weight(known[0].weight if known else 0, change.weight, mode)
                if known is not None:
                    kept[id_] = (replace(known[0], weight=weight), known[1])
                else:
                    text = written.strip() if len(parsed_rules) == 1 else canonical
                    kept[id_] = (RuleInfo(id_, text, canonical, weight), rule)
        # All weights that the transaction gives to a rule are added up first, so their order has no effect.
        for id_ in touched:
            if kept[id_][0].weight > MAX_WEIGHT:
                raise WeightOverflowError(
                    f"the weight of the rule {shown(kept[id_][0].text)} does not fit into 64 bits", rule=id_
                )
        negative = [kept[id_][0] for id_ in touched if kept[id_][0].weight < 0]
        if negative:
            raise NegativeWeightError(
                "the transaction would remove these rules more often than they were added: "
                + "; ".join(info.text for info in negative[:10]),
                rules=[{"id": i.id, "rule": i.text, "weight": _weight_of(self, i.id)} for i in negative[:10]],
            )
        users = dict(self.users)
        own: set[str] = set()
        for id_ in touched:
            info, rule = kept[id_]
            if not info.weight:
                del kept[id_]
            if (id_ in kept) == (id_ in self.rules):
                continue
            for relation in relations_of(rule):
                if relation not in own:
                    own.add(relation)
                    users[relation] = dict(users.get(relation, ()))
                _put(users[relation], id_, id_ in kept)
        for relation in own:
            if not users[relation]:
                del users[relation]
        moved = frozenset(id_ for id_ in touched if (id_ in kept) != (id_ in self.rules))
        infos = tuple(info for info, _ in kept.values())
        return replace(self, rules=kept, users=users, rule_infos=infos), moved

    def with_facts(self, gained: Mapping[str, Schema]) -> Program:
        """The program when the relations `gained` hold facts too, whose types are known.

        Raises:
            TypeMismatchError, ArityError: a rule uses such a relation otherwise.
        """
        if not gained:
            return self
        after = replace(self, stored={**self.stored, **gained})
        new = {name for name, schema in gained.items() if not _same_types(self.schemas.get(name), schema)}
        return after._with_schemas(self, frozenset(), new) if new else after

    def with_infos(self, infos: Iterable[RuleInfo]) -> Program:
        """The program with the rules' texts as they are given here, for the rules that are given."""
        given = {info.id: info for info in infos}
        rules = {id_: (given.get(id_, info), rule) for id_, (info, rule) in self.rules.items()}
        return replace(self, rules=rules, rule_infos=tuple(info for info, _ in rules.values()))

    def inferred_anew(self, names: Mapping[str, Schema]) -> Program:
        """With all schemas as they follow from rules, declarations and facts alone; `names` has those of columns."""
        rules = [rule for _, rule in self.rules.values()]
        schemas = infer_schemas(list(self.declarations.values()), self.stored, rules, names)
        return replace(self, schemas=schemas, stale=self.stale | self.schemas.keys() | schemas.keys())

    def _with_schemas(
        self,
        before: Program,
        rules: frozenset[str],
        relations: Collection[str],
        parsed: Sequence[Declaration] = (),
    ) -> Program:
        schemas, changed = update_schemas(before.schemas, before, self, rules, relations, parsed)
        return replace(
            self, schemas=schemas, stale=self.stale | changed, stale_rules=self.stale_rules ^ rules
        )

    def compiled(self, holds: Callable[[str], bool]) -> Program:
        """The program with the circuit of its rules over its relations, and over those which still hold tuples (`holds`
        says so for a key); the old circuit if nothing is different.

        It is compiled anew also if a type has only become unknown again: a circuit for the earlier type would go on
        deriving from it, because a sum of nothing is 0 if its type is known, and has no value otherwise.

        Raises:
            StratificationError, UnsupportedFeatureError, DeclarationError: the rules cannot stand together.
        """
        columns = {
            name: tuple(column.type for column in self.schemas[name].columns)
            for name in self.stale
            if name in self.schemas
        }
        serves = all(self.types.get(name) == now for name, now in columns.items())
        limits = self.declared.fixpoints
        if serves and not self.stale_rules and limits == self.fixpoints:
            return self
        types, keys = dict(self.types), dict(self.keys)
        retyped: set[str] = set()
        for name in self.stale:
            if name not in columns:
                types.pop(name, None)
                keys.pop(name, None)
            elif columns[name] != types.get(name):
                retyped.add(name)
                if not may_stay(types.get(name, columns[name]), columns[name]):
                    _set(keys, name, other_key(self.key(name)))
                types[name] = columns[name]
        relations = {name for name in self.stale if types.get(name) != self.types.get(name)}
        relations |= {
            name
            for name in limits.keys() | self.fixpoints.keys()
            if limits.get(name) != self.fixpoints.get(name)
        }
        ids = self.stale_rules.union(*(self.users.get(name, ()) for name in retyped))
        rules, key_ids = self._by_key_ids(ids, keys)
        concerned = {self.key_ids.get(id_, id_) for id_ in ids} | rules.keys()
        by_key = self.schemas
        if keys:
            by_key = {keys.get(name, name): schema for name, schema in self.schemas.items()}
        try:
            circuit = update_circuit(
                self.circuit,
                rules,
                by_key,
                {keys.get(name, name): limit for name, limit in limits.items()},
                concerned,
                {known.get(name, name) for name in relations for known in (self.keys, keys)},
                holds,
            )
        except ZedlogError as error:
            raise named(error, replace(self, keys=keys, key_ids=key_ids).public_names) from None
        return replace(
            self,
            circuit=circuit,
            types=types,
            fixpoints=limits,
            keys=keys,
            key_ids=key_ids,
            stale=frozenset(),
            stale_rules=frozenset(),
        )

    def _by_key_ids(
        self, ids: Iterable[str], keys: Mapping[str, str]
    ) -> tuple[dict[str, Rule], dict[str, str]]:
        """Those of the rules `ids` that exist, as the circuit knows them when relations have `keys`, by their ids in
        the circuit; and all ids in the circuit that differ from the ids here.
        """
        rules: dict[str, Rule] = {}
        key_ids = dict(self.key_ids)
        for id_ in ids:
            key_ids.pop(id_, None)
            rule = self.tree(id_)
            if rule is not None:
                keyed = renamed(rule, keys)
                if keyed is not rule:
                    key_ids[id_] = rule_id(keyed)
                rules[key_ids.get(id_, id_)] = keyed
        return rules, key_ids


def _put(of: Mapping[str, None], id_: str, there: bool) -> None:
    assert isinstance(of, dict), "it was copied"
    if there:
        of[id_] = None
    else:
        of.pop(id_, None)


def _set(keys: dict[str, str], name: str, key: str) -> None:
    if key == name:
        keys.pop(name, None)
    else:
        keys[name] = key


def _same_types(known: Schema | None, schema: Schema) -> bool:
    return known is not None and [c.type for c in known.columns] == [c.type for c in schema.columns]


def _together(known: Declaration, later: Declaration) -> Declaration:
    """The declaration in force after a later one, which may make the relation a constraint and change its fixpoint."""
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
            f"a rule may have {MAX_BODY} atoms in its body, but this one has {len(rule.body)}; "
            "split it with a new relation",
            text=rule.text,
            span=rule.span,
        )
