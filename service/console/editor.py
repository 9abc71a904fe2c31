"""An editor of Datalog: CodeMirror with highlighting, completion of relations and columns, and errors marked in place.

Highlighting and completion run in the browser; the server only tells it the names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import ui

# What an error underlines if the service does not say how long the place is.
_LEAST: Final = 1
_STYLE: Final = """
.zl-error { text-decoration: underline wavy #e04848; text-decoration-skip-ink: none; background: #e0484822 }
.zl-editor { width: 100%; height: auto; border-radius: 4px }
.zl-editor { border: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
.zl-editor .cm-scroller { min-height: 5rem; max-height: 24rem; font-size: 14px }
"""
_SCRIPT: Final = r"""
window.zlNames = window.zlNames || {};
(async () => {
  const CM = await import("nicegui-codemirror");
  const at = getElement(%(id)d);
  if (!at) return;
  if (!at.editor) await at.editorPromise;
  const complete = (context) => {
    const names = window.zlNames[%(id)d] || [];
    const word = context.matchBefore(/[A-Za-z_][A-Za-z0-9_]*/);
    if (!word && !context.explicit) return null;
    const before = context.state.sliceDoc(Math.max(0, context.pos - 2000), word ? word.from : context.pos);
    const inside = before.match(/([A-Za-z_][A-Za-z0-9_]*)\s*\(([^()]*)$/);
    const options = names.map((one) => ({
      label: one.name, type: "class", detail: "(" + one.shown + ")",
      apply: one.name + "(" + one.columns.join(", ") + ")",
    }));
    for (const one of names) {
      const here = inside && inside[1] === one.name;
      const place = here ? inside[2].split(",").length - 1 : -1;
      one.columns.forEach((column, i) => {
        if (here) options.push({ label: column, type: "property", detail: "column of " + one.name,
                                 boost: i === place ? 99 : 50 });
      });
    }
    for (const word of ["count", "sum", "min", "max", "mean", "true", "false"])
      options.push({ label: word, type: "keyword", boost: -10 });
    return { from: word ? word.from : context.pos, options, validFor: /^[A-Za-z0-9_]*$/ };
  };
  const language = CM.StreamLanguage.define({
    name: "datalog",
    startState: () => ({ comment: false }),
    token(stream, state) {
      if (state.comment) {
        if (stream.match(/^.*?\*\//)) state.comment = false; else stream.skipToEnd();
        return "comment";
      }
      if (stream.eatSpace()) return null;
      if (stream.match("//")) { stream.skipToEnd(); return "comment"; }
      if (stream.match("/*")) { state.comment = true; return "comment"; }
      if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
      if (stream.match(/^\.[a-z]+/)) return "meta";
      if (stream.match(/^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/)) return "number";
      if (stream.match(/^(count|sum|min|max|mean|true|false|symbol|number|float|bool|constraint)\b(?!\s*\()/))
        return "keyword";
      if (stream.match(/^\??[A-Za-z_][A-Za-z0-9_]*(?=\s*\()/)) return "typeName";
      if (stream.match(/^\??[A-Za-z_][A-Za-z0-9_]*/)) return "variableName";
      if (stream.match(":-") || stream.match(/^[!<>=]+/)) return "operator";
      stream.next();
      return null;
    },
    languageData: { autocomplete: complete, commentTokens: { line: "//", block: { open: "/*", close: "*/" } } },
  });
  const attributes = CM.EditorView.contentAttributes.of({ "aria-label": %(label)s });
  at.editor.dispatch({ effects: CM.StateEffect.appendConfig.of([language, attributes]) });
  const theme = () => at.setTheme(document.body.classList.contains("body--dark") ? "githubDark" : "githubLight");
  new MutationObserver(theme).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  theme();
})();
"""


class Editor:
    """The editor, as an element of the page. run: what Ctrl+Enter does."""

    def __init__(self, text: str, label: str, run: Callable[[], Any]) -> None:
        ui.add_css(_STYLE)
        # Before CodeMirror's own meaning of Ctrl+Enter, which is a new line.
        self.element = ui.codemirror(text, line_wrapping=True, keymap={"Mod-Enter": lambda _: run()})
        self.element.classes("zl-editor")
        self.element.on_value_change(lambda _: self.unmark())
        self._marked = False
        ui.run_javascript(_SCRIPT % {"id": self.element.id, "label": json.dumps(label)})

    @property
    def text(self) -> str:
        return self.element.value or ""

    @text.setter
    def text(self, text: str) -> None:
        self.element.set_value(text)

    def know(self, relations: Sequence[Mapping[str, Any]]) -> None:
        """Complete the names of these relations, as `/v1/relations` lists them, and of their columns."""
        names = [
            {
                "name": one["relation"],
                "columns": [column["name"] for column in one["columns"]],
                "shown": ", ".join(
                    column["name"] + (f": {column['type']}" if column["type"] else "")
                    for column in one["columns"]
                ),
            }
            for one in relations
        ]
        text = json.dumps(names)
        ui.run_javascript(
            f"window.zlNames = window.zlNames || {{}}; window.zlNames[{self.element.id}] = {text};"
        )

    def mark(self, problem: Mapping[str, Any]) -> None:
        """Underline the place that a problem document names, and scroll it into view."""
        place = span_of(self.text, problem)
        if place is None:
            return
        start, end = place
        self.element.decorations = [{"kind": "mark", "from": start, "to": end, "class": "zl-error"}]
        self.element.line_tooltips = {problem["line"]: str(problem.get("detail", ""))}
        self._marked = True
        self.element.reveal_line(problem["line"])

    def unmark(self) -> None:
        if self._marked:
            self.element.decorations = []
            self.element.line_tooltips = {}
            self._marked = False


def span_of(text: str, problem: Mapping[str, Any]) -> tuple[int, int] | None:
    """From where to where in a text the place of a problem is, at least one character; None: it names no place.

    The document has the place as a line and a column, and its length as the carets under the line that it shows.
    """
    line, column = problem.get("line"), problem.get("column")
    lines = text.split("\n")
    if not isinstance(line, int) or not isinstance(column, int) or not 1 <= line <= len(lines) or not text:
        return None
    carets = str(problem.get("rendered", "")).rpartition("\n")[2].count("^")
    start = sum(len(one) + 1 for one in lines[: line - 1]) + min(column - 1, len(lines[line - 1]))
    # At the end of a line there is nothing to underline but what is before it.
    start = min(start, len(text) - 1)
    if text[start] == "\n" and start > 0:
        start -= 1
    return start, min(start + max(carets, _LEAST), len(text))
