"""Sources: facts that count for a source, and are replaced or taken back with it."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.facts import TypedFacts
from engine.data.sources import is_hidden
from engine.data.transaction import MAX_WEIGHT, FactChange, Transaction
from engine.database.checkpoint import Checkpoint
from engine.database.epoch import EpochResult
from engine.errors import InvalidRequestError, SourcedFactError, WeightOverflowError, ZedlogError
from engine.language.schema import ColumnType
from engine.resident.checkpoint import ResidentParts
from tests.history.model import ROWS, SOURCES, Model, random_body, transaction
from tests.oracle.programs import History, histories, totals
from tests.oracle.rules import rule_text
from tests.oracle.subject import bootstrap, declared
from zedlog import Reasoner

STEPS = 14


def holds(reasoner: Reasoner, model: Model) -> None:
    """Relations and sources have exactly the model's weights, and people see no other relations."""
    schemas = reasoner.relations()
    for relation in ROWS:
        held = dict(reasoner.weighted(relation, "asserted")) if relation in schemas else {}
        assert held == dict(model.total(relation)), relation
        for source in SOURCES:
            given = reasoner.asserted_by(source, relation) if relation in schemas else {}
            assert given == dict(model.of_source(relation, source)), (relation, source)
    assert not [name for name in schemas if not name.isidentifier()]


def copied(checkpoint: Checkpoint | None) -> Checkpoint:
    """With arrays of its own, as from a file."""
    assert checkpoint is not None
    about, arrays = checkpoint.parts
    return replace(checkpoint, parts=ResidentParts(copy.deepcopy(about), [array.copy() for array in arrays]))


def run(reasoner: Reasoner, bodies: list[dict[str, Any]], model: Model) -> tuple[Model, list[bool]]:
    """Commit the bodies as one group where that is possible; the model after them, and which were accepted."""
    transactions = [transaction(body) for body in bodies]
    accepted: list[bool] = []
    while transactions:
        sharing = reasoner.sharing(transactions)
        for outcome in reasoner.commit(transactions[:sharing], shared=True).outcomes:
            accepted.append(isinstance(outcome, EpochResult))
        del transactions[:sharing]
    expected = []
    for body in bodies:
        after = model.after(body)
        expected.append(after is not None)
        model = after or model
    assert accepted == expected
    return model, accepted


@pytest.mark.parametrize("seed", range(40))
def test_weights_by_source_are_those_of_the_model(seed: int) -> None:
    rng = random.Random(seed)
    reasoner, model = Reasoner("resident"), Model()
    kept: Checkpoint | None = None
    for _ in range(STEPS):
        # Some share an epoch.
        bodies = [random_body(rng) for _ in range(rng.choice((1, 1, 2, 5)))]
        dry = reasoner.commit([transaction(bodies[0], dry_run=True)]).outcomes[0]
        assert isinstance(dry, EpochResult) == (model.after(bodies[0]) is not None)
        holds(reasoner, model)
        model, _ = run(reasoner, bodies, model)
        holds(reasoner, model)
        reasoner.check_invariants()
        if rng.random() < 0.3:
            kept = copied(reasoner.checkpoint())
        if rng.random() < 0.2:
            reasoner = Reasoner.restore(reasoner.export())
            holds(reasoner, model)
        elif kept is not None and rng.random() < 0.3:
            # Sources are brought from the checkpoint to the newest epoch as other facts are.
            reasoner = Reasoner.resume(copied(kept), reasoner.export())
            holds(reasoner, model)
            reasoner.check_invariants()
    fresh = Reasoner.restore(reasoner.export())
    assert fresh.state() == reasoner.state()


@pytest.mark.parametrize("seed", range(10))
def test_only_the_difference_to_the_new_content_is_an_epoch(seed: int) -> None:
    rng = random.Random(seed)
    reasoner = Reasoner()
    reasoner.apply(rules=[("tc(x, y) :- edge(x, y).", 1)])
    old: set[tuple[Any, ...]] = set()
    for _ in range(8):
        new = set(rng.sample(ROWS["edge"], rng.randint(0, 6)))
        rows = [*new, *rng.choices(sorted(new), k=2)] if new else []
        body = {
            "facts": [{"relation": "edge", "tuples": rows}],
            "source": "hr",
            "replaces": "source",
            "mode": "set",
        }
        result = commit(reasoner, **body)
        expected = {(row, 1) for row in new - old} | {(row, -1) for row in old - new}
        assert set(result.changes.get("edge", [])) == set(result.changes.get("tc", [])) == expected
        assert not commit(reasoner, **body).changes
        old = new


