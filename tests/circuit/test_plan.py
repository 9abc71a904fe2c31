"""Delta plans: what they bind, in which order, and what they sum up."""

from __future__ import annotations

import pytest

from engine.circuit.normal import Demand, normalise
from engine.circuit.plan import Absent, Check, Extend, Let, Where, compile_rule
from engine.language.inference import infer_schemas
from engine.language.parser import parse_rules


def compiled(text: str):
    """The core rule of a text that needs only one."""
    rule = parse_rules(text)[0]
    (core,) = normalise(rule, infer_schemas([], {}, [rule], {})).rules
    return compile_rule(core)


def plans(text: str):
    return compiled(text).plans


def test_a_plan_for_each_atom_with_the_view_that_the_incremental_join_needs():
    first, second = plans("tc(x, z) :- tc(x, y), tc(y, z).")
    assert isinstance(first.steps[0], Extend)
    assert isinstance(second.steps[0], Extend)
    # d1 * old + new * d2: the second plan sees the batch applied to the atom before it.
    assert (first.start.atom, first.steps[0].before) == (0, False)
    assert (second.start.atom, second.steps[0].before) == (1, True)
    assert first.steps[0].demand == Demand("tc", (0,))
    assert second.steps[0].demand == Demand("tc", (1,))


def test_a_variable_that_nothing_needs_any_more_is_summed_away():
    (_, recursive, _) = plans("sg(x, y) :- arc(a, x), sg(a, b), arc(b, y).")
    up, down = recursive.steps
    assert isinstance(up, Extend)
    assert isinstance(down, Extend)
    assert up.consolidate
    assert "a" not in up.carry
    assert down.carry == ("x",)
    assert down.kept == (("y", 1),)


def test_nothing_is_summed_up_where_everything_is_kept():
    (plan, _) = plans("p(x, y, z) :- e(x, y), e(y, z).")
    assert isinstance(plan.steps[0], Extend)
    assert not plan.steps[0].consolidate


def test_an_atom_that_is_bound_whole_is_checked_first_and_needs_no_index():
    (plan, _, _) = plans("p(x, w) :- e(x, y), f(y, w), g(y, x).")
    assert isinstance(plan.steps[0], Check)
    assert plan.steps[0].relation == "g"
    assert plan.demands == (Demand("f", (0,)),)


def test_constants_and_repeated_variables_filter_the_start_and_the_join():
    (plan, other) = plans('p(x) :- e("a", x, x), f(x, y, y).')
    assert [column for column, _ in plan.start.constants] == [0]
    assert plan.start.equal == ((1, 2),)
    step = plan.steps[0]
    assert isinstance(step, Extend)
    assert step.equal == ((1, 2),)
    assert other.steps[0].relation == "e"
    assert [column for column, _ in other.steps[0].key] == [0, 1, 2]
    assert isinstance(other.steps[0], Check)


def test_the_head_comes_out_in_its_own_order_with_constants():
    (plan, _) = plans("p(z, 7, x, x) :- e(x, y), e(y, z).")
    names = [source if isinstance(source, str) else source.value for source in plan.columns]
    assert names == ["z", 7, "x", "x"]


def test_a_cross_product_comes_last():
    (plan, _, _) = plans("p(x, w) :- e(x, y), g(w), e(y, x).")
    assert [step.relation for step in plan.steps] == ["e", "g"]
    assert plan.steps[1].key == ()


@pytest.mark.parametrize("atoms", [1, 2, 5, 64])
def test_long_bodies(atoms: int):
    body = ", ".join(f"e(x{i}, x{i + 1})" for i in range(atoms))
    found = plans(f"p(x0, x{atoms}) :- {body}.")
    assert len(found) == atoms
    assert all(len(plan.steps) == atoms - 1 for plan in found)


def test_conditions_come_as_soon_as_their_variables_are_bound():
    (first, second) = plans("p(x, z) :- e(x, y), y > 3, f(y, z), z != x.")
    assert [type(step) for step in first.steps] == [Where, Extend, Where]
    assert [type(step) for step in second.steps] == [Where, Extend, Where]
    assert first.steps[0].carry == ("x", "y")


def test_an_equation_binds_whichever_side_is_new():
    (plan,) = plans("p(z) :- e(x, y), z = x + y.")
    assert isinstance(plan.steps[0], Let)
    assert plan.steps[0].name == "z"
    (plan, _) = plans("p(x) :- e(x, y), w = y + 1, f(w).")
    assert [type(step) for step in plan.steps] == [Let, Check]


def test_a_negated_atom_is_absent_in_other_plans_and_starts_its_own_with_turned_weights():
    (positive, negative) = plans("p(x) :- e(x, y), !f(y, x).")
    assert isinstance(positive.steps[0], Absent)
    assert positive.demands == ()
    assert negative.start.negated
    assert negative.start.relation == "f"
    assert isinstance(negative.steps[0], Check)
