"""`/docs`: the API's description as a page for people, with a form to try each call.

In: the OpenAPI document. Out: one page of HTML that loads nothing, neither from here nor from elsewhere: FastAPI's own
page loads its scripts from other hosts, so without the internet it stays empty. It is made when it is first asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from service.access.roles import KEY

PATH: Final = "/docs"
# The page can do nothing but ask this service.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_METHODS: Final = ("get", "post", "put", "patch", "delete")

_STYLE: Final = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5;
  --line: color-mix(in srgb, currentColor 22%, transparent) }
body { margin: 0; display: grid; grid-template-columns: 13rem minmax(0, 1fr); max-width: 80rem }
nav { padding: 1rem; position: sticky; top: 0; align-self: start; max-height: 100vh; overflow: auto }
nav { box-sizing: border-box }
nav a { display: block; padding: .15rem 0 } main { padding: 1rem }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: 0 .8rem }
summary { padding: .5rem 0; cursor: pointer } .method { font-weight: 700; display: inline-block; min-width: 4.2rem }
code, pre, textarea, input, select { font-family: ui-monospace, monospace; font-size: .9em }
pre { overflow: auto; padding: .6rem; border: 1px solid var(--line); border-radius: 4px; max-height: 30rem }
table { border-collapse: collapse; width: 100% }
td { text-align: left; padding: .3rem .6rem .3rem 0; vertical-align: top; border-bottom: 1px solid var(--line) }
textarea { width: 100%; box-sizing: border-box; min-height: 7rem } input { width: 100%; box-sizing: border-box }
button { padding: .4rem 1rem; font: inherit; margin: .5rem 0 } .path { overflow-wrap: anywhere }
@media (max-width: 700px) { body { display: block } nav { position: static; max-height: none }
  td { display: block; border: 0; padding: .1rem 0 } tr { display: block; border-bottom: 1px solid var(--line) } }
"""
_SCRIPT: Final = """
document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target, out = form.querySelector("output"), data = form.dataset;
  let path = data.path;
  const query = new URLSearchParams(), headers = {};
  for (const field of form.querySelectorAll("input[name]")) {
    if (field.value === "") continue;
    if (field.dataset.in === "path") path = path.replace("{" + field.name + "}", encodeURIComponent(field.value));
    else if (field.dataset.in === "header") headers[field.name] = field.value;
    else query.append(field.name, field.value);
  }
  const token = document.getElementById("token").value.trim();
  if (token) headers.Authorization = "Bearer " + token;
  const more = form.querySelector("input[data-free]");
  if (more && more.value) for (const [name, value] of new URLSearchParams(more.value)) query.append(name, value);
  const options = { method: data.method.toUpperCase(), headers }, body = form.querySelector("textarea");
  if (body && body.value !== "") { options.body = body.value; headers["Content-Type"] = data.type; }
  const url = path + (query.size ? "?" + query : "");
  const reader = new AbortController();
  options.signal = reader.signal;
  out.textContent = "...";
  try {
    const answer = await fetch(url, options);
    let text = options.method + " " + url + "\\n" + answer.status + " " + answer.statusText + "\\n";
    for (const [name, value] of answer.headers) text += name + ": " + value + "\\n";
    text += "\\n";
    const stream = answer.body?.getReader(), decoder = new TextDecoder();
    let shown = "";
    while (stream) {
      const { done, value } = await stream.read();
      if (done) break;
      shown += decoder.decode(value, { stream: true });
      out.textContent = text + shown;
      if (shown.length > 200000) {
        shown = shown.slice(0, 200000) + "\\n... (more was left out)";
        reader.abort();
        break;
      }
    }
    if ((answer.headers.get("content-type") || "").includes("json"))
      try { shown = JSON.stringify(JSON.parse(shown), null, 1); } catch (error) { /* as it came */ }
    out.textContent = text + shown;
  } catch (error) { out.textContent = String(error); }
});
const opened = () => { const at = document.getElementById(location.hash.slice(1)); if (at) at.open = true; };
addEventListener("hashchange", opened); opened();
"""


