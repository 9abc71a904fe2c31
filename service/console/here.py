"""What a page is given, `Here`, and how it says what it is, `Page`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from nicegui import background_tasks, ui
from nicegui.client import Client as Tab
from starlette.requests import Request

from service.access.sessions import secret_of
from service.console.client import Client, ClientError, ServiceError
from service.console.inside import Inside
from service.principal import ROLES, Role


@dataclass(frozen=True, slots=True)
class Person:
    """Who works here, as `/v1/whoami` says it. rows: the most rows of one answer; None: the service's own limit. login:
    whether there is a session that can be ended."""

    name: str
    role: Role
    rows: int | None
    login: bool

    def has(self, role: Role) -> bool:
        """Whether the person has the rights of a role."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(slots=True)
class Here:
    """A page that was opened: the way to the API, who opened it, and the parameters in its address."""

    page: Page
    client: Client
    person: Person
    tab: Tab
    parameters: Mapping[str, str] = field(default_factory=dict)

    def after_connect(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this once the browser shows the page."""

        async def begin() -> None:
            await self.tab.connected()
            if not self.tab.is_deleted:
                with self.tab:
                    await work()

        background_tasks.create(begin(), name=f"load {self.page.path}")

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Inside of this, an error of the API is shown to the person instead of being raised."""
        try:
            yield
        except ClientError as error:
            self.tell(error)

    def tell(self, error: ClientError) -> None:
        """Show an error: its code and its text."""
        if self.tab.is_deleted:
            return
        with self.tab:
            code = error.code if isinstance(error, ServiceError) else "unavailable"
            if isinstance(error, ServiceError) and error.status == 401:
                ui.navigate.to(address("/console/login", next=address(self.page.path, **self.parameters)))
                return
            ui.notify(
                f"{code}: {error}",
                type="negative",
                multi_line=True,
                timeout=15_000,
                close_button="Close",
            )

    def remember(self, **parameters: Any) -> None:
        """Put these parameters into the page's address, without loading it again; None removes one."""
        given = {**self.parameters, **parameters}
        self.parameters = {name: str(value) for name, value in given.items() if value not in (None, "")}
        with self.tab:
            ui.navigate.history.replace(address(self.page.path, **self.parameters))


@dataclass(frozen=True, slots=True)
class Page:
    """A page: where it is, its name and icon in the navigation, and what builds it. key: pressed after `g`, it leads
    here. role: who sees it in the navigation."""

    path: str
    title: str
    icon: str
    build: Callable[[Here], Awaitable[None]]
    key: str = ""
    role: Role = "reader"


def address(path: str, **parameters: Any) -> str:
    """An address with parameters; those that are None or empty are left out."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def client_of(request: Request) -> Client:
    """A client with the rights of the person whose browser sends this request, as long as their session lasts."""
    scope, headers = request.scope, request.headers
    given = headers.get("authorization")
    sessions = scope["zedlog.sessions"]
    host, cookie = headers.get("host", "").encode("latin-1"), headers.get("cookie", "").encode("latin-1")

    def authorization() -> bytes | None:
        if given is not None:
            return given.encode("latin-1")
        found: bytes | None = sessions.authorization(host, cookie)
        return found

    return Client(Inside(scope["zedlog.api"], scope.get("server"), authorization))


async def person_of(request: Request, client: Client) -> Person:
    """Who it is.

    Raises:
        ServiceError: nobody with rights, or the service cannot tell now.
    """
    found = await client.request("GET", "/v1/whoami")
    host = request.headers.get("host", "").encode("latin-1")
    cookie = request.headers.get("cookie", "").encode("latin-1")
    return Person(
        found["name"],
        found["role"],
        found["rows"],
        secret_of(host, cookie) is not None and found["asked"],
    )
