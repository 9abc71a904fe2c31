"""Why a tuple holds, why not, or why it changed: as a tree that can be walked, printed and drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from zedlog.client.errors import ClientError, Json

if TYPE_CHECKING:
    from engine.explain.rendering import Line


@dataclass
class Node:
    """A line of the tree. kind: what it is (docs/http.md names the kinds of tuples; besides them `absent`, `condition`,
    `again`, `more` and others). id: the tuple that it is about, which can be explained in turn."""

    text: str
    kind: str
    id: str | None
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This node, and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


class Explanation:
    """`str()` is the tree as text; `data` is the service's answer as it came."""

    def __init__(self, data: Json) -> None:
        self.data = data

    @property
    def epoch(self) -> int:
        return int(self.data["epoch"])

    @property
    def root(self) -> str:
        """The tuple that was asked for."""
        return str(self.data["root"])

    @property
    def holds(self) -> bool | None:
        """Whether the tuple holds; None where that was not the question (`changed_at`)."""
        return self.data.get("holds")

    @property
    def complete(self) -> bool | None:
        """Whether the proof was followed to its end."""
        return self.data.get("complete")

    @property
    def nodes(self) -> dict[str, Json]:
        """The tuples of the proof by their ids."""
        return self.data.get("nodes") or {}

    @property
    def repairs(self) -> list[list[Json]]:
        """For a tuple that does not hold: changes of facts that would make it hold, each tried by a dry run."""
        return self.data.get("repairs") or []

    @property
    def tree(self) -> list[Node]:
        """The roots of the tree: one for a proof, several for the time before and after a change."""
        roots: list[Node] = []
        path: list[Node] = []
        for line in self._lines():
            node = Node(line.text, line.kind, line.node)
            del path[line.depth :]
            (path[-1].children if path else roots).append(node)
            path.append(node)
        return roots

    def _lines(self) -> list[Line]:
        from engine.explain.rendering_answer import answer_lines

        return answer_lines(self.data)

    def __str__(self) -> str:
        from engine.explain.rendering_answer import answer_text

        return answer_text(self.data)

    def to_mermaid(self) -> str:
        """The proof as a Mermaid flow chart.

        Raises:
            ClientError: there is no proof, because the tuple does not hold, or alternatives were listed.
        """
        from engine.explain.rendering import as_mermaid

        if "nodes" not in self.data:
            raise ClientError("only the proof of a tuple that holds has a diagram; print the explanation")
        return as_mermaid(self.data)

    def __repr__(self) -> str:
        held = {True: "holds", False: "does not hold", None: "explained"}[self.holds]
        return f"<{self.root} {held} at epoch {self.epoch}>"

    def _repr_html_(self) -> str:
        """Nodes that open and close."""
        return "".join(map(_html, self.tree)) + f"<p><small>at epoch {self.epoch}</small></p>"


def _html(node: Node) -> str:
    text = f"<code>{escape(node.text)}</code>"
    if not node.children:
        return f'<div style="margin-left: 2em">{text}</div>'
    below = "".join(map(_html, node.children))
    return f'<details open style="margin-left: 1em"><summary>{text}</summary>{below}</details>'


def explain_body(what: str, values: Any, fields: Json) -> Json:
    """The body of `POST /v1/explain`. what: a tuple's text, or a relation beside values."""
    about: Json = {"tuple": what} if values is None else {"relation": what, "tuple": list(values)}
    return about | {name: value for name, value in fields.items() if value is not None}
