"""Data of the shape of LUBM, as N-Triples: universities with departments, people, courses, publications and groups.

In: a number of universities and a seed. Out: for each university a file with the statements about it, and a file with
the ontology. Always: a university's file depends on its number and the seed alone, so a larger data set contains the
smaller ones.

The numbers are those of the published description (Guo, Pan, Heflin: LUBM: A benchmark for OWL knowledge base
systems. J. Web Semantics 3, 2005): `PROFILE` repeats them. Nothing was taken from the generator that its authors wrote,
so the statements differ from those of their LUBM-1, and only their kinds and numbers are alike. With the default seed
the first university has 15 departments, as theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

UB: Final = "http://swat.cse.lehigh.edu/onto/univ-bench.owl#"
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
_OWL: Final = "http://www.w3.org/2002/07/owl#"
TYPE: Final = f"<{_RDF}type>"
SEED: Final = 18
"""The seed with which the first university is about as large as that of the published data set."""
UNIVERSITIES: Final = 1000
"""People have degrees from any of so many universities."""

Range = tuple[int, int]
"""The least and the greatest number, both included."""


@dataclass(frozen=True, slots=True)
class Faculty:
    """The teachers of one kind in a department, and how much each of them publishes."""

    kind: str
    number: Range
    publications: Range
    professor: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """How many of what there are."""

    departments: Range = (15, 25)
    faculty: tuple[Faculty, ...] = (
        Faculty("FullProfessor", (7, 10), (15, 20)),
        Faculty("AssociateProfessor", (10, 14), (10, 18)),
        Faculty("AssistantProfessor", (8, 11), (5, 10)),
        Faculty("Lecturer", (5, 7), (0, 5), professor=False),
    )
    courses: Range = (1, 2)
    """Of each teacher, and as many again for graduates; nobody else teaches them."""
    groups: Range = (10, 20)
    undergraduates: Range = (8, 14)
    """For each teacher."""
    graduates: Range = (3, 4)
    undergraduate_takes: Range = (2, 4)
    graduate_takes: Range = (1, 3)
    graduate_publishes: Range = (0, 5)
    """Publications of professors of which a graduate is an author too."""
    assistants_of_courses: Range = (4, 5)
    """One in so many graduates assists with a course, each with another one."""
    assistants_of_research: Range = (3, 4)
    advised: int = 5
    """One in so many undergraduates has an advisor; every graduate has one."""
    interests: int = 30


PROFILE: Final = Profile()


@dataclass(slots=True)
class _Department:
    """What is made of a department so far."""

    iri: str
    host: str
    teachers: list[str] = field(default_factory=list)
    professors: list[str] = field(default_factory=list)
    courses: list[str] = field(default_factory=list)
    graduate_courses: list[str] = field(default_factory=list)
    publications: list[str] = field(default_factory=list)


class University:
    """Writes one university."""

    def __init__(self, number: int, seed: int = SEED, profile: Profile = PROFILE) -> None:
        self._random = Random(f"{seed}/{number}")
        self._number = number
        self._profile = profile
        self._degrees: set[int] = set()

    def lines(self) -> Iterator[str]:
        """The statements, each a line of N-Triples without its end."""
        self._degrees = {self._number}
        iri = _university(self._number)
        yield from _thing(iri, "University", f"University{self._number}")
        for number in range(self._some(self._profile.departments)):
            yield from self._department(number, iri)
        for other in sorted(self._degrees - {self._number}):
            yield f"{_university(other)} {TYPE} <{UB}University> ."

    def _some(self, range_: Range) -> int:
        return self._random.randint(*range_)

    def _department(self, number: int, university: str) -> Iterator[str]:
        host = f"Department{number}.University{self._number}.edu"
        here = _Department(f"<http://www.{host}>", host)
        yield from _thing(here.iri, "Department", f"Department{number}")
        yield _states(here.iri, "subOrganizationOf", university)
        for faculty in self._profile.faculty:
            yield from self._faculty(here, faculty)
        head = here.professors[0]
        yield _states(head, "headOf", here.iri)
        teachers = len(here.teachers)
        for i in range(sum(self._some(self._profile.undergraduates) for _ in range(teachers))):
            yield from self._undergraduate(here, i)
        graduates = [
            f"GraduateStudent{i}"
            for i in range(sum(self._some(self._profile.graduates) for _ in range(teachers)))
        ]
        yield from self._graduates(here, graduates)
        for i in range(self._some(self._profile.groups)):
            group = here.iri[:-1] + f"/ResearchGroup{i}>"
            yield f"{group} {TYPE} <{UB}ResearchGroup> ."
            yield _states(group, "subOrganizationOf", here.iri)

    def _faculty(self, here: _Department, faculty: Faculty) -> Iterator[str]:
        for i in range(self._some(faculty.number)):
            name = f"{faculty.kind}{i}"
            iri = here.iri[:-1] + f"/{name}>"
            here.teachers.append(iri)
            yield from self._person(here, iri, faculty.kind, name)
            yield _states(iri, "worksFor", here.iri)
            for degree in ("undergraduate", "masters", "doctoral"):
                yield _states(iri, f"{degree}DegreeFrom", self._anywhere())
            for kind, taught in (("Course", here.courses), ("GraduateCourse", here.graduate_courses)):
                for _ in range(self._some(self._profile.courses)):
                    course = here.iri[:-1] + f"/{kind}{len(taught)}>"
                    yield from _thing(course, kind, f"{kind}{len(taught)}")
                    yield _states(iri, "teacherOf", course)
                    taught.append(course)
            for number in range(self._some(faculty.publications)):
                publication = iri[:-1] + f"/Publication{number}>"
                yield from _thing(publication, "Publication", f"Publication{number}")
                yield _states(publication, "publicationAuthor", iri)
                if faculty.professor:
                    here.publications.append(publication)
            if faculty.professor:
                here.professors.append(iri)
                interest = self._random.randrange(self._profile.interests)
                yield _says(iri, "researchInterest", f"Research{interest}")

    def _undergraduate(self, here: _Department, number: int) -> Iterator[str]:
        name = f"UndergraduateStudent{number}"
        iri = here.iri[:-1] + f"/{name}>"
        yield from self._person(here, iri, "UndergraduateStudent", name)
        yield _states(iri, "memberOf", here.iri)
        yield from self._takes(iri, here.courses, self._profile.undergraduate_takes)
        if number % self._profile.advised == 0:
            yield _states(iri, "advisor", self._random.choice(here.professors))

    def _graduates(self, here: _Department, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            iri = here.iri[:-1] + f"/{name}>"
            yield from self._person(here, iri, "GraduateStudent", name)
            yield _states(iri, "memberOf", here.iri)
            yield _states(iri, "undergraduateDegreeFrom", self._anywhere())
            yield _states(iri, "advisor", self._random.choice(here.professors))
            yield from self._takes(iri, here.graduate_courses, self._profile.graduate_takes)
            for publication in self._random.sample(
                here.publications, self._some(self._profile.graduate_publishes)
            ):
                yield _states(publication, "publicationAuthor", iri)
        chosen = self._share(names, self._profile.assistants_of_courses)
        assisted = self._random.sample(here.courses, min(len(chosen), len(here.courses)))
        for name, course in zip(chosen, assisted, strict=False):
            iri = here.iri[:-1] + f"/{name}>"
            yield f"{iri} {TYPE} <{UB}TeachingAssistant> ."
            yield _states(iri, "teachingAssistantOf", course)
        for name in self._share(names, self._profile.assistants_of_research):
            yield f"{here.iri[:-1]}/{name}> {TYPE} <{UB}ResearchAssistant> ."

    def _takes(self, student: str, courses: Sequence[str], number: Range) -> Iterator[str]:
        for course in self._random.sample(courses, self._some(number)):
            yield _states(student, "takesCourse", course)

    def _share(self, names: Sequence[str], one_in: Range) -> list[str]:
        """Between the one and the other share of some people."""
        few, many = (len(names) // each for each in reversed(one_in))
        return self._random.sample(names, self._some((few, many)))

    def _anywhere(self) -> str:
        """Some university, which gives degrees."""
        number = self._random.randrange(UNIVERSITIES)
        self._degrees.add(number)
        return _university(number)

    def _person(self, here: _Department, iri: str, kind: str, name: str) -> Iterator[str]:
        yield from _thing(iri, kind, name)
        yield _says(iri, "emailAddress", f"{name}@{here.host}")
        yield _says(iri, "telephone", "xxx-xxx-xxxx")


def _university(number: int) -> str:
    return f"<http://www.University{number}.edu>"


def _thing(iri: str, kind: str, name: str) -> Iterator[str]:
    yield f"{iri} {TYPE} <{UB}{kind}> ."
    yield _says(iri, "name", name)


def _states(subject: str, predicate: str, thing: str) -> str:
    return f"{subject} <{UB}{predicate}> {thing} ."


def _says(subject: str, predicate: str, text: str) -> str:
    return f'{subject} <{UB}{predicate}> "{text}" .'


# ---- the ontology

_CLASSES: Final = {
    "Employee": "Person",
    "AdministrativeStaff": "Employee",
    "ClericalStaff": "AdministrativeStaff",
    "SystemsStaff": "AdministrativeStaff",
    "Faculty": "Employee",
    "Lecturer": "Faculty",
    "PostDoc": "Faculty",
    "Professor": "Faculty",
    "AssistantProfessor": "Professor",
    "AssociateProfessor": "Professor",
    "FullProfessor": "Professor",
    "VisitingProfessor": "Professor",
    "Chair": "Professor",
    "Dean": "Professor",
    "Director": "Person",
    "Student": "Person",
    "UndergraduateStudent": "Student",
    "GraduateStudent": "Person",
    "TeachingAssistant": "Person",
    "ResearchAssistant": "Person",
    "Publication": None,
    "Article": "Publication",
    "ConferencePaper": "Article",
    "JournalArticle": "Article",
    "TechnicalReport": "Article",
    "Book": "Publication",
    "Manual": "Publication",
    "Software": "Publication",
    "Specification": "Publication",
    "UnofficialPublication": "Publication",
    "Organization": None,
    "College": "Organization",
    "Department": "Organization",
    "Institute": "Organization",
    "Program": "Organization",
    "ResearchGroup": "Organization",
    "University": "Organization",
    "Work": None,
    "Course": "Work",
    "GraduateCourse": "Course",
    "Research": "Work",
    "Person": None,
    "Schedule": None,
}
"""Each class with the one that it is a subclass of."""
_PROPERTIES: Final = {
    "advisor": ("Person", "Professor", None),
    "affiliateOf": ("Organization", "Person", None),
    "affiliatedOrganizationOf": ("Organization", "Organization", None),
    "degreeFrom": ("Person", "University", None),
    "doctoralDegreeFrom": ("Person", "University", "degreeFrom"),
    "mastersDegreeFrom": ("Person", "University", "degreeFrom"),
    "undergraduateDegreeFrom": ("Person", "University", "degreeFrom"),
    "hasAlumnus": ("University", "Person", None),
    "headOf": (None, None, "worksFor"),
    "listedCourse": ("Schedule", "Course", None),
    "member": ("Organization", "Person", None),
    "memberOf": (None, None, None),
    "orgPublication": ("Organization", "Publication", None),
    "publicationAuthor": ("Publication", "Person", None),
    "publicationDate": ("Publication", None, None),
    "publicationResearch": ("Publication", "Research", None),
    "researchProject": ("ResearchGroup", "Research", None),
    "softwareDocumentation": ("Software", "Publication", None),
    "softwareVersion": ("Software", None, None),
    "subOrganizationOf": ("Organization", "Organization", None),
    "takesCourse": (None, None, None),
    "teacherOf": ("Faculty", "Course", None),
    "teachingAssistantOf": ("TeachingAssistant", "Course", None),
    "tenured": ("Professor", None, None),
    "worksFor": (None, None, "memberOf"),
}
"""Each property with its domain, its range, and the property that it is a subproperty of."""
_DATA: Final = {
    "age": "Person",
    "emailAddress": "Person",
    "telephone": "Person",
    "title": "Person",
    "name": None,
    "officeNumber": None,
    "researchInterest": None,
}
"""Each property whose values are texts, with its domain."""
_INVERSE: Final = {"degreeFrom": "hasAlumnus", "member": "memberOf"}
_DEFINED: Final = {
    "Employee": ("worksFor", "Organization"),
    "Student": ("takesCourse", "Course"),
    "Chair": ("headOf", "Department"),
    "Dean": ("headOf", "College"),
    "Director": ("headOf", "Program"),
    "TeachingAssistant": ("teachingAssistantOf", "Course"),
}
"""A class is defined as the persons that have some such thing under a property."""
_HAVE: Final = {
    "GraduateStudent": ("takesCourse", "GraduateCourse"),
    "ResearchAssistant": ("worksFor", "ResearchGroup"),
}
"""Every member of the class has some such thing under a property."""


def ontology() -> Iterator[str]:
    """The statements of univ-bench: classes, properties, and what defines the one by the other."""
    for name, above in _CLASSES.items():
        yield f"<{UB}{name}> {TYPE} <{_OWL}Class> ."
        # That a defined class is one of persons follows from its definition.
        if above is not None and not (above == "Person" and name in _DEFINED):
            yield f"<{UB}{name}> <{_RDFS}subClassOf> <{UB}{above}> ."
    for name, (domain, range_, above) in _PROPERTIES.items():
        yield f"<{UB}{name}> {TYPE} <{_OWL}ObjectProperty> ."
        for axiom, value in (("domain", domain), ("range", range_), ("subPropertyOf", above)):
            if value is not None:
                yield f"<{UB}{name}> <{_RDFS}{axiom}> <{UB}{value}> ."
    for name, domain in _DATA.items():
        yield f"<{UB}{name}> {TYPE} <{_OWL}DatatypeProperty> ."
        if domain is not None:
            yield f"<{UB}{name}> <{_RDFS}domain> <{UB}{domain}> ."
    yield f"<{UB}subOrganizationOf> {TYPE} <{_OWL}TransitiveProperty> ."
    for name, inverse in _INVERSE.items():
        yield f"<{UB}{name}> <{_OWL}inverseOf> <{UB}{inverse}> ."
    for name, (on, filler) in _DEFINED.items():
        yield from _defined(name, on, filler)
    for name, (on, filler) in _HAVE.items():
        yield from _some_values(f"_:some{name}", on, filler)
        yield f"<{UB}{name}> <{_RDFS}subClassOf> _:some{name} ."


def _defined(name: str, on: str, filler: str) -> Iterator[str]:
    """`name` is the intersection of the persons with those that have some `filler` under the property `on`."""
    first, second = f"_:first{name}", f"_:second{name}"
    yield from _some_values(f"_:some{name}", on, filler)
    yield f"_:both{name} {TYPE} <{_OWL}Class> ."
    yield f"<{UB}{name}> <{_OWL}equivalentClass> _:both{name} ."
    yield f"_:both{name} <{_OWL}intersectionOf> {first} ."
    for node, value, rest in ((first, f"<{UB}Person>", second), (second, f"_:some{name}", f"<{_RDF}nil>")):
        yield f"{node} <{_RDF}first> {value} ."
        yield f"{node} <{_RDF}rest> {rest} ."


def _some_values(node: str, on: str, filler: str) -> Iterator[str]:
    yield f"{node} {TYPE} <{_OWL}Restriction> ."
    yield f"{node} <{_OWL}onProperty> <{UB}{on}> ."
    yield f"{node} <{_OWL}someValuesFrom> <{UB}{filler}> ."


def write(folder: Path, universities: int, seed: int = SEED) -> list[Path]:
    """Write the ontology and so many universities into a folder; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "univ-bench.nt"]
    files[0].write_text("".join(f"{line}\n" for line in ontology()))
    for number in range(universities):
        path = folder / f"university{number}.nt"
        path.write_text("".join(f"{line}\n" for line in University(number, seed).lines()))
        files.append(path)
    return files
