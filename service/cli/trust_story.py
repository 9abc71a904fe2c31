"""The chapter of `zedlog demo` about questions that follow a decision: why is this so, since when, by whom, can it be
taken back, can it be trusted?

In: the URL of the running service, and what the story before it chose. Out: the commands that ask, and what they print:
the chapter calls them as a person would.
"""

from __future__ import annotations

import typer
from rich.markup import escape

from service.cli.audit import audit
from service.cli.client import ServiceClient
from service.cli.explain import explain
from service.cli.history import blame, rollback
from service.cli.output import out, show
from service.cli.story import Story


class TrustStory:
    """One telling, after `story` has been told."""

    def __init__(self, url: str, story: Story) -> None:
        self._url, self._story = url, story

    def tell(self) -> None:
        out.print("\n[bold cyan]questions that a decision raises, and their answers[/]")
        vulnerable = self._story.vulnerable
        package = self._exposed(vulnerable)
        if package is not None:
            goal = f"exposed({show(package)}, {show(vulnerable)})"
            self._command(f"explain '{goal}'")
            explain(goal, url=self._url)
            self._command(f"blame '{goal}'")
            blame(goal, url=self._url)
        cut, epoch = self._story.cut, self._story.cut_epoch
        if cut is not None:
            goal = f"depends({', '.join(map(show, cut))})"
            self._command(f"explain '{goal}' --changed {epoch}")
            explain(goal, changed=epoch, url=self._url)
            self._command(f"rollback {epoch - 1} --dry-run")
            rollback(epoch - 1, dry_run=True, url=self._url)
        self._command("audit --wait")
        try:
            audit(wait=True, url=self._url)
        except typer.Exit as end:
            if end.exit_code:
                raise

    def _exposed(self, vulnerable: str) -> str | None:
        """A package that is still exposed, if possible through others."""
        goal = f"exposed(p, {show(vulnerable)}), !requires(p, {show(vulnerable)})"
        with ServiceClient(self._url) as client:
            for query in (goal, f"exposed(p, {show(vulnerable)})"):
                for page in client.query(query, page=1):
                    for (package,) in page["tuples"]:
                        return str(package)
        return None

    def _command(self, text: str) -> None:
        out.print(f"\n[bold]$ zedlog {escape(text)}[/]")
