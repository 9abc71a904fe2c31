"""The library API: what goes in, what comes out, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine import errors as e
from engine.data.facts import TypedFacts
from engine.data.transaction import FactChange, Transaction
from engine.database.staging import are_distinct
from engine.language.schema import ColumnType
from engine.maintenance.placement import Budget
from zedlog import Reasoner

TC = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]


def edges(*pairs: tuple[Any, Any]) -> dict[str, list[tuple[tuple[Any, Any], int]]]:
    return {"e": [(pair, 1) for pair in pairs]}


@pytest.fixture
def closure() -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(facts=edges(("a", "b"), ("b", "c")), rules=TC)
    return reasoner


def test_the_readme_s_shapes():
    reasoner = Reasoner(placement="auto")
    result = reasoner.apply(facts={"edge": [(("a", "b"), 1)]}, rules=[("tc(x, y) :- edge(x, y).", 1)])
    assert result.epoch == 1
    assert result.changes == {"edge": [(("a", "b"), 1)], "tc": [(("a", "b"), 1)]}
    assert reasoner.count("tc") == 1
    assert reasoner.facts("tc", x="a") == [("a", "b")]
    assert reasoner.rules()[0].text == "tc(x, y) :- edge(x, y)."
    assert result.placement == "resident"


def test_domains_and_weights(closure: Reasoner):
    closure.apply(facts={"tc": [(("a", "c"), 3), (("z", "z"), 1)]})
    assert sorted(closure.facts("tc", domain="asserted")) == [("a", "c"), ("z", "z")]
    assert sorted(closure.facts("tc", domain="derived")) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert closure.count("tc") == 4
    assert (closure.count("tc", "asserted"), closure.count("tc", "derived")) == (2, 3)
    assert closure.weighted("tc", x="a", y="c") == [(("a", "c"), 3)]


def test_a_dry_run_says_what_would_be_and_leaves_everything(closure: Reasoner):
    before = closure.state()
    result = closure.dry_run(facts=edges(("c", "new")), rules=[("p(x) :- tc(x, _).", 1)])
    assert result.dry_run
    assert result.epoch == 2
    assert sorted(result.changes["tc"]) == [(("a", "new"), 1), (("b", "new"), 1), (("c", "new"), 1)]
    assert closure.state() == before
    assert closure.epoch == 1
    assert "p" not in closure.relations()
    assert closure.apply(facts=edges(("c", "new"))).epoch == 2


REFUSED: list[tuple[dict[str, Any], type[e.ZedlogError]]] = [
    ({"facts": {"e": [(("a", "b"), -2)]}}, e.NegativeWeightError),
    ({"facts": {"e": [(("x", "y"), 1), (("x", "y"), -2)]}}, e.NegativeWeightError),
    ({"rules": [("q(x) :- e(x, _).", -1)]}, e.NegativeWeightError),
    ({"facts": {"e": [((1, "b"), 1)]}}, e.TypeMismatchError),
    ({"facts": {"e": [(("a",), 1)]}}, e.ArityError),
    ({"facts": {"e": [(("a", None), 1)]}}, e.InvalidValueError),
    ({"facts": {"n": [((2**63,), 1)]}}, e.InvalidValueError),
    ({"facts": {"n": [((float("nan"),), 1)]}}, e.InvalidValueError),
    ({"facts": {"e": [(("a", "b"), 0)]}}, e.InvalidWeightError),
    ({"facts": {"e": [(("a", "b"), 1.5)]}}, e.InvalidWeightError),
    ({"facts": {"e": [(("a", "b"), 2**63 - 1)]}}, e.WeightOverflowError),
    ({"facts": {"no name": [(("a",), 1)]}}, e.InvalidRequestError),
    ({"rules": [("q(x, y) :- e(x, _).", 1)]}, e.UnsafeRuleError),
    ({"rules": [("q(x) :- e(x).", 1)]}, e.ArityError),
    ({"rules": [("q(x) :- e(x, 1).", 1)]}, e.TypeMismatchError),
    ({"rules": [("q(x) : e(x, _).", 1)]}, e.ProgramSyntaxError),
    ({"declarations": ".decl e(x: number, y: symbol)"}, e.ZedlogError),
    ({"mode": "sets"}, e.InvalidRequestError),
    (
        {"rules": [("q(x0) :- " + ", ".join(f"e(x{i}, x{i + 1})" for i in range(65)) + ".", 1)]},
        e.UnsupportedFeatureError,
    ),
]


@pytest.mark.parametrize(("change", "error"), REFUSED)
def test_a_refused_transaction_changes_nothing(
    closure: Reasoner, change: dict[str, Any], error: type[e.ZedlogError]
):
    before, exported = closure.state(), closure.export()
    # Something good stands beside what is bad.
    good = {"facts": {**change.get("facts", {}), "other": [(("w",), 1)]}}
    with pytest.raises(error):
        closure.apply(**{**change, **good})
    assert closure.state() == before
    assert closure.export().symbols == exported.symbols
    assert closure.epoch == 1
    closure.check_invariants()


def test_a_negative_weight_names_the_tuples(closure: Reasoner):
    with pytest.raises(e.NegativeWeightError) as refused:
        closure.apply(facts={"e": [(("a", "b"), -3), (("q", "r"), -1)]})
    assert sorted(refused.value.detail["tuples"]) == [["a", "b"], ["q", "r"]]
    assert 'e("a", "b")' in str(refused.value)


def test_set_mode_makes_doing_it_again_a_no_op(closure: Reasoner):
    assert closure.apply(facts=edges(("a", "b"), ("a", "b")), mode="set").counts == {}
    assert closure.weighted("e", x="a") == [(("a", "b"), 1)]
    result = closure.apply(facts={"e": [(("a", "b"), -1), (("no", "no"), -1)]}, mode="set")
    assert result.counts["e"] == (0, 1)
    assert closure.apply(rules=[(TC[0][0], 1), ("zz(x) :- e(x, _).", -1)], mode="set").counts == {}
    assert [rule.weight for rule in closure.rules()] == [1, 1]
    # In order: the last change of a tuple decides.
    closure.apply(facts={"e": [(("k", "k"), 1), (("k", "k"), -1), (("k", "k"), 1)]}, mode="set")
    assert closure.weighted("e", x="k") == [(("k", "k"), 1)]


def test_a_rule_of_weight_two_derives_nothing_more(closure: Reasoner):
    before = closure.state()
    assert closure.apply(rules=[("tc(u, v) :- e(u, v).", 1)]).counts == {}
    assert closure.state() == before
    assert closure.apply(rules=[(TC[0][0], -1)]).counts == {}
    assert closure.apply(rules=[(TC[0][0], -1)]).counts == {"tc": (0, 3)}


def test_an_array_of_numbers_is_a_set_of_facts():
    reasoner = Reasoner()
    reasoner.apply(facts={"e": np.array([[1, 2], [2, 3]])}, rules=TC)
    assert sorted(reasoner.facts("tc")) == [(1, 2), (1, 3), (2, 3)]
    for wrong in (np.array([1, 2]), np.array([[1.5]]), np.array([[2**63]], np.uint64)):
        with pytest.raises(e.InvalidValueError):
            reasoner.apply(facts={"e": wrong})


def test_every_type_comes_back_as_it_went_in():
    reasoner = Reasoner()
    rows = [("ü\0\n", -(2**63), 1.5, True), ("", 2**63 - 1, -0.0, False)]
    reasoner.apply(facts={"r": [(row, 1) for row in rows]}, rules=[("s(f, b, n, t) :- r(t, n, f, b).", 1)])
    assert sorted(reasoner.facts("r")) == sorted([rows[0], ("", 2**63 - 1, 0.0, False)])
    assert reasoner.facts("s", f=1.5) == [(1.5, True, -(2**63), "ü\0\n")]
    assert reasoner.facts("s", f=0.0) == reasoner.facts("s", f=-0.0) != []
    with pytest.raises(e.TypeMismatchError):
        reasoner.facts("s", f=1)


def test_nullary_relations():
    reasoner = Reasoner()
    reasoner.apply(
        facts={"go": [((), 1)], "n": [((1,), 1)]}, rules=[("p(x) :- go(), n(x).", 1), ("any() :- n(_).", 1)]
    )
    assert reasoner.facts("p") == [(1,)]
    assert reasoner.facts("any") == [()]
    reasoner.apply(facts={"go": [((), -1)]})
    assert reasoner.facts("p") == []


def test_reading_what_is_not_there(closure: Reasoner):
    with pytest.raises(e.UnknownRelationError) as unknown:
        closure.facts("tcc")
    assert unknown.value.detail["near"] == ["tc"]
    with pytest.raises(e.UnknownColumnError):
        closure.facts("tc", z="a")
    with pytest.raises(e.InvalidRequestError):
        closure.count("tc", "everything")
    assert closure.facts("tc", x="a symbol that nobody has") == []


def test_a_relation_that_nothing_mentions_any_more_is_gone_and_can_come_back_otherwise(closure: Reasoner):
    closure.apply(facts={"loose": [(("a",), 1)]})
    assert "loose" in closure.relations()
    result = closure.apply(facts={"loose": [(("a",), -1)]})
    assert result.changes == {"loose": [(("a",), -1)]}
    assert "loose" not in closure.relations()
    closure.apply(facts={"loose": [((1, 2.5), 1)]})
    assert closure.facts("loose") == [(1, 2.5)]
    result = closure.apply(rules=[(text, -1) for text, _ in TC])
    assert result.counts == {"tc": (0, 3)}
    assert len(result.changes["tc"]) == 3
    closure.apply(rules=[("tc(x) :- loose(x, _).", 1)])
    assert closure.facts("tc") == [(1,)]


def test_an_arity_may_change_in_one_step(closure: Reasoner):
    result = closure.apply(rules=[(TC[0][0], -1), (TC[1][0], -1), ("tc(x) :- e(x, _).", 1)])
    assert sorted(closure.facts("tc")) == [("a",), ("b",)]
    assert result.counts == {"tc": (2, 3)}


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        (Budget(derivations=1000), "derivations"),
        (Budget(tuples=1000), "tuples"),
        (Budget(height=50), "height"),
        (Budget(memory=200_000), "memory"),
        (Budget(seconds=0.0), "seconds"),
    ],
)
def test_a_budget_refuses_names_what_grew_and_leaves_everything(budget: Budget, name: str):
    loaded = Reasoner()
    loaded.apply(facts={"e": np.stack((np.arange(300), np.arange(1, 301)), axis=1)})
    held = loaded.export()
    reasoner = Reasoner.restore(
        held,
        placement="resident",
        budget=budget,
    )
    before = reasoner.state()
    with pytest.raises(e.BudgetExceededError) as refused:
        reasoner.apply(rules=TC)
    assert refused.value.detail["budget"] == name
    assert refused.value.detail["stratum"] == ["tc"]
    assert refused.value.detail["relation"] == "tc"
    assert len(refused.value.detail["rules"]) == 2
    assert reasoner.state() == before
    reasoner.check_invariants()


def test_a_group_is_one_epoch_and_refuses_only_what_is_wrong():
    reasoner = Reasoner()

    def tx(facts: list[dict[str, Any]], **more: Any) -> Transaction:
        return Transaction.parse(facts=facts, **more)

    add = {"relation": "e", "tuples": [["a", "b"]], "weight": 1}
    take = {"relation": "e", "tuples": [["a", "b"]], "weight": -1}
    group = reasoner.commit(
        [tx([take]), tx([add]), tx([take]), tx([take]), tx([add]), tx([add], dry_run=True)]
    )
    kinds = [type(outcome).__name__ for outcome in group.outcomes]
    assert kinds == [
        "NegativeWeightError",
        "EpochResult",
        "EpochResult",
        "NegativeWeightError",
        *["EpochResult"] * 2,
    ]
    assert group.record is not None
    assert (group.record.epoch, reasoner.epoch) == (1, 1)
    assert reasoner.weighted("e") == [(("a", "b"), 1)]
    refused = reasoner.commit([tx([{"relation": "e", "tuples": [["q", "q"]], "weight": -1}])])
    assert refused.record is None
    assert reasoner.epoch == 1
    assert len(reasoner.export().symbols) == 2


def test_a_group_whose_evaluation_is_refused_keeps_what_can_be_kept():
    reasoner = Reasoner(budget=Budget(derivations=1000))
    reasoner.apply(rules=TC)
    chain = [[i, i + 1] for i in range(200)]

    def tx(tuples: list[list[int]], weight: int = 1) -> Transaction:
        return Transaction.parse(facts=[{"relation": "e", "tuples": tuples, "weight": weight}])

    group = reasoner.commit([tx([[-1, -2]]), tx(chain), tx([chain[0]], -1), tx([[-5, -6]])])
    kinds = [type(outcome).__name__ for outcome in group.outcomes]
    # The third retracts what the second would have brought.
    assert kinds == ["EpochResult", "BudgetExceededError", "NegativeWeightError", "EpochResult"]
    assert sorted(reasoner.facts("tc")) == [(-5, -6), (-1, -2)]
    reasoner.check_invariants()


def test_restore_goes_on_where_export_stopped(closure: Reasoner):
    closure.apply(rules=[("tc(u, v) :- e(u, v).", 1)], declarations=".decl d(x: number)")
    exported = closure.export()
    again = Reasoner.restore(exported)
    assert again.state() == closure.state()
    assert again.rules() == closure.rules()
    assert again.relations() == closure.relations()
    assert again.epoch == closure.epoch
    change = {"facts": {"e": [(("a", "b"), -1)], "d": [((4,), 1)]}}
    assert again.apply(**change).changes == closure.apply(**change).changes


def test_an_unknown_placement_is_refused():
    with pytest.raises(e.InvalidRequestError):
        Reasoner(placement="cloud")


class TestIntegersInFloatColumns:
    """JavaScript writes 2.0 as 2: a column that is declared float takes it, and nothing else is converted."""

    @pytest.fixture
    def weighed(self) -> Reasoner:
        reasoner = Reasoner()
        reasoner.apply(declarations=".decl w(x: symbol, n: float)")
        return reasoner

    def test_they_are_the_floats_of_the_same_value(self, weighed: Reasoner):
        weighed.apply(facts={"w": [(("a", 2), 1), (("a", 2.0), 1), (("b", -(2**53)), 1), (("c", 2**62), 1)]})
        expected = [("a", 2.0), ("b", -9007199254740992.0), ("c", 4611686018427387904.0)]
        assert sorted(weighed.facts("w")) == expected
        assert all(type(n) is float for _, n in weighed.facts("w"))
        assert weighed.weighted("w", n=2) == [(("a", 2.0), 2)]
        weighed.apply(facts={"w": [(("a", 2), -2)]})
        assert sorted(weighed.facts("w")) == expected[1:]

    @pytest.mark.parametrize("wrong", [2**53 + 1, 2**63 - 1, -(2**53) - 1, True, "2"])
    def test_what_no_float_is_equal_to_stays_a_mismatch(self, weighed: Reasoner, wrong: Any):
        for given in ([(("a", wrong), 1)], [(("a", 1.5), 1), (("a", 1), 1), (("a", wrong), 1)]):
            with pytest.raises(e.TypeMismatchError, match="holds floats") as caught:
                weighed.apply(facts={"w": given})
            assert (caught.value.detail["expected"], caught.value.detail["column_name"]) == ("float", "n")
        with pytest.raises(e.TypeMismatchError):
            weighed.facts("w", n=wrong)
        assert weighed.facts("w") == []

    def test_arrays(self, weighed: Reasoner):
        weighed.apply(declarations=".decl v(n: number, f: float)")
        weighed.apply(facts={"v": np.array([[1, 2], [3, -(2**53)]])})
        assert sorted(weighed.facts("v")) == [(1, 2.0), (3, -9007199254740992.0)]
        for wrong in (2**53 + 1, 2**63 - 1):
            with pytest.raises(e.TypeMismatchError, match=f"{wrong} is a number; no float has exactly this"):
                weighed.apply(facts={"v": np.array([[1, 2], [5, wrong]])})

    def test_only_where_the_column_is_declared_so(self, weighed: Reasoner):
        weighed.apply(facts={"u": [((1.5,), 1)]})
        with pytest.raises(e.TypeMismatchError, match=r"holds floats, but 2 is a number; write .* 2\.0"):
            weighed.apply(facts={"u": [((2,), 1)]})
        with pytest.raises(e.TypeMismatchError):
            weighed.apply(facts={"m": [((1.5,), 1), ((2,), 1)]})
        # Nor the other way round, nor in a rule.
        weighed.apply(declarations=".decl k(n: number)")
        with pytest.raises(e.TypeMismatchError):
            weighed.apply(facts={"k": [((2.0,), 1)]})
        with pytest.raises(e.TypeMismatchError):
            weighed.apply(rules=[("heavy(x) :- w(x, 2).", 1)])


def test_an_emptied_relation_that_a_rule_reads_stays_known():
    reasoner = Reasoner()
    reasoner.apply(facts={"p": [(("a",), 1)]}, rules=[("q(x) :- p(x).", 1), ("n(count(x)) :- p(x).", 1)])
    reasoner.apply(facts={"p": [(("a",), -1)]})
    for name in ("p", "q"):
        assert [str(c.type) for c in reasoner.relations()[name].columns] == ["None"]
        assert (reasoner.count(name), reasoner.facts(name), reasoner.facts(name, x="a")) == (0, [], [])
        for query in (
            "{}(x)",
            '{}("a")',
            "{}(1)",
            "{}(x), x != 1",
            "{}(x), {}(y), x < y",
            "r(min(x)) :- {}(x)",
        ):
            assert reasoner.query(query.replace("{}", name)).tuples == []
    kept = reasoner.export()
    restored = Reasoner.restore(kept)
    assert restored.facts("p") == []
    # It takes another type then; and it is gone with the last rule.
    reasoner.apply(facts={"p": [((1,), 1)]})
    assert reasoner.facts("q") == [(1,)]
    reasoner.apply(facts={"p": [((1,), -1)]}, rules=[("q(x) :- p(x).", -1), ("n(count(x)) :- p(x).", -1)])
    with pytest.raises(e.UnknownRelationError):
        reasoner.facts("p")


M = 2**63 - 1
T = ("a", 1)


@pytest.mark.parametrize(
    "shape",
    [
        [("alice", 1)],
        [["alice", 1]],
        [(("alice", "bob"), 1, 2)],
        [("alice", "bob", "cid")],
        [({"alice"}, 1)],
        [7],
        ["alice"],
        "alice",
        b"alice",
        {("alice",): 1},
        None,
        7,
    ],
)
def test_facts_of_another_shape_are_refused_and_the_right_one_is_shown(shape: Any):
    reasoner = Reasoner()
    for change in (reasoner.apply, reasoner.dry_run):
        with pytest.raises(e.InvalidRequestError, match=r'such as \[\(\("alice", 1\), 1\)\]'):
            change(facts={"r": shape})
    assert reasoner.relations() == {}


def test_facts_and_rules_as_other_things_than_collections_of_pairs_are_refused():
    with pytest.raises(e.InvalidRequestError, match="must map names"):
        Reasoner().apply(facts=[("r", [(("a",), 1)])])  # type: ignore[arg-type]
    for wrong in (["p(x) :- q(x)."], "p(x) :- q(x).", [("p(x) :- q(x).",)], [(1, 1)]):
        with pytest.raises(e.InvalidRequestError, match=r"such as \[\("):
            Reasoner().apply(rules=wrong)  # type: ignore[arg-type]


def test_any_iterable_of_facts_and_of_rules_is_consumed():
    reasoner = Reasoner()
    reasoner.apply(
        facts={"e": ((("a", str(i)), 1) for i in range(3)), "w": {("k",): 2, ("l",): 3}.items()},
        rules=(rule for rule in TC),
    )
    assert sorted(reasoner.facts("tc")) == [("a", "0"), ("a", "1"), ("a", "2")]
    assert sorted(reasoner.weighted("w")) == [(("k",), 2), (("l",), 3)]


def test_scalars_of_numpy_are_values_and_weights():
    reasoner = Reasoner()
    row = (np.str_("x"), np.int64(-3), np.float64(0.5), np.bool_(True), np.float32(0.25), np.uint64(7))
    reasoner.apply(facts={"r": [(row, np.int32(2)), (("y", 1, 1.0, False, 2.0, 3), 1)]})
    assert sorted(reasoner.weighted("r")) == [
        (("x", -3, 0.5, True, 0.25, 7), 2),
        (("y", 1, 1.0, False, 2.0, 3), 1),
    ]
    assert {type(v) for row in reasoner.facts("r") for v in row} == {str, int, float, bool}
    assert len(reasoner.facts("r", c1=np.int64(-3), c2=np.float64(0.5), c3=np.bool_(True))) == 1
    reasoner.apply(facts={"p": [(np.array([1, 2]), 1)]})
    assert reasoner.facts("p") == [(1, 2)]
    logged = Transaction.parse([{"relation": "r", "tuples": [row], "weight": np.int64(1)}])
    assert Transaction.decode(logged.encode()).facts[0].tuples == [["x", -3, 0.5, True, 0.25, 7]]
    for wrong in (np.datetime64("2020-01-01"), np.complex128(1), np.bytes_(b"x"), np.uint64(2**63)):
        with pytest.raises(e.InvalidValueError):
            reasoner.apply(facts={"s": [((wrong,), 1)]})
    for weight in (np.float64(1), np.bool_(True), np.int64(0), np.uint64(2**63), np.int64(-(2**63))):
        with pytest.raises(e.InvalidWeightError):
            reasoner.apply(facts={"s": [((1,), weight)]})


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), np.float64("inf")])
def test_what_is_not_finite_is_refused_everywhere(value: float):
    reasoner = Reasoner()
    reasoner.apply(facts={"f": [((0.5,), 1)]}, declarations=".decl d(x: float)")
    for relation in ("f", "d", "new"):
        for change in (reasoner.apply, reasoner.dry_run):
            with pytest.raises(e.InvalidValueError, match="must be finite"):
                change(facts={relation: [((0.25,), 1), ((value,), 1)]})
    with pytest.raises(e.InvalidValueError, match="must be finite"):
        Transaction.parse([{"relation": "f", "tuples": [[value]]}])
    with pytest.raises(e.InvalidValueError, match="must be finite"):
        reasoner.facts("f", c0=value)
    table = pa.table({"c0": pa.array([float(value)])})
    columns = FactChange("f", TypedFacts((ColumnType.FLOAT,), table))
    (outcome,) = reasoner.commit([Transaction(facts=(columns,))]).outcomes
    assert isinstance(outcome, e.InvalidValueError)
    assert "column 1 of the facts of f: a float must be finite" in str(outcome)


def test_a_bound_of_more_than_64_bits_and_half_a_character_are_refused():
    reasoner = Reasoner()
    reasoner.apply(facts={"n": [((1,), 1)]})
    with pytest.raises(e.InvalidValueError, match="does not fit into 64 bits"):
        reasoner.facts("n", c0=2**63)
    with pytest.raises(e.InvalidValueError, match="surrogate"):
        reasoner.apply(facts={"s": [(("\ud800",), 1)]})


@pytest.mark.parametrize("order", sorted(set(permutations([M, M, -M]))))
def test_the_weights_of_one_tuple_are_added_up_before_they_are_judged(order: tuple[int, ...]):
    reasoner = Reasoner()
    assert reasoner.apply(facts={"r": [(T, w) for w in order]}).changes == {"r": [(T, 1)]}
    assert reasoner.weighted("r") == [(T, M)]
    entries = [{"relation": "s", "tuples": [list(T)], "weight": w} for w in order]
    table = pa.table({"c0": ["a"] * 3, "c1": [1] * 3})
    typed = TypedFacts((ColumnType.SYMBOL, ColumnType.NUMBER), table)
    plain = Transaction.parse(entries)
    transaction = replace(plain, facts=(*plain.facts, FactChange("t", typed, np.array(order, np.int64))))
    assert reasoner.commit([transaction]).record is not None
    assert reasoner.weighted("s") == reasoner.weighted("t") == [(T, M)]
    # Together with what is there it is the sum that counts, too.
    reasoner.apply(facts={"r": [(T, -1)]})
    reasoner.apply(facts={"r": [(T, 2), (T, -1)] if order[0] > 0 else [(T, -1), (T, 2)]})
    assert reasoner.weighted("r") == [(T, M)]
    reasoner.check_invariants()


@pytest.mark.parametrize("order", sorted(set(permutations([M, M, -M]))))
def test_the_weights_of_one_rule_are_added_up_before_they_are_judged(order: tuple[int, ...]):
    reasoner = Reasoner()
    reasoner.apply(rules=[("p(x) :- q(x).", weight) for weight in order])
    assert [rule.weight for rule in reasoner.rules()] == [M]
    with pytest.raises(e.WeightOverflowError):
        reasoner.apply(rules=[("p(y) :- q(y).", 1)])


def test_a_sum_or_a_weight_that_leaves_64_bits_names_the_tuples():
    reasoner = Reasoner()
    for weights in ([M, M], [M, 1], [-M, -M], [-M, -1], [M, -1, 2]):
        with pytest.raises(e.WeightOverflowError) as refused:
            reasoner.apply(facts={"ok": [(("k",), 1)], "r": [(T, w) for w in weights]})
        assert refused.value.detail["tuples"] == [["a", 1]]
        assert 'r("a", 1)' in str(refused.value)
        assert str(sum(weights)) in str(refused.value)
        assert reasoner.relations() == {}
    reasoner.apply(facts={"r": [(T, M)]})
    exported = reasoner.export()
    again = Reasoner.restore(exported)
    for holding in (reasoner, again):
        with pytest.raises(e.WeightOverflowError) as refused:
            holding.apply(facts={"r": [(T, 1)]})
        assert refused.value.detail["weights"] == [M]
        assert refused.value.detail["changes"] == [1]


def test_a_group_adds_up_what_each_transaction_alone_may_do():
    reasoner = Reasoner()
    weights = [M, 1, -M, M, -1]
    group = reasoner.commit(
        [Transaction.parse([{"relation": "r", "tuples": [list(T)], "weight": w}]) for w in weights]
    )
    fates = [type(outcome).__name__ for outcome in group.outcomes]
    assert fates == ["EpochResult", "WeightOverflowError", *["EpochResult"] * 3]
    assert reasoner.weighted("r") == [(T, M - 1)]
    reasoner.check_invariants()


def test_changes_that_cancel_out_fix_no_type():
    reasoner = Reasoner()
    assert reasoner.apply(facts={"r": [(("a",), 1), (("a",), -1)]}).changes == {}
    reasoner.apply(facts={"r": [((1,), 1)]})
    assert reasoner.facts("r") == [(1,)]


@pytest.mark.parametrize("declarations", ["", ".decl never(x: symbol, f: float, b: bool)"])
def test_a_negative_weight_of_an_unknown_relation_is_named_as_it_was_sent(declarations: str):
    with pytest.raises(e.NegativeWeightError) as refused:
        Reasoner().apply(facts={"never": [(("bob", 2.5, True), -1)]}, declarations=declarations)
    assert refused.value.detail["tuples"] == [["bob", 2.5, True]]
    assert 'never("bob", 2.5, true)' in str(refused.value)


def test_tuples_whose_checksums_are_equal_are_told_apart():
    # Staging takes tuples with different checksums for distinct; these have the same one.
    one, other = (0, 0), (7046029254386353131, 1)
    assert not are_distinct(np.array([one, other]))
    reasoner = Reasoner()
    reasoner.apply(facts={"e": [(one, 1), (other, 2)]})
    with pytest.raises(e.NegativeWeightError) as refused:
        reasoner.apply(facts={"e": [(one, -2), (other, -1)]})
    assert refused.value.detail["tuples"] == [[0, 0]]
    reasoner.apply(facts={"e": [(one, -1), (other, -1)]})
    assert reasoner.weighted("e") == [(other, 1)]


@pytest.mark.parametrize("one_more", [False, True])
def test_a_tuple_that_is_retracted_more_often_than_it_is_there_is_refused_among_others(one_more: bool):
    reasoner = Reasoner()
    reasoner.apply(facts={"e": [((i, i + 1), 1) for i in range(10)]})
    changes = [((i, i + 1), -1) for i in range(5)] + [((3, 4), -1)] * one_more
    if one_more:
        with pytest.raises(e.NegativeWeightError) as refused:
            reasoner.apply(facts={"e": changes})
        assert refused.value.detail["tuples"] == [[3, 4]]
    else:
        assert reasoner.apply(facts={"e": changes}).counts == {"e": (0, 5)}
    assert reasoner.count("e") == (10 if one_more else 5)