@settings(max_examples=40)
@given(histories(), st.randoms(use_true_random=False))
def test_whoever_asserts_the_facts_what_follows_is_the_same(history: History, rng: random.Random) -> None:
    """The master property with sources: supports, heights and indexes are those of a bootstrap without any."""
    facts, rules = totals(history.epochs)
    reasoner = declared(history)
    parts: dict[str | None, list[dict[str, Any]]] = {None: [], "hr": [], "crm": []}
    for name, rows in facts.items():
        for row, weight in rows.items():
            first = rng.randint(1, weight)
            for share in (first, weight - first):
                if share:
                    parts[rng.choice((None, "hr", "crm"))].append(fact(name, row, weight=share))
    # What they assert at first is replaced.
    for source in ("hr", "crm"):
        some = [fact(name, row) for name, rows in facts.items() for row in rows if rng.random() < 0.5]
        if some:
            commit(reasoner, facts=some, source=source)
    for text, weight in {rule_text(rule): weight for rule, weight in rules.items()}.items():
        commit(reasoner, rules=[{"rule": text, "weight": weight}])
    for source, own in sorted(parts.items(), key=lambda _: rng.random()):
        commit(reasoner, facts=own, source=source, replaces="source" if source else None)
    reasoner.check_invariants()
    for part, by_relation in bootstrap(history).state().items():
        found = {name: rows for name, rows in reasoner.state()[part].items() if not is_hidden(str(name))}
        assert found == by_relation, part


def commit(reasoner: Reasoner, **body: Any) -> EpochResult:
    outcome = reasoner.commit([Transaction.parse(**body)]).outcomes[0]
    if isinstance(outcome, ZedlogError):
        raise outcome
    return outcome


def fact(relation: str, *rows: Any, weight: int = 1) -> dict[str, Any]:
    return {"relation": relation, "tuples": [list(row) for row in rows], "weight": weight}


def test_errors_name_the_tuples_the_source_and_what_it_has() -> None:
    reasoner = Reasoner()
    commit(reasoner, facts=[fact("edge", ("a", "b"), weight=2)], source="hr")
    commit(reasoner, facts=[fact("edge", ("a", "b"))])
    with pytest.raises(ZedlogError, match='the source "hr" would retract edge') as error:
        commit(reasoner, facts=[fact("edge", ("a", "b"), weight=-3)], source="hr")
    assert error.value.code == "negative_weight"
    about = {
        "relation": "edge",
        "tuples": [["a", "b"]],
        "weights": [2],
        "changes": [-3],
        "source": "hr",
        "number": 1,
    }
    assert error.value.detail == about
    with pytest.raises(SourcedFactError, match='what the source "hr" asserts') as refused:
        commit(reasoner, facts=[fact("edge", ("a", "b"), weight=-2)])
    assert refused.value.detail["sources"] == ["hr"]
    assert refused.value.detail["weights"] == [3]
    commit(reasoner, facts=[fact("edge", ("a", "b"), weight=-1)])
    with pytest.raises(SourcedFactError):
        commit(reasoner, facts=[fact("edge", ("a", "b"), weight=-1)], mode="set")


def test_weights_stay_in_their_range() -> None:
    reasoner = Reasoner()
    commit(reasoner, facts=[fact("edge", ("a", "b"), weight=MAX_WEIGHT - 1)], source="hr")
    with pytest.raises(WeightOverflowError, match=r'weight of edge\("a", "b"\) too large'):
        commit(reasoner, facts=[fact("edge", ("a", "b"), weight=2)], source="crm")
    commit(reasoner, facts=[fact("edge", ("a", "b"))], source="crm")
    assert dict(reasoner.weighted("edge")) == {("a", "b"): MAX_WEIGHT}
    with pytest.raises(SourcedFactError):
        commit(reasoner, facts=[fact("edge", ("a", "b"), weight=-1)])


def test_a_source_follows_its_relation_to_other_types() -> None:
    reasoner = Reasoner()
    commit(reasoner, facts=[fact("r", ("1",), ("2",))], source="hr", rules=[{"rule": "s(x) :- r(x)."}])
    commit(reasoner, facts=[fact("r", ("2",))], source="crm")
    with pytest.raises(ZedlogError, match="holds symbol"):
        commit(reasoner, facts=[fact("r", (1,))], source="hr", replaces="source")
    commit(reasoner, facts=[], source="crm", replaces="source")
    commit(reasoner, facts=[fact("r", (1,))], source="hr", replaces="source")
    assert reasoner.asserted_by("hr", "r") == {(1,): 1}
    assert dict(reasoner.weighted("r")) == {(1,): 1}
    assert reasoner.facts("s") == [(1,)]
    # Integers, which a declaration of the same transaction makes floats.
    commit(reasoner, facts=[fact("f", (1,))], source="hr", declarations=".decl f(x: float)")
    assert reasoner.asserted_by("hr", "f") == {(1.0,): 1}
    commit(reasoner, facts=[], source="hr", replaces="source")
    assert not Reasoner.restore(reasoner.export()).export().facts
    reasoner.check_invariants()