def install(app: FastAPI) -> None:
    """Add the page to an app."""
    made: list[str] = []

    async def page(request: Request) -> Response:
        if not made:
            made.append(rendered(app.openapi()))
        return HTMLResponse(
            made[0], headers={"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}
        )

    app.router.routes.append(Route(PATH, page, include_in_schema=False))


def rendered(description: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document."""
    operations = list(_operations(description))
    tags = {tag["name"]: tag["description"] for tag in description["tags"]}
    tags |= {tag: "" for _, _, one in operations for tag in one["tags"] if tag not in tags}
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in tags)
    sections = ""
    for tag, words in tags.items():
        calls = "".join(
            _call(path, method, one, description) for path, method, one in operations if tag in one["tags"]
        )
        sections += f'<section id="{escape(tag)}"><h2>{escape(tag)}</h2>{_prose(words)}{calls}</section>'
    info = description["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Zedlog: HTTP API</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f'<nav aria-label="Sections"><a href="/">Zedlog</a>{links}<a href="/openapi.json">openapi.json</a>'
        f'<a href="/problems">error codes</a></nav><main><h1>HTTP API {escape(info["version"])}</h1>'
        f"{_prose(info['description'])}<p><label>Token for the calls tried here, where the service asks for one: "
        f'<input id="token" type="text" autocomplete="off" spellcheck="false"></label></p>{sections}</main>'
        f"<script>{_SCRIPT}</script></body></html>"
    )


def _operations(description: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in description["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield path, method, methods[method]


def _call(path: str, method: str, one: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    kind, text, schema = _body(one)
    fields = "".join(_parameter(parameter) for parameter in one.get("parameters", ()) if "name" in parameter)
    free = any(
        parameter.get("style") == "form" and parameter.get("explode")
        for parameter in one.get("parameters", ())
    )
    if free:
        fields += '<tr><td>columns</td><td><input data-free placeholder="x=a&amp;n=3" aria-label="columns"></td></tr>'
    table = f"<table>{fields}</table>" if fields else ""
    body = ""
    if kind:
        body = (
            f"<p>Body, <code>{escape(kind)}</code>:</p><textarea spellcheck='false' aria-label='Body'>{escape(text)}"
            f"</textarea>{_schema(schema, description)}"
        )
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{_inline(answer.get('description', ''))}</td></tr>"
        for status, answer in one["responses"].items()
    )
    return (
        f'<details id="{escape(one["operationId"])}"><summary><span class="method">{method.upper()}</span> '
        f'<code class="path">{escape(path)}</code> {escape(one["summary"])}</summary>'
        f"{_prose(one.get('description', ''))}"
        f"<p>Needs the role <b>{escape(one[KEY])}</b>.</p>"
        f'<form data-path="{escape(path)}" data-method="{method}" data-type="{escape(kind)}">{table}{body}'
        f'<button type="submit">Send</button><pre><output></output></pre></form>'
        f"<h3>Answers</h3><table>{answers}</table></details>"
    )


def _parameter(one: Mapping[str, Any]) -> str:
    schema = one.get("schema", {})
    allowed = [value for part in (schema, *schema.get("anyOf", ())) for value in part.get("enum", ())]
    kinds = [
        str(part["type"]) for part in (schema, *schema.get("anyOf", ())) if part.get("type", "null") != "null"
    ]
    known = ", ".join(map(str, allowed)) or " or ".join(kinds)
    name, required = escape(one["name"]), " required" if one.get("required") else ""
    if schema.get("type") == "object":
        return ""
    return (
        f"<tr><td><code>{name}</code> <small>{escape(one['in'])}{required}</small><br>"
        f"<small>{escape(known)}</small></td><td>{_inline(one.get('description', ''))}"
        f'<input name="{name}" data-in="{escape(one["in"])}" aria-label="{name}"{required}>'
        "</td></tr>"
    )


def _body(one: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    """The media type of a call's body, an example, and its schema; empty if it has none."""
    for kind, content in one.get("requestBody", {}).get("content", {}).items():
        for example in content.get("examples", {}).values():
            value = example["value"]
            text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
            return kind, text, content.get("schema", {})
        return kind, "", content.get("schema", {})
    return "", "", {}


def _schema(schema: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """What a body may contain, with the schemas that it names."""
    names: list[str] = []
    text = json.dumps(schema)
    known = description["components"]["schemas"]
    found = re.findall(r"#/components/schemas/(\w+)", text)
    while found:
        name = found.pop(0)
        if name in known and name not in names:
            names.append(name)
            found += re.findall(r"#/components/schemas/(\w+)", json.dumps(known[name]))
    shown = {name: known[name] for name in names} or schema
    written = escape(json.dumps(shown, indent=1, ensure_ascii=False))
    return f"<details><summary>What it may contain</summary><pre>{written}</pre></details>"


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.strip().split("\n\n") if part.strip())


def _inline(text: str) -> str:
    """Markdown's code and bold; everything else as it is."""
    found = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", found)
