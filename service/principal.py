"""Who makes a request, and what they may do.

Every request has a principal in its state before its handler runs. A handler asks it before it reads or changes
relations; what a call as a whole requires is checked before the handler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fastapi import Request

from engine.errors import ZedlogError, shown

Role = Literal["reader", "writer", "admin"]
ROLES: tuple[Role, ...] = ("reader", "writer", "admin")
"""Each may do what those before it may do."""


class ForbiddenError(ZedlogError):
    """The principal of the request may not do this. `detail` names the relations or the role that it lacks."""

    code = "forbidden"


@dataclass(frozen=True, slots=True)
class Principal:
    """A user or a program, by name. reads, writes: the relations that it may read and change; None: all of them.
    rows: the most rows of one answer; body: the most bytes of a request; None: the service's own limits. rate: requests
    a second. id: of the token, for which requests are counted."""

    name: str
    role: Role = "admin"
    reads: frozenset[str] | None = None
    writes: frozenset[str] | None = None
    rows: int | None = None
    body: int | None = None
    rate: float | None = None
    id: str = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether there may be relations that it may not read or not change."""
        return self.reads is not None or self.writes is not None

    @property
    def author(self) -> str | None:
        """The author of what it changes; None where the service asks nobody for a name."""
        return None if self == LOCAL else self.name

    def has(self, role: Role) -> bool:
        """Whether it has the rights of a role."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def check_role(self, role: Role) -> None:
        """Raise ForbiddenError unless it has the rights of a role."""
        if not self.has(role):
            raise ForbiddenError(
                f"{shown(self.name)} is a {self.role}, and this call needs the role {role}",
                principal=self.name,
                role=role,
            )

    def check_reads_all(self, what: str) -> None:
        """Raise ForbiddenError unless it may read every relation; `what` says what that is needed for."""
        if self.reads is not None:
            raise ForbiddenError(
                f"{what} may show every relation, and {shown(self.name)} may read only some",
                principal=self.name,
            )

    def may_read(self, relation: str) -> bool:
        return self.reads is None or relation in self.reads

    def may_write(self, relation: str) -> bool:
        return self.has("writer") and (self.writes is None or relation in self.writes)

    def check_read(self, relations: Iterable[str]) -> None:
        """Raise ForbiddenError unless it may read all of these relations."""
        _refuse(self.name, "read", [name for name in relations if not self.may_read(name)])

    def check_write(self, relations: Iterable[str]) -> None:
        """Raise ForbiddenError unless it may change all of these relations."""
        _refuse(self.name, "change", [name for name in relations if not self.may_write(name)])


LOCAL = Principal("local")
"""Whoever reaches a service that asks for no tokens."""

ANONYMOUS = Principal("anonymous", "reader", frozenset(), frozenset())
"""Whoever gives no token to a service that asks for one: the calls that need none are all that is left."""


def principal_of(request: Request) -> Principal:
    """The principal of a request."""
    found: Principal = request.scope.get("zedlog.principal", LOCAL)
    return found


async def still(request: Request, principal: Principal) -> None:
    """Ask again who makes the request, which has lasted for a while.

    Raises:
        ZedlogError: it is no longer `principal`: the token was revoked, has expired, or has other rights now.
    """
    identify = request.scope.get("zedlog.identify")
    if identify is not None and await identify() != principal:
        raise ForbiddenError(
            f"the rights of {shown(principal.name)} have changed; come back with the last position",
            principal=principal.name,
        )


def _refuse(name: str, what: str, relations: list[str]) -> None:
    if relations:
        names = sorted(set(relations))
        raise ForbiddenError(
            f"{shown(name)} may not {what} {', '.join(map(shown, names))}", principal=name, relations=names
        )
