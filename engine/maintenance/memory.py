"""How much memory this process may have.

In: what the system says: the machine's memory, the limits of the control groups that the process is in (version 2 and
1), and the limit of its address space. Out: bytes. Always: the least of them; a limit that cannot be read is ignored. A
container's limit is that of its control group, and a group is limited by those above it too.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

SHARE = 2
"""One part in this many of the memory that the process may have is for the tuples that are kept: the rest is for what
an epoch needs in addition, and for everything else.
"""


def default_memory_budget() -> int:
    """The bytes that the relations of one reasoner may take when nobody says how much that is."""
    return available_memory() // SHARE


def available_memory(root: Path = Path("/")) -> int:
    """The bytes that this process may have. `root`: where /proc and /sys are, for tests."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits(root)]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def _group_limits(root: Path) -> Iterator[int]:
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in groups:
        # number:controllers:path; version 2 has no controllers there.
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _limits_along(mounted, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_along(mounted / "memory", path, "memory.limit_in_bytes")


def _limits_along(mounted: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of all above it. In a container the path may be one of the host; then only the mounted
    part can be read.
    """
    group = mounted / path.strip("/")
    for folder in (group, *group.parents):
        if folder != mounted and mounted not in folder.parents:
            break
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            yield int(text)
