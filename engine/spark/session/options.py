"""How Spark is started and used: plain, checked data.

Three kinds of master, and what differs between them:

    local[n]        the driver's JVM does all the work; a child of this process spark://h:p     (also yarn, k8s://...)
    the driver's JVM is a child of this process, executors are elsewhere sc://h:p        Spark Connect: the driver is a
    server that its operator started and configured
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.errors import InvalidRequestError, shown

_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?$")
_CLUSTER = ("spark://", "yarn", "k8s://")
_CONNECT = "sc://"
_PACKAGES = "spark.jars.packages"
_COORDINATES = re.compile(r"[A-Za-z0-9._-]+(:[A-Za-z0-9._-]+){2}")
_SETTING = re.compile(r"spark\.[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """See the module.

    partitions: of every exchange and of the state. checkpoint_dir: a directory that driver and executors share; state
    is then kept there and survives the loss of all executors. copies: without it, on how many executors of a cluster
    each part of the state is kept. local_rows: rows up to which changes are kept in the driver. import_rows: rows of an
    import up to which they are. adaptive: whether large
    queries are planned anew while they run. timeout: seconds to wait for the master, for its first job, and later for
    executors when none is left. memory: of the driver's JVM; a Connect server has its own. conf: further settings of
    Spark, which take precedence over Zedlog's. packages: coordinates of Maven that Spark resolves when it starts.
    """

    master: str = "local[2]"
    partitions: int = 2
    checkpoint_dir: str | None = None
    copies: int = 2
    local_rows: int = 20_000
    import_rows: int = 200_000
    adaptive: bool = True
    timeout: float = 120.0
    memory: str = "4g"
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.local or self.cluster or self.connect):
            raise InvalidRequestError(
                'the Spark master must be "local[n]", "spark://host:port" or "sc://host:port", '
                f"not {shown(self.master)}"
            )
        for name, least in (("partitions", 1), ("copies", 1), ("local_rows", 0), ("import_rows", 0)):
            if getattr(self, name) < least:
                raise InvalidRequestError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.timeout <= 0:
            raise InvalidRequestError(f"timeout must be more than 0 seconds, not {self.timeout:g}")
        if self.checkpoint_dir == "":
            raise InvalidRequestError("the name of the checkpoint directory must not be empty")
        for package in self.packages:
            check_package(package)
        if self.packages and self.connect:
            raise InvalidRequestError(
                "over Spark Connect the packages are the server's: start it with --packages "
                f"{','.join(self.packages)}, and leave the option out here"
            )
        if self.packages and _PACKAGES in self.conf:
            raise InvalidRequestError(
                f"packages are given twice: as packages, and as the setting {_PACKAGES}"
            )

    @property
    def local(self) -> bool:
        return bool(_LOCAL.match(self.master))

    @property
    def cluster(self) -> bool:
        """Whether executors are separate processes, with the driver in a child of this process."""
        return self.master.startswith(_CLUSTER)

    @property
    def connect(self) -> bool:
        return self.master.startswith(_CONNECT)


def check_package(text: str) -> str:
    """The coordinates of a package.

    Raises:
        InvalidRequestError: they are not of the form group:artifact:version.
    """
    if not _COORDINATES.fullmatch(text):
        raise InvalidRequestError(
            f"{shown(text)} does not name a package; write group:artifact:version, "
            "such as org.postgresql:postgresql:42.7.8"
        )
    return text


def parse_packages(text: str) -> tuple[str, ...]:
    """Packages between commas, each once."""
    return tuple(dict.fromkeys(check_package(part.strip()) for part in text.split(",") if part.strip()))


def parse_conf(text: str) -> Mapping[str, str]:
    """Settings `spark.key=value` between commas. What follows a comma and is not the beginning of a setting belongs to
    the value before it, so that a value may be a list. The last of several values counts.

    Raises:
        InvalidRequestError: a setting is not of this form.
    """
    found: dict[str, str] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and _SETTING.fullmatch(name.strip()):
            key = name.strip()
            found[key] = value.strip()
        elif key:
            found[key] += f",{part}"
        elif part.strip():
            raise InvalidRequestError(
                f"{shown(part.strip())} is not a setting of Spark; write spark.key=value, "
                "such as spark.driver.memory=8g"
            )
    return found