def test_typed_columns_of_an_import_count_for_a_source() -> None:
    def imported(rows: list[tuple[str, int]], weights: list[int], **more: Any) -> Transaction:
        names, numbers = zip(*rows, strict=True)
        table = pa.table({"c0": pa.array(names), "c1": pa.array(numbers)})
        typed = TypedFacts((ColumnType.SYMBOL, ColumnType.NUMBER), table)
        return Transaction(facts=(FactChange("age", typed, np.array(weights)),), **more).told(source="hr")

    reasoner = Reasoner()
    reasoner.commit([imported([("a", 1), ("b", 2)], [1, 2])])
    assert reasoner.asserted_by("hr", "age") == dict(reasoner.weighted("age")) == {("a", 1): 1, ("b", 2): 2}
    reasoner.commit([imported([("a", 1), ("b", 2), ("c", 3)], [-1, -1, 1])])
    assert reasoner.asserted_by("hr", "age") == {("b", 2): 1, ("c", 3): 1}
    (refused,) = reasoner.commit([imported([("a", 1)], [-1])]).outcomes
    assert isinstance(refused, ZedlogError)
    assert refused.code == "negative_weight"
    reasoner.commit([imported([("b", 2), ("d", 4)], [1, 1], mode="set")])
    assert reasoner.asserted_by("hr", "age") == {("b", 2): 1, ("c", 3): 1, ("d", 4): 1}


def test_a_replacement_hides_nothing_that_is_wrong_with_an_earlier_transaction() -> None:
    """It takes away what it does not name, so it does not share an epoch."""
    reasoner = Reasoner()
    rules = [{"rule": "loop(x) :- edge(x, x)."}]
    commit(
        reasoner,
        rules=rules,
        declarations=".decl loop(x: symbol) constraint",
        facts=[fact("edge", ("a", "b"))],
    )
    commit(reasoner, facts=[fact("edge", ("a", "c"))], source="hr")
    group = [
        Transaction.parse([fact("edge", ("c", "c"))], source="hr"),
        Transaction.parse([fact("edge", ("a", "d"))], source="hr", replaces="source"),
    ]
    assert reasoner.sharing(group) == 1
    wrong, right = reasoner.commit(group).outcomes
    assert isinstance(wrong, ZedlogError)
    assert wrong.code == "constraint_violated"
    assert isinstance(right, EpochResult)
    assert reasoner.asserted_by("hr", "edge") == {("a", "d"): 1}
    # Facts of sources share epochs as others do, also the first ones of a source.
    assert (
        reasoner.sharing([Transaction.parse([fact("edge", ("b", n))], source=n) for n in ("x", "y", "z")])
        == 3
    )


def test_hidden_collections_have_no_names_that_people_can_use() -> None:
    reasoner = Reasoner()
    commit(reasoner, facts=[fact("edge", ("a", "b"))], source="hr")
    assert sorted(reasoner.relations()) == ["edge"]
    for use in (
        lambda: commit(reasoner, facts=[fact("edge (from hr)", ("a", "b"))]),
        lambda: commit(reasoner, facts=[fact("edge (from hr)", ("a", "b"), weight=-1)], source="crm"),
        lambda: commit(reasoner, undeclare=["edge (from hr)"]),
        lambda: reasoner.facts("edge (from hr)"),
        lambda: reasoner.query("edge (from hr)(x, y)"),
    ):
        with pytest.raises(ZedlogError):
            use()
    assert commit(reasoner, facts=[fact("edge", ("b", "c"))], source="hr").counts == {"edge": (1, 0)}


@pytest.mark.parametrize(
    "body",
    [
        {"source": ""},
        {"source": " hr"},
        {"source": "a/b"},
        {"source": "a (replaced"},
        {"source": ".."},
        {"source": "x" * 201},
        {"source": "a\nb"},
        {"source": 3},
        {"replaces": "source"},
        {"source": "hr", "replaces": "everything"},
        {"source": "hr", "replaces": "source", "facts": [fact("edge", ("a", "b"), weight=-1)]},
        {"message": ""},
        {"message": "m" * 2_001},
        {"author": "a" * 201},
        {"rollback": -1},
        {"rollback": True},
        {"rollback": 3, "facts": [fact("edge", ("a", "b"))]},
        {"rollback": 3, "source": "hr"},
    ],
)
def test_bad_input_is_refused_when_it_is_read(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        Transaction.parse(**body)


def test_only_an_engine_can_roll_back() -> None:
    with pytest.raises(InvalidRequestError, match="older epochs"):
        commit(Reasoner(), rollback=0)


def test_what_is_not_said_is_not_written() -> None:
    plain = Transaction.parse([fact("edge", ("a", "b"))])
    said = {"author", "message", "source", "replaces", "rollback", "resolved"}
    assert not any(name.encode() in plain.encode() for name in said)
    full = plain.told("ann", "why", "hr", "relations")
    assert Transaction.decode(full.encode()) == full
    back = Transaction.parse(rollback=3, author="ann")
    assert Transaction.decode(back.encode()) == back
