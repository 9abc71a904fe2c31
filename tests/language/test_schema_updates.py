"""Schemas that are brought up to date are those that follow from rules, declarations and facts."""

from __future__ import annotations

import random

import pytest

from engine.data.transaction import RuleChange
from engine.database.program import Program
from engine.errors import ZedlogError
from engine.language.inference import infer_schemas, relations_of
from engine.language.schema import Column, ColumnType, Schema

RELATIONS = "abcdef"
SHAPES = (
    "{}(x, y) :- {}(x, z), {}(z, y).",
    "{}(x, y) :- {}(x, y), {}(y, x).",
    "{}(x, 1) :- {}(x, _), {}(_, _).",
    '{}("s", y) :- {}(_, y), {}(_, _).',
    "{}(x, y + 1) :- {}(x, y), {}(_, x).",
    "{}(x, cat(x, y)) :- {}(x, y), {}(y, _).",
    "{}(x, n) :- {}(x, _), n = count : {{ {}(x, _) }}.",
)


def shown(schemas: dict[str, Schema]) -> dict[str, tuple[list[ColumnType | None], bool]]:
    return {name: ([c.type for c in schema.columns], schema.declared) for name, schema in schemas.items()}


def random_change(choose: random.Random, program: Program) -> Program:
    """Rules that come and go, declarations that do, relations that get facts or lose them."""

    def kind() -> ColumnType:
        return choose.choice([ColumnType.SYMBOL, ColumnType.NUMBER])

    changes = []
    for _ in range(choose.choice([0, 1, 1, 3])):
        if program.rules and choose.random() < 0.4:
            changes.append(RuleChange(choose.choice(program.rule_infos).canonical, -1))
        else:
            heads = (choose.choice(RELATIONS) for _ in range(3))
            changes.append(RuleChange(choose.choice(SHAPES).format(*heads), 1))
    declared = f".decl {choose.choice(RELATIONS)}(u: {kind()}, v: {kind()})" if choose.random() < 0.12 else ""
    undeclared = [choose.choice(sorted(program.declarations))] if program.declarations else []
    emptied = [choose.choice(sorted(program.stored))] if program.stored else []
    after = program.changed(
        changes,
        declared,
        "set",
        emptied if choose.random() < 0.25 else [],
        undeclared if choose.random() < 0.2 else [],
    )
    name = choose.choice(RELATIONS)
    if choose.random() < 0.25 and name not in after.stored:
        known = after.schemas.get(name)
        columns = known.columns if known is not None else (Column("c0", None), Column("c1", None))
        typed = tuple(Column(column.name, column.type or kind()) for column in columns)
        after = after.with_facts({name: Schema(name, typed)})
    return after


@pytest.mark.parametrize("seed", range(60))
def test_updated_schemas_are_the_inferred_ones(seed: int) -> None:
    choose = random.Random(seed)
    program = Program()
    for _ in range(20):
        try:
            after = random_change(choose, program)
        except ZedlogError:
            continue
        rules = [rule for _, rule in after.rules.values()]
        declarations = list(after.declarations.values())
        inferred = infer_schemas(declarations, after.stored, rules, program.schemas)
        assert shown(dict(after.schemas)) == shown(inferred)
        users: dict[str, set[str]] = {}
        for id_, (_, rule) in after.rules.items():
            for relation in relations_of(rule):
                users.setdefault(relation, set()).add(id_)
        assert {relation: set(ids) for relation, ids in after.users.items()} == users
        program = after


def test_a_change_keeps_the_schemas_that_it_does_not_concern() -> None:
    rules = [RuleChange(text) for text in ("b(x) :- a(x).", "d(x) :- c(x).", "e(x) :- d(x), a(x).")]
    before = Program().changed(rules, "", "zset")
    after = before.with_facts({"c": Schema("c", (Column("x", ColumnType.NUMBER),))})
    kinds = {name: schema.columns[0].type for name, schema in after.schemas.items()}
    # c is a number, and through their rules d, e and a, and so b, are too.
    assert set(kinds.values()) == {ColumnType.NUMBER}
    more = after.changed([RuleChange("f(x) :- a(x), g(x).")], "", "zset")
    assert all(more.schemas[name] is schema for name, schema in after.schemas.items())
    assert more.schemas["g"].columns == (Column("x", ColumnType.NUMBER),)
