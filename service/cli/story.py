"""The story that `zedlog demo` tells: which of this machine's Python packages are exposed to a vulnerable one?

In: a client of a running, empty service, and the facts. Out: text on the terminal, one paragraph for each epoch with
the tuples that appeared (+) and disappeared (-) and its time. Everything goes over REST as any client's requests would;
nothing shown is computed here, except how many packages depend on which (to choose the one to worry about).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from service.cli.client import Json, ServiceClient
from service.cli.output import counted, milliseconds, out, print_tuples, show
from service.cli.packages import PackageFacts

DECLARATIONS = """.decl requires(package: symbol, dependency: symbol)
.decl version(package: symbol, version: symbol)
.decl licence(package: symbol, licence: symbol)
.decl vulnerable(package: symbol)
"""
DEPENDS = (
    "depends(p, d) :- requires(p, d).",
    "depends(p, d) :- depends(p, m), requires(m, d).",
)
EXPOSED = "exposed(p, v) :- depends(p, v), vulnerable(v)."
TERMS = "terms(p, d, l) :- depends(p, d), licence(d, l)."

# Epochs list this many tuples of each relation; the counts are always complete.
SHOWN = 6


class Story:
    """One telling. `vulnerable` and `cut` are what the story chose, for readers who want to go on from there;
    `cut_epoch` is the epoch in which the dependency `cut` went."""

    def __init__(self, client: ServiceClient, facts: PackageFacts) -> None:
        self._client = client
        self._facts = facts
        self.vulnerable = ""
        self.cut: tuple[str, str] | None = None
        self.cut_epoch = 0

    def tell(self) -> None:
        self.load_facts()
        self.add_dependency_rules()
        self.declare_vulnerable()
        self.print_exposed()
        self.retract_dependency()
        self.add_and_remove_rule()

    def load_facts(self) -> None:
        facts = self._facts
        self._heading(f"{counted(len(facts.version), 'installed package')} go in as facts")
        self._apply(
            {
                "declarations": DECLARATIONS,
                "facts": [
                    {"relation": "requires", "tuples": facts.requires},
                    {"relation": "version", "tuples": facts.version},
                    {"relation": "licence", "tuples": facts.licence},
                ],
            },
            shown=2,
        )

    def add_dependency_rules(self) -> None:
        self._heading("two rules: what a package depends on, directly or not")
        self._apply({"rules": [{"rule": rule} for rule in DEPENDS]}, rules=DEPENDS)

    def declare_vulnerable(self) -> None:
        """The package with the most dependents, in which a flaw would do the most harm."""
        dependents: Counter[str] = Counter()
        for page in self._client.query("depends(p, d)", page=10_000):
            dependents.update(dependency for _, dependency in page["tuples"])
        # Ties are broken by name, so that the same machine always tells the same story.
        self.vulnerable = min(dependents, key=lambda name: (-dependents[name], name), default="")
        self._heading(f"suppose a flaw is found in {self.vulnerable}: one fact, one rule")
        self._apply(
            {
                "facts": [{"relation": "vulnerable", "tuples": [[self.vulnerable]]}],
                "rules": [{"rule": EXPOSED}],
            },
            rules=[f"vulnerable({show(self.vulnerable)}).", EXPOSED],
            shown=0,
        )

    def print_exposed(self) -> None:
        versions = dict(self._facts.version)
        goal = f"exposed(p, {show(self.vulnerable)})"
        pages = self._client.query(goal, page=10_000)
        exposed = sorted(row[0] for page in pages for row in page["tuples"])
        direct = {package for package, dependency in self._facts.requires if dependency == self.vulnerable}
        table = Table(
            title=f"exposed to {escape(self.vulnerable)}", title_justify="left", header_style="bold"
        )
        for column in ("package", "version", "depends on it"):
            table.add_column(column)
        for package in exposed:
            how = "directly" if package in direct else "through others"
            table.add_row(escape(package), escape(versions.get(package, "?")), how)
        out.print(table)

    def retract_dependency(self) -> None:
        """Dry runs find the one dependency whose loss frees most packages; then it is retracted for good."""
        candidates = [edge for edge in self._facts.requires if edge[1] == self.vulnerable]
        freed = {edge: self._freed_without(edge) for edge in candidates}
        self.cut = max(candidates, key=lambda edge: (freed[edge], edge), default=None)
        if self.cut is None:
            return
        package, dependency = self.cut
        self._heading(
            f"what if? {counted(len(candidates), 'dry run')} found the dependency whose loss helps most: "
            f"{package} no longer requires {dependency}"
        )
        self.cut_epoch = self._apply({"facts": [_change(self.cut, -1)]})

    def _freed_without(self, edge: tuple[str, str]) -> int:
        answer = self._client.transaction({"facts": [_change(edge, -1)]}, dry_run=True)
        return int(answer["changes"].get("exposed", {"deleted": 0})["deleted"])

    def add_and_remove_rule(self) -> None:
        self._heading("a new rule, while everything runs: which licences come with a package?")
        self._apply({"rules": [{"rule": TERMS}]}, rules=[TERMS])
        self._heading("and the rule is removed again, with all that it derived")
        self._apply({"rules": [{"rule": TERMS, "weight": -1}]}, rules=[f"minus {TERMS}"], shown=2)

    def _heading(self, text: str) -> None:
        out.print(f"\n[bold cyan]{escape(text)}[/]")

    def _apply(self, body: Json, *, rules: Sequence[str] = (), shown: int = SHOWN) -> int:
        """Post one transaction and show what its epoch did; returns the epoch."""
        for rule in rules:
            out.print(f"  [magenta]{escape(rule)}[/]")
        answer = self._client.transaction(body, delta=True)
        elapsed = answer["elapsed_ms"]
        out.print(
            f"  epoch [bold]{answer['epoch']}[/]: {milliseconds(elapsed['engine'])} in the engine, "
            f"{milliseconds(elapsed.get('total'))} in all, {answer['cost']['derivations']:,} derivations"
        )
        for relation, change in sorted(answer["delta"].items()):
            print_tuples(relation, change, shown)
        return int(answer["epoch"])


def _change(edge: tuple[str, str], weight: int) -> Json:
    return {"relation": "requires", "tuples": [list(edge)], "weight": weight}
