"""What the last epochs did, as pictures: a chart of all of them, and a small one for each relation. Plain functions.

In: the documents of `/v1/epochs` and `/v1/transactions`. Out: options of an ECharts chart, and paths of an SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

COLOURS: Final = {
    "update": "#3987c9",
    "bootstrap": "#d98e04",
    "mixed": "#8a4fbf",
    "dred": "#1f9d72",
    "refused": "#d9363e",
}
"""By the strategy of the epoch; what was refused made no epoch."""
# Texts are drawn and not read as HTML, so that no name of a relation can be more than a name.
_SHOW: Final = "(p) => p.data.told"
_MOST_NAMED: Final = 6
_LEAST_MS: Final = 0.01


def told(epoch: Mapping[str, Any]) -> str:
    """What an epoch did, in a few lines."""
    changes = sorted(epoch["changes"].items(), key=lambda one: -_size(one[1]))
    lines = [
        f"Epoch {epoch['epoch']}, {clock(epoch['time'])}",
        f"{epoch['elapsed_ms']:,.1f} ms, {epoch['strategy']}, {epoch['placement']}, "
        f"{epoch['derivations']:,} derivations",
        str(epoch.get("reason") or ""),
    ]
    lines += [f"{name}: +{one['inserted']:,} -{one['deleted']:,}" for name, one in changes[:_MOST_NAMED]]
    if len(changes) > _MOST_NAMED:
        lines.append(f"and {len(changes) - _MOST_NAMED:,} more relations")
    return "\n".join(filter(None, lines))


def told_refusal(transaction: Mapping[str, Any]) -> str:
    """Why a transaction was refused."""
    problem = transaction.get("problem") or {}
    when = clock(transaction["time"]) if transaction.get("time") else ""
    return f"Refused, {when}\n{problem.get('code', '')}\n{str(problem.get('message', ''))[:160]}"


def clock(seconds: float) -> str:
    """A time of this machine, in words that sort."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def chart(epochs: Sequence[Mapping[str, Any]], refused: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A bar for each epoch, oldest first: its height is its time, on a scale of powers of ten, its colour how it was
    evaluated; and a mark for each transaction that was refused, at its time between them."""
    since = min((one["time"] for one in epochs), default=0.0)
    events: list[tuple[float, str, str, float, str]] = [
        (one["time"], str(one["epoch"]), one["strategy"], max(one["elapsed_ms"], _LEAST_MS), told(one))
        for one in epochs
    ]
    events += [
        (one["time"], "refused", "refused", _LEAST_MS, told_refusal(one))
        for one in refused
        if (one.get("time") or 0) >= since
    ]
    events.sort(key=lambda one: one[0])
    series = []
    for kind in [*COLOURS, *sorted({event[2] for event in events} - COLOURS.keys())]:
        data = [
            {"value": [i, height], "told": text}
            for i, (_, _, strategy, height, text) in enumerate(events)
            if strategy == kind
        ]
        if data:
            one = {"name": kind, "data": data, "itemStyle": {"color": COLOURS.get(kind, "#777777")}}
            shape = {"type": "scatter", "symbol": "diamond", "symbolSize": 13}
            series.append(
                one | (shape if kind == "refused" else {"type": "bar", "barGap": "-100%", "barMaxWidth": 26})
            )
    return {
        "animation": False,
        "grid": {"left": 60, "right": 16, "top": 36, "bottom": 28},
        "legend": {"top": 0, "textStyle": {"color": "#888888"}},
        "tooltip": {"trigger": "item", "renderMode": "richText", ":formatter": _SHOW},
        "xAxis": {"type": "category", "data": [event[1] for event in events], "name": "epoch"},
        "yAxis": {"type": "log", "name": "ms", "min": _LEAST_MS, "startValue": _LEAST_MS},
        "series": series,
        "aria": {"enabled": True},
    }


def sparkline(
    relation: str, epochs: Sequence[Mapping[str, Any]], width: float = 100.0, height: float = 20.0
) -> dict[str, str]:
    """The changes of a relation in these epochs, newest first as the API gives them: paths of bars from the middle, up
    for tuples that came, down for those that went."""
    counts = [one["changes"].get(relation, {"inserted": 0, "deleted": 0}) for one in reversed(epochs)]
    most = max((max(one["inserted"], one["deleted"]) for one in counts), default=0)
    if not most:
        return {"up": "", "down": "", "told": "no changes in the epochs shown"}
    step, middle = width / len(counts), height / 2

    def bars(name: str, sign: float) -> str:
        return "".join(
            f"M{i * step:.1f} {middle:g}v{sign * max(1.0, middle * one[name] / most):.1f}"
            f"h{max(step - 0.4, 0.6):.1f}V{middle:g}z"
            for i, one in enumerate(counts)
            if one[name]
        )

    came, went = sum(one["inserted"] for one in counts), sum(one["deleted"] for one in counts)
    text = f"+{came:,} -{went:,} in the last {len(counts):,} epochs"
    return {"up": bars("inserted", -1.0), "down": bars("deleted", 1.0), "told": text}


def _size(change: Mapping[str, int]) -> int:
    return change["inserted"] + change["deleted"]
