"""Reading what a database holds and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from zedlog.client.answers import AsyncAnswer
from zedlog.client.connection import Connection, as_object
from zedlog.client.errors import Json
from zedlog.client.models import Commit, Readiness, Relation, Rule
from zedlog.client.pages import Pages

At = str | Commit
"""A token of an epoch, or what a transaction answered: read your own writes."""


class Reading(Connection):
    async def query(
        self,
        text: str,
        *,
        as_of: int | None = None,
        at_least: At | None = None,
        limit: int | None = None,
        page: int | None = None,
        timeout: float | None = None,
    ) -> AsyncAnswer:
        """Answer a query: an atom, or a conjunction with negation, conditions and aggregates, with or without a head.

        as_of: at this epoch, while it is kept. at_least: wait for the epoch of this token or transaction. limit: the
        most rows in all. page: the most rows that are fetched at once. timeout: seconds that the query may take.
        """
        fields = {"query": text, "as_of": as_of, "at_least": token_of(at_least), "timeout": timeout}
        return await self._answer("POST", "/v1/query", fields, page, limit)

    async def facts(
        self,
        relation: str,
        /,
        *,
        domain: Literal["all", "asserted", "derived"] = "all",
        as_of: int | None = None,
        at_least: At | None = None,
        limit: int | None = None,
        page: int | None = None,
        where: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> AsyncAnswer:
        """The tuples of a relation whose columns have the given values: `facts("edge", x="a")`. A column that is called
        like a parameter stands in `where`. domain: only what is asserted, or only what rules derive. Others: `query`.
        """
        bound = {f"where.{name}": in_url(value) for name, value in {**(where or {}), **columns}.items()}
        fields = {**bound, "domain": domain, "as_of": as_of, "at_least": token_of(at_least)}
        return await self._answer("GET", facts_path(relation), fields, page, limit)

    async def _answer(
        self, method: str, path: str, fields: Json, page: int | None, limit: int | None
    ) -> AsyncAnswer:
        pages = Pages(self, method, path, fields, page, limit)
        return AsyncAnswer(await pages.next(), pages)

    async def relations(self, *, as_of: int | None = None, at_least: At | None = None) -> list[Relation]:
        """All relations: their columns, and how many tuples they have."""
        found = await self.get("/v1/relations", as_of=as_of, at_least=token_of(at_least))
        return [Relation.model_validate(one) for one in found["relations"]]

    async def relation(self, name: str, *, as_of: int | None = None, at_least: At | None = None) -> Relation:
        """One relation."""
        return Relation.model_validate(await self.get(_path(name), as_of=as_of, at_least=token_of(at_least)))

    async def rules(self, *, as_of: int | None = None, at_least: At | None = None) -> list[Rule]:
        """All rules."""
        found = await self.get("/v1/rules", as_of=as_of, at_least=token_of(at_least))
        return [Rule.model_validate(one) for one in found["rules"]]

    async def declarations(self, *, as_of: int | None = None, at_least: At | None = None) -> str:
        """All declarations, as program text."""
        found = await self.get("/v1/rules", as_of=as_of, at_least=token_of(at_least))
        return str(found["declarations"])

    async def epochs(self, limit: int = 20, *, before: int | None = None) -> list[Json]:
        """The last epochs, newest first: changes, duration, and how and why they were evaluated so."""
        found = await self.get("/v1/epochs", limit=limit, before=before)
        return list(found["epochs"])

    async def circuit(self, *, as_of: int | None = None, at_least: At | None = None) -> Json:
        """Strata and plans."""
        return await self.get("/v1/circuit", as_of=as_of, at_least=token_of(at_least))

    async def circuit_mermaid(self, *, as_of: int | None = None, at_least: At | None = None) -> str:
        """The same as a diagram."""
        return str(
            await self.request(
                "GET",
                "/v1/circuit",
                params={"format": "mermaid", "as_of": as_of, "at_least": token_of(at_least)},
                headers={"accept": "text/plain"},
            )
        )

    async def status(self) -> Readiness:
        """Whether the storage and an engine are there, and at which epoch.

        Raises:
            Unavailable: one of them is away; `detail` says which.
        """
        response = await self.exchange("GET", "/readyz", None, None, {}, repeatable=False)
        return Readiness.model_validate(as_object(response))


def token_of(at: At | None) -> str | None:
    return at.token if isinstance(at, Commit) else at


def in_url(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(relation: str) -> str:
    return f"/v1/relations/{quote(relation, safe='')}"


def facts_path(relation: str) -> str:
    return f"{_path(relation)}/facts"
