"""The settings that say who may reach the service, and whether everybody who does may do everything.

Always: settings that contradict each other are refused when they are read, before anything is started.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import NoDecode

from engine.errors import shown
from engine.server.options import Shown, seconds, typed, whole
from engine.server.settings import DatabaseSettings

STDERR, NONE = "stderr", "none"
_LISTENING, _ACCESS = "Where the service listens", "Who may use the service"
_HOST = re.compile(r"[a-z0-9._-]+|\[?[0-9a-f:.]+\]?", re.ASCII)
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.ASCII)


def _host(text: str) -> str:
    name = text.lower()
    if not _HOST.fullmatch(name):
        raise ValueError(f"{shown(text)} is not a host; write a name or an address without a port")
    return name.strip("[]")


def _origin(text: str) -> str:
    name = text.lower()
    if not _ORIGIN.fullmatch(name):
        raise ValueError(
            f"{shown(text)} is not an origin; write it as https://app.example or http://host:8080"
        )
    return name


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, (part.strip() for part in text.split(","))))


class AccessSettings(DatabaseSettings):
    """Where the service listens, and who may use it."""

    host: Annotated[str, Field(description="The address to listen on."), Shown("ADDRESS", _LISTENING)] = (
        "127.0.0.1"
    )
    port: Annotated[
        int,
        whole(0, 65_535),
        Field(description="The port to listen on; 0 chooses any free one."),
        Shown("N", _LISTENING),
    ] = 8321
    tls_cert: Annotated[
        Path | None,
        Field(description="Serve HTTPS, with the certificate (and its chain) in this PEM file."),
        Shown("FILE", _LISTENING),
    ] = None
    tls_key: Annotated[
        Path | None,
        Field(description="The private key of the certificate, a PEM file."),
        Shown("FILE", _LISTENING, "in the file of the certificate"),
    ] = None
    require_tokens: Annotated[
        bool,
        Field(
            description="Ask for a token even on the loopback address and before the database has any token. It is "
            "asked for in any case as soon as there is one, and on every other address."
        ),
        Shown("", _ACCESS),
    ] = False
    insecure: Annotated[
        bool,
        Field(
            description="Ask for no tokens, on any address: everybody who reaches the service may do everything."
        ),
        Shown("", _ACCESS),
    ] = False
    allowed_hosts: Annotated[
        frozenset[str],
        NoDecode,
        typed(_listed),
        AfterValidator(lambda hosts: frozenset(map(_host, hosts))),
        Field(
            description="A further name under which the service is reached, for the check of the header Host. The "
            "option may be repeated, and commas separate values."
        ),
        Shown("HOST", _ACCESS, "localhost, IP addresses, the value of --host", repeated=True),
    ] = frozenset()
    allowed_origins: Annotated[
        frozenset[str],
        NoDecode,
        typed(_listed),
        AfterValidator(lambda origins: frozenset(map(_origin, origins))),
        Field(
            description="An origin, such as https://app.example, whose pages may use the service from a browser. The "
            "option may be repeated, and commas separate values."
        ),
        Shown("ORIGIN", _ACCESS, repeated=True),
    ] = frozenset()
    jwt_keys: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Accept JSON Web Tokens signed with these keys of an OpenID provider: a JWKS file, or its "
            "https URL.",
        ),
        Shown("FILE|URL", _ACCESS),
    ] = None
    jwt_audience: Annotated[
        str | None,
        Field(
            min_length=1, description="The audience that a JSON Web Token must be for; --jwt-keys needs it."
        ),
        Shown("NAME", _ACCESS),
    ] = None
    jwt_issuer: Annotated[
        str | None,
        Field(min_length=1, description="The issuer that a JSON Web Token must come from."),
        Shown("URL", _ACCESS, "any that the keys belong to"),
    ] = None
    jwt_roles: Annotated[
        str,
        Field(
            min_length=1,
            description="The claim that lists the rights: zedlog:reader, zedlog:writer, zedlog:admin, "
            "zedlog:read:RELATION, zedlog:write:RELATION. Dots lead into objects, as in realm_access.roles.",
        ),
        Shown("CLAIM", _ACCESS),
    ] = "roles"
    jwt_name: Annotated[
        str, Field(min_length=1, description="The claim that names the user."), Shown("CLAIM", _ACCESS)
    ] = "sub"
    token_rate: Annotated[
        float | None,
        seconds("above 0", lambda number: number > 0),
        Field(
            description="Requests a second that a token without a rate of its own may make, in each process."
        ),
        Shown("N", _ACCESS, "no limit"),
    ] = None
    access_log: Annotated[
        str,
        Field(
            min_length=1,
            description="Where one line of JSON for each request goes: stderr, none, or a file, of which the last "
            "30 MB are kept.",
        ),
        Shown("stderr|none|FILE", _ACCESS, "stderr; of `zedlog serve`: access.log in the data directory"),
    ] = STDERR

    no_console: Annotated[
        bool,
        Field(description="Serve no console for browsers under /console, only the API."),
        Shown("", _LISTENING),
    ] = False

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback(self.host)

    @property
    def asks_always(self) -> bool:
        """Whether the settings ask for tokens, whatever the database holds."""
        return not self.insecure and (self.require_tokens or self.jwt_keys is not None or not self.is_local)

    @model_validator(mode="after")
    def _access_agrees(self) -> AccessSettings:
        if self.insecure and (self.require_tokens or self.jwt_keys is not None):
            raise ValueError(
                "--insecure asks for no tokens, so it cannot be given with --require-tokens or --jwt-keys"
            )
        if self.jwt_keys is not None:
            if self.jwt_audience is None:
                raise ValueError(
                    "--jwt-keys needs --jwt-audience: without it, tokens that the provider made for other programs "
                    "would be accepted"
                )
            where = urlsplit(self.jwt_keys)
            if where.scheme == "http" and not is_loopback(where.hostname or ""):
                raise ValueError(
                    f"--jwt-keys {self.jwt_keys} is not encrypted, so anybody between could exchange the keys; use "
                    "https, or a file"
                )
        if self.tls_cert is None and self.tls_key is not None:
            raise ValueError("--tls-key needs --tls-cert, the file of the certificate")
        if self.tls_cert is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key)
            except (OSError, ssl.SSLError) as error:
                raise ValueError(
                    f"the certificate {self.tls_cert} cannot be used: {error.strerror or error}"
                ) from None
        return self


def is_loopback(host: str) -> bool:
    """Whether an address, or the name `localhost`, stands for this machine alone. Other names are not looked up."""
    if host.lower() == "localhost":
        return True
    address = address_of(host)
    return address is not None and address.is_loopback


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is, or None: it is a name."""
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
