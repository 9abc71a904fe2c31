"""Changing facts and rules."""

from __future__ import annotations

from typing import Any, Unpack

from zedlog.client.connection import Connection, new_key
from zedlog.client.models import Commit, Rule
from zedlog.client.transaction import RULE_ID, AsyncTransaction, Draft, Mode, Options, Replaces


class Writing(Connection):
    def transaction(
        self,
        message: str | None = None,
        source: str | None = None,
        mode: Mode = "zset",
        key: str | None = None,
        dry_run: bool = False,
        delta: bool = False,
        replaces: Replaces | None = None,
        strategy: str | None = None,
        placement: str | None = None,
    ) -> AsyncTransaction:
        """A transaction, sent at the end of its block; an exception in the block means that nothing is sent.

            async with client.transaction(message="new lines") as t:
                t.add("edge", [("a", "b")])
                t.rule("tc(x, y) :- edge(x, y).")
            t.result.epoch

        message: why; it is kept. source: for whom the facts count. mode: in `set`, adding what is there, or removing
        what is not, has no effect. key: the Idempotency-Key, made if it is None. dry_run: only say what would change.
        delta: `result.delta` lists the tuples that appeared and went. replaces: the source asserts exactly these facts
        from now on (`source`: in all relations; `relations`: in those that are named).

        Raises, at the end of the block:
            ServiceError: refused; nothing of it was applied.
            Unreachable: there is no service, or no outcome in time. Send it again with the same key.
        """
        options = Options(
            message=message,
            source=source,
            mode=mode,
            key=key,
            dry_run=dry_run,
            delta=delta,
            replaces=replaces,
            strategy=strategy,
            placement=placement,
        )
        return AsyncTransaction(self.commit, options)

    def dry_run(
        self, source: str | None = None, mode: Mode = "zset", replaces: Replaces | None = None
    ) -> AsyncTransaction:
        """A transaction that is only tried: `result` says what would change, `result.delta` has the tuples."""
        return self.transaction(source=source, mode=mode, replaces=replaces, dry_run=True, delta=True)

    async def commit(self, draft: Draft) -> Commit:
        """Send a transaction, as the end of its block does."""
        options = draft.options
        body = draft.body()
        for change in body.get("rules", ()):
            if RULE_ID.fullmatch(change["rule"]):
                change["rule"] = (await self.get(f"/v1/rules/{change['rule']}"))["canonical"]
        answer = await self.change(
            "/v1/transactions",
            body,
            key=draft.key,
            dry_run=options.get("dry_run", False),
            delta=options.get("delta", False),
            strategy=options.get("strategy"),
            placement=options.get("placement"),
        )
        return Commit.model_validate(answer)

    async def add(self, relation: str, rows: Any, **options: Unpack[Options]) -> Commit:
        """Add facts: tuples, or a table of Polars, pandas or Arrow. options: those of `transaction`."""
        draft = Draft(options)
        draft.add(relation, rows)
        return await self.commit(draft)

    async def remove(self, relation: str, rows: Any, **options: Unpack[Options]) -> Commit:
        """Take facts back. options: those of `transaction`."""
        draft = Draft(options)
        draft.remove(relation, rows)
        return await self.commit(draft)

    async def rule(self, *texts: str, **options: Unpack[Options]) -> Commit:
        """Add rules. options: those of `transaction`."""
        draft = Draft(options)
        for text in texts:
            draft.rule(text)
        return await self.commit(draft)

    async def remove_rule(self, *rules: str | Rule, **options: Unpack[Options]) -> Commit:
        """Take rules back, named by their texts, their ids, or as `rules()` gives them. options: those of
        `transaction`."""
        draft = Draft(options)
        for rule in rules:
            draft.remove_rule(rule)
        return await self.commit(draft)

    async def program(self, text: str, **options: Unpack[Options]) -> Commit:
        """Add all facts, rules and declarations of a program's text. options: those of `transaction`."""
        draft = Draft(options)
        draft.program(text)
        return await self.commit(draft)

    async def rollback(
        self, to: int, *, message: str | None = None, dry_run: bool = False, key: str | None = None
    ) -> Commit:
        """Make facts, rules and declarations what they were after an epoch, as a new epoch."""
        answer = await self.change(
            "/v1/rollback",
            {"to": to},
            message=message,
            dry_run=dry_run,
            delta=dry_run,
            key=key or new_key(),
        )
        return Commit.model_validate(answer)
