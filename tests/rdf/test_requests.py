"""What an import or export of RDF asks for: formats by name, and fields that would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from engine.bulk.request import ExportRequest, ImportRequest, guess_format
from engine.errors import InvalidRequestError
from engine.ontology.library import rule_set
from service.access.rights import check_job
from service.principal import ForbiddenError, Principal


@pytest.mark.parametrize(
    ("paths", "format_"),
    [
        (["a.ttl"], "turtle"),
        (["a.TTL.gz"], "turtle"),
        (["a.trig.bz2"], "trig"),
        (["a.nq"], "nquads"),
        (["a.rdf", "b.owl"], "rdfxml"),
        (["a.jsonld"], "jsonld"),
        (["a.nt", "b.nt.gz"], "ntriples"),
        (["ontology.ttl", "data.nt.gz"], "rdf"),
        (["a.csv", "b.ttl"], "csv"),
    ],
)
def test_the_names_say_the_format(paths: list[str], format_: str) -> None:
    assert guess_format(paths) == format_


def test_a_request_says_where_its_rows_go() -> None:
    def target(**more: Any) -> str | None:
        return ImportRequest(paths=("a",), **more).target

    assert target(format="turtle") == "triple"
    assert target(format="trig", graphs=True) == "quad"
    assert target(format="rdf", relation="r", graphs=True) == "r"
    assert target(format="facts") is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"format": "csv", "relation": "r", "graphs": True},
            '"graphs" has no effect on files of the format csv',
        ),
        ({"format": "csv", "relation": "r", "blank_nodes": "keep"}, '"blank_nodes" has no effect'),
        ({"format": "csv", "relation": "r", "rules": "rdfs"}, '"rules" has no effect'),
        ({"format": "turtle", "on_error": "skip"}, '"on_error" has no effect on files of the format turtle'),
        ({"format": "turtle", "types": ("x",)}, '"types" has no effect'),
        ({"format": "turtle", "rules": "rdfs", "relation": "r"}, "are about the relation triple"),
        ({"format": "trig", "rules": "rdfs", "graphs": True}, "are about the relation triple"),
    ],
)
def test_a_field_without_effect_is_an_error(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        ImportRequest(paths=("a",), **fields)


def test_exports_too() -> None:
    for format_ in ("ntriples", "nquads", "jsonld", "csv"):
        with pytest.raises(InvalidRequestError, match='"prefixes" has no effect'):
            ExportRequest(path="x", format=format_, relation="r", prefixes=True)
    with pytest.raises(InvalidRequestError, match="a format that is not one of RDF"):
        ExportRequest(path="x", format="turtle", relation="r", domain="asserted", weights=True)
    assert ExportRequest(path="x.ttl.gz", format="turtle", relation="r").one_file is False


def test_jobs_of_former_versions_have_the_same_text() -> None:
    request = ImportRequest(paths=("a.nt",), format="ntriples")
    assert not {"graphs", "blank_nodes", "rules"} & request.as_json().keys()
    assert "prefixes" not in ExportRequest(path="x", format="ntriples", relation="r").as_json()
    full = ImportRequest(paths=("a.nt",), format="ntriples", blank_nodes="apart", rules="rdfs")
    assert ImportRequest.restore(full.as_json()) == full


def test_rules_read_what_they_derive_so_both_rights_are_needed() -> None:
    request = ImportRequest(paths=("a",), format="turtle", uploaded=True, rules="rdfs")
    check_job(Principal("both", "writer", frozenset({"triple"}), frozenset({"triple"})), request)
    with pytest.raises(ForbiddenError):
        check_job(Principal("blind", "writer", frozenset({"other"}), frozenset({"triple"})), request)


def test_axioms_in_any_order_give_the_same_rules() -> None:
    sub = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
    triples = [("<http://a>", sub, "<http://b>"), ("<http://b>", sub, "<http://c>")]
    assert rule_set("owl-rl", triples) == rule_set("owl-rl", reversed(triples))
    assert len(rule_set("owl-rl", triples).rules) == 2
    assert len(rule_set("rdfs", ()).rules) == 6
