"""The data of benchmarks/lubm.py: as described by those who published LUBM, and the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.university import PROFILE, UB, Profile, Range, University, ontology, write
from engine.ontology import vocabulary as v
from engine.ontology.library import OWL_RL, RDFS, rule_set
from engine.ontology.triples import Triple, parse_triples, read_triples
from zedlog import Reasoner

SMALL = Profile(departments=(1, 1), undergraduates=(1, 2), graduates=(2, 2))


def triples(lines: Iterable[str]) -> list[Triple]:
    return list(parse_triples("\n".join(lines).encode(), ".nt", "data"))


def of(data: Sequence[Triple], predicate: str) -> list[tuple[str, str]]:
    return [(s, o) for s, p, o in data if p == f"<{UB}{predicate}>"]


def members(data: Sequence[Triple], kind: str) -> set[str]:
    return {s for s, p, o in data if p == v.TYPE and o == f"<{UB}{kind}>"}


def within(numbers: Iterable[int], range_: Range) -> bool:
    found = list(numbers)
    return bool(found) and range_[0] <= min(found) and max(found) <= range_[1]


def test_the_numbers_are_those_of_the_description() -> None:
    data = triples(University(0).lines())
    # The published LUBM-1 has 15 departments and about 103,000 statements, some 300 of them in the ontology.
    assert 100_000 < len(set(data)) == len(data) < 106_000
    departments = members(data, "Department")
    assert len(departments) == 15
    professors: set[str] = set()
    for faculty in PROFILE.faculty:
        found = members(data, faculty.kind)
        assert within(Counter(one.rpartition("/")[0] for one in found).values(), faculty.number), faculty.kind
        written = Counter(author for _, author in of(data, "publicationAuthor"))
        assert within([written[one] for one in found], faculty.publications), faculty.kind
        professors |= found if faculty.professor else set()
    teachers = {s for s, _ in of(data, "worksFor")}
    taught = of(data, "teacherOf")
    assert len({course for _, course in taught}) == len(taught), "a course has one teacher"
    for kind in ("Course", "GraduateCourse"):
        courses = members(data, kind)
        each = Counter(teacher for teacher, course in taught if course in courses)
        assert within([each[one] for one in teachers], PROFILE.courses), kind
    graduates, others = members(data, "GraduateStudent"), members(data, "UndergraduateStudent")
    assert within([round(len(graduates) / len(teachers))], PROFILE.graduates)
    assert within([round(len(others) / len(teachers))], PROFILE.undergraduates)
    takes = Counter(student for student, _ in of(data, "takesCourse"))
    assert within([takes[one] for one in graduates], PROFILE.graduate_takes)
    assert within([takes[one] for one in others], PROFILE.undergraduate_takes)
    advised = dict(of(data, "advisor"))
    assert graduates <= set(advised)
    assert set(advised.values()) <= professors
    assert abs(len(others & set(advised)) / len(others) - 1 / PROFILE.advised) < 0.01
    assert len({course for _, course in of(data, "teachingAssistantOf")}) == len(
        members(data, "TeachingAssistant")
    )
    assert {d for _, d in of(data, "headOf")} == departments
    groups = Counter(o for s, o in of(data, "subOrganizationOf") if s not in departments)
    assert within([groups[one] for one in departments], PROFILE.groups)


def test_a_university_depends_on_its_number_and_the_seed_alone(tmp_path: Path) -> None:
    few, more = tmp_path / "few", tmp_path / "more"
    write(few, 1)
    files = write(more, 2)
    assert [path.name for path in files] == ["univ-bench.nt", "university0.nt", "university1.nt"]
    assert (few / "university0.nt").read_bytes() == (more / "university0.nt").read_bytes()
    assert not set(read_triples(more / "university0.nt")) & {
        t for t in read_triples(more / "university1.nt") if "University1.edu/" in t[0]
    }
    assert list(University(0, 1, SMALL).lines()) != list(University(0, 2, SMALL).lines())


def test_the_ontology_gives_what_is_known_of_people() -> None:
    data = [*triples(ontology()), *triples(University(3, profile=SMALL).lines())]
    head = {o: s for s, o in of(data, "headOf")}
    (department,) = members(data, "Department")
    graduates = members(data, "GraduateStudent")
    for name, wanted in (
        (RDFS, {"Professor", "Faculty", "Employee"}),
        (OWL_RL, {"Faculty", "Employee", "Chair", "Person"}),
    ):
        found = rule_set(name, data)
        # That someone has something unnamed is no conclusion of OWL 2 RL.
        assert all(axiom.endswith("as a conclusion") for axiom in found.not_covered)
        reasoner = Reasoner("resident")
        reasoner.apply(facts={"triple": [(t, 1) for t in {*data, *found.facts}]})
        reasoner.apply(rules=[(rule, 1) for rule in found.rules])
        whole = [(str(s), str(p), str(o)) for s, p, o in reasoner.facts("triple")]
        kinds = {o for s, p, o in whole if p == v.TYPE and s == head[department]}
        assert {f"<{UB}{kind}>" for kind in wanted} <= kinds, name
        assert (graduates <= members(whole, "Student")) == (name == OWL_RL)
        # Who heads a department works for it, and so is its member.
        assert (head[department], department) in of(whole, "memberOf")
