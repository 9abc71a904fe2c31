"""Rules added and removed at run time, one by one: every size can be counted by hand."""

from __future__ import annotations

import pytest

from engine.errors import NegativeWeightError
from tests.conformance.programs import BASE, CLOSURE, LEFT_LINEAR, weighted
from tests.oracle.subject import assert_same_state
from zedlog import Reasoner

FROM_ONE = "tc1(1, x) :- tc(1, x)."


def total(reasoner: Reasoner) -> int:
    """The number of tuples of all relations."""
    return sum(map(len, presence(reasoner).values()))


def presence(reasoner: Reasoner) -> dict[str, set[tuple[object, ...]]]:
    return {name: set(reasoner.facts(name)) for name in reasoner.relations()}


def test_rules_added_and_removed_one_by_one() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts={"e": weighted([(1, 2), (2, 3), (3, 4)])})
    sizes = [total(reasoner)]
    for rule in (BASE, LEFT_LINEAR, FROM_ONE):
        reasoner.apply(rules=[(rule, 1)])
        sizes.append(total(reasoner))
    for rule in (FROM_ONE, LEFT_LINEAR, BASE):
        reasoner.apply(rules=[(rule, -1)])
        sizes.append(total(reasoner))
    assert sizes == [3, 6, 9, 12, 9, 6, 3]
    assert presence(reasoner)["e"] == {(1, 2), (2, 3), (3, 4)}


def test_retraction_of_an_edge_leaves_what_has_another_way() -> None:
    """Of the edges 12 15 23 34 45, 45 goes: tc(1,5) stays by the edge 15."""
    reasoner = Reasoner()
    reasoner.apply(facts={"e": weighted([(1, 2), (1, 5), (2, 3), (3, 4), (4, 5)])}, rules=CLOSURE)
    assert reasoner.count("tc") == 10
    result = reasoner.apply(facts={"e": [((4, 5), -1)]})
    assert reasoner.count("tc") == 7
    assert (1, 5) in reasoner.facts("tc")
    assert sorted(result.changes["tc"]) == [((2, 5), -1), ((3, 5), -1), ((4, 5), -1)]


@pytest.mark.parametrize("removed", [0, 1])
def test_two_rules_that_share_a_body_prefix(removed: int) -> None:
    """Added in one transaction, one of them removed: the other's tuples stay."""
    rules = ["to_c(x, z) :- a(x, y), b(y, w), c(w, z).", "to_d(x, z) :- a(x, y), b(y, w), d(w, z)."]
    heads = ["to_c", "to_d"]
    reasoner = Reasoner()
    reasoner.apply(
        facts={
            "a": weighted([(1, 2)]),
            "b": weighted([(2, 3)]),
            "c": weighted([(3, 4)]),
            "d": weighted([(3, 5)]),
        },
        rules=[(rule, 1) for rule in rules],
    )
    assert (reasoner.facts("to_c"), reasoner.facts("to_d")) == ([(1, 4)], [(1, 5)])
    result = reasoner.apply(rules=[(rules[removed], -1)])
    assert result.counts == {heads[removed]: (0, 1)}
    kept = heads[1 - removed]
    assert reasoner.facts(kept) == [(1, 4) if kept == "to_c" else (1, 5)]
    # What stays is maintained as before.
    assert reasoner.apply(facts={"b": [((2, 3), -1)]}).counts == {"b": (0, 1), kept: (0, 1)}
    reasoner.check_invariants()


@pytest.mark.parametrize("removed", [0, 1])
def test_two_rules_of_one_head_that_share_a_body_prefix(removed: int) -> None:
    """The same with one head: a tuple that both derive stays, one that only the removed rule derives goes."""
    rules = ["p(x, z) :- a(x, y), b(y, z).", "p(x, z) :- a(x, y), b(y, w), c(w, z)."]
    reasoner = Reasoner()
    reasoner.apply(
        facts={"a": weighted([(1, 2)]), "b": weighted([(2, 3), (2, 4)]), "c": weighted([(3, 4), (4, 9)])},
        rules=[(rule, 1) for rule in rules],
    )
    assert set(reasoner.facts("p")) == {(1, 3), (1, 4), (1, 9)}
    reasoner.apply(rules=[(rules[removed], -1)])
    assert set(reasoner.facts("p")) == [{(1, 4), (1, 9)}, {(1, 3), (1, 4)}][removed]


def test_an_alpha_variant_of_a_rule_is_the_rule() -> None:
    reasoner = Reasoner()
    reasoner.apply(facts={"e": weighted([(1, 2), (2, 3)])}, rules=CLOSURE)
    reasoner.apply(rules=[("tc(a,c):-tc(a,b),e(b,c).", 1)])
    assert sorted(info.weight for info in reasoner.rules()) == [1, 2]
    assert reasoner.count("tc") == 3
    reasoner.apply(rules=[("tc(?u, ?w) :- tc(?u, ?v), e(?v, ?w).", -2)])
    assert [info.canonical for info in reasoner.rules()] == [info.canonical for info in only_base().rules()]
    assert set(reasoner.facts("tc")) == {(1, 2), (2, 3)}


def only_base() -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(rules=[(BASE, 1)])
    return reasoner


@pytest.mark.parametrize(
    "absent",
    [
        "tc(x, z) :- e(y, z), tc(x, y).",  # another order of the body is another rule
        "tc(x, x) :- e(x, x).",
        "tc(x, z) :- tc(x, y), e(y, _), e(y, z).",
    ],
)
def test_retraction_of_a_rule_that_is_not_there_is_refused_whole(absent: str) -> None:
    reasoner = Reasoner()
    reasoner.apply(facts={"e": weighted([(1, 2), (2, 3)])}, rules=CLOSURE)
    state, epoch = reasoner.state(), reasoner.epoch
    with pytest.raises(NegativeWeightError) as refused:
        reasoner.apply(facts={"e": [((3, 4), 1)]}, rules=[(absent, -1)])
    assert refused.value.code == "negative_weight"
    assert reasoner.state() == state
    assert reasoner.epoch == epoch


def test_a_rule_added_twice_derives_nothing_more() -> None:
    twice, once = Reasoner(), Reasoner()
    facts = {"e": weighted([(1, 2), (2, 3)])}
    once.apply(facts=facts, rules=CLOSURE)
    twice.apply(facts=facts, rules=[(rule, 2) for rule, _ in CLOSURE])
    assert twice.apply(rules=[(LEFT_LINEAR, 1)]).counts == {}
    assert twice.apply(rules=[(rule, -1) for rule, _ in CLOSURE]).counts == {}
    assert twice.apply(rules=[(LEFT_LINEAR, -1)]).counts == {}
    assert_same_state(twice, once)
