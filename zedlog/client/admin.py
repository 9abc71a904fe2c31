"""What happened, who may do what, and whether all is as it should be."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from zedlog.client.connection import Connection, given
from zedlog.client.errors import Json
from zedlog.client.models import Audit, NewToken, Token
from zedlog.client.reading import facts_path, in_url

_POLL_SECONDS = 0.5


class Admin(Connection):
    async def transactions(self, /, limit: int = 50, **filters: Any) -> list[Json]:
        """What is kept of the transactions, newest first. filters: author, source, status, relation, from_epoch,
        to_epoch, since, until, before."""
        return list((await self.get("/v1/transactions", limit=limit, **filters))["transactions"])

    async def cancel(self, transaction: str) -> Json:
        """Cancel a transaction that waits or runs."""
        return await self.delete(f"/v1/transactions/{quote(transaction, safe='')}")

    async def history(self, relation: str, /, limit: int = 50, **columns: Any) -> list[Json]:
        """When the tuples with these values came and went, newest first, as far back as epochs are kept."""
        return list((await self._told(relation, "history", limit, columns))["events"])

    async def blame(self, relation: str, /, limit: int = 50, **columns: Any) -> list[Json]:
        """Since which epoch and transaction each tuple with these values has been there without interruption."""
        return list((await self._told(relation, "blame", limit, columns))["facts"])

    async def _told(self, relation: str, what: str, limit: int, columns: Json) -> Json:
        bound = {f"where.{name}": in_url(value) for name, value in columns.items()}
        return await self.get(f"{facts_path(relation)}/{what}", limit=limit, **bound)

    async def sources(self) -> list[Json]:
        """The sources: how many facts of which relations each asserts, and its last transaction."""
        return list((await self.get("/v1/sources"))["sources"])

    async def audit(self, *, wait: bool = True) -> Audit:
        """Derive the whole database again, compare it, and verify the snapshot. wait: until that has ended."""
        found = Audit.model_validate(await self.post("/v1/audits", {}))
        while wait and found.status in ("queued", "running"):
            await self.driver.sleep(_POLL_SECONDS)
            found = Audit.model_validate(await self.get(f"/v1/audits/{found.audit}"))
        return found

    async def audits(self, limit: int = 20) -> list[Audit]:
        """The newest audits."""
        return [Audit.model_validate(one) for one in (await self.get("/v1/audits", limit=limit))["audits"]]

    async def tokens(self) -> list[Token]:
        """The access tokens, without their texts."""
        return [Token.model_validate(one) for one in (await self.get("/v1/tokens"))["tokens"]]

    async def create_token(
        self,
        name: str,
        role: Literal["reader", "writer", "admin"] = "reader",
        *,
        reads: list[str] | None = None,
        writes: list[str] | None = None,
        rows: int | None = None,
        rate: float | None = None,
        body_bytes: int | None = None,
        expires_in: float | None = None,
    ) -> NewToken:
        """Make an access token. Its `token` is never shown again. reads, writes: the relations (None: all)."""
        body = {
            "name": name,
            "role": role,
            "reads": reads,
            "writes": writes,
            "rows": rows,
            "rate": rate,
            "body_bytes": body_bytes,
            "expires_in": expires_in,
        }
        return NewToken.model_validate(await self.post("/v1/tokens", given(body)))

    async def revoke_token(self, name: str) -> None:
        """Revoke a token; it is refused from then on."""
        await self.delete(f"/v1/tokens/{quote(name, safe='')}")
