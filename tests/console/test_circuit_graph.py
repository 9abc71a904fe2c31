"""The circuit as a graph: what is drawn, and that it is never too much."""

from __future__ import annotations

from typing import Any

import pytest

from engine.circuit.compile import compile_circuit
from engine.circuit.describe import to_json
from engine.language.inference import infer_schemas
from engine.language.parser import parse_rules
from service.console.circuit_graph import MOST_NODES, details, options, plan_text, title

Json = dict[str, Any]


def circuit(*rules: str) -> Json:
    parsed = [one for text in rules for one in parse_rules(text)]
    return to_json(compile_circuit(parsed, infer_schemas([], {}, parsed, {})))


CLOSURE = circuit(
    "tc(x, y) :- edge(x, y).", "tc(x, z) :- tc(x, y), edge(y, z).", "far(x, y) :- tc(x, y), !edge(x, y)."
)


def drawn(found: Json, detail: Any, **changes: Json) -> tuple[dict[str, Json], set[tuple[str, str]]]:
    chart = options(found, {"edge": 3, "tc": 6}, {"changes": changes}, detail)["series"][0]
    assert chart["roam"] is True
    nodes = {node["id"]: node for node in chart["data"]}
    return nodes, {(link["source"], link["target"]) for link in chart["links"]}


def test_relations_and_rules_are_nodes_and_data_flows_to_the_right() -> None:
    nodes, links = drawn(CLOSURE, "rules", tc={"inserted": 2, "deleted": 1})
    rules = [id_ for id_ in nodes if id_.startswith("rule ")]
    assert set(nodes) - set(rules) == {"edge", "tc", "far"}
    assert len(rules) == 3
    assert nodes["edge"]["x"] < nodes["tc"]["x"] < nodes["far"]["x"]
    # Every arrow joins nodes that are there, and each relation reaches its rules and they their heads.
    assert all(source in nodes and target in nodes for source, target in links)
    assert {target for source, target in links if source.startswith("rule ")} == {"tc", "far"}
    assert {source for source, target in links if target.startswith("rule ")} == {"edge", "tc"}
    assert nodes["tc"]["label"]["formatter"].endswith("+2 -1")
    assert "6 tuples" in nodes["tc"]["name"]
    assert nodes["tc"]["about"] == {"kind": "relation", "relation": "tc", "stratum": 1}


def test_a_stratum_on_spark_says_so() -> None:
    strata = [
        {**one, "place": "spark" if "tc" in one["relations"] else "resident"} for one in CLOSURE["strata"]
    ]
    assert [title(one) for one in strata] == [
        "Stratum 0: edge (facts only)",
        "Stratum 1: tc (recursive, on Spark)",
        "Stratum 2: far (not recursive)",
    ]
    nodes, _ = drawn({**CLOSURE, "strata": strata}, "strata")
    assert [node["name"].endswith(", on Spark") for node in nodes.values()] == [False, True, False]


def test_coarser_drawings_have_the_same_flow() -> None:
    nodes, links = drawn(CLOSURE, "relations")
    assert set(nodes) == {"edge", "tc", "far"}
    assert links == {("edge", "tc"), ("tc", "tc"), ("tc", "far"), ("edge", "far")}
    nodes, links = drawn(CLOSURE, "strata")
    assert set(nodes) == {"stratum 0", "stratum 1", "stratum 2"}
    assert links == {("stratum 0", "stratum 1"), ("stratum 1", "stratum 2"), ("stratum 0", "stratum 2")}


@pytest.mark.parametrize(("count", "finest"), [(150, "rules"), (250, "relations"), (450, "strata")])
def test_a_large_program_is_drawn_more_coarsely(count: int, finest: str) -> None:
    found = circuit(*[f"r{number + 1}(x) :- r{number}(x)." for number in range(count)])
    assert details(found)[0] == finest
    for detail in details(found):
        nodes, links = drawn(found, detail)
        assert len(nodes) <= MOST_NODES
        assert all(source in nodes and target in nodes for source, target in links)


def test_plans_and_strata_as_text() -> None:
    plans = [plan_text(plan) for rule in CLOSURE["strata"][2]["rules"] for plan in rule["plans"]]
    assert sorted(plan.split(" ")[0] for plan in plans) == ["-Δedge", "Δtc"]
    assert all(plan.rpartition(" → ")[2].startswith("far(") for plan in plans)
    assert [title(stratum) for stratum in CLOSURE["strata"]] == [
        "Stratum 0: edge (facts only)",
        "Stratum 1: tc (recursive)",
        "Stratum 2: far (not recursive)",
    ]
