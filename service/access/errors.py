"""What a request is told that the guard does not let through."""

from __future__ import annotations

from engine.errors import ZedlogError


class UnauthorizedError(ZedlogError):
    """The call needs a token, and the request has none, or one that is unknown, revoked or expired."""

    code = "unauthorized"


class HostNotAllowedError(ZedlogError):
    """The request's Host is not a name of this service; `--allowed-hosts` adds one."""

    code = "host_not_allowed"


class OriginNotAllowedError(ZedlogError):
    """A page of another origin may not change anything or ask queries here; `--allowed-origins` allows an origin."""

    code = "origin_not_allowed"


class RateLimitedError(ZedlogError):
    """The token has made more requests than its rate allows. Nothing was done; Retry-After says when to try again."""

    code = "rate_limited"


class ProviderUnavailableError(ZedlogError):
    """The keys of the OpenID provider cannot be read, so no token of it can be checked now."""

    code = "provider_unavailable"


class TokenExistsError(ZedlogError):
    """A token of that name exists. Choose another name, or revoke it first."""

    code = "token_exists"


class UnknownTokenError(ZedlogError):
    """There is no token of that name."""

    code = "unknown_token"
