"""What the site adds to these documents: hooks that MkDocs calls, see mkdocs.yml.

- A link that leads out of docs/ (`../programs/README.md`, `../../examples/access/policy.dl`) works on the site, too:
  such a document becomes a page, and any other file is copied, as text that a browser shows.
- The page `http-calls.md` is made from openapi/openapi.json, so it cannot be out of date.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
CALLS = "http-calls.md"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)(?=[)#])")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    description = json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))
    files.append(File.generated(config, CALLS, content=http_calls(description)))
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for target in _LINK.findall(_CODE.sub("", page.content_string)):
            found = _found(page.src_uri, target)
            if found is None or files.get_file_from_path(_uri(found)) is not None:
                continue
            added = File.generated(config, _uri(found), abs_src_path=str(found))
            files.append(added)
            if found.suffix == ".md":
                pages.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def link(match: re.Match[str]) -> str:
        found = _found(page.file.src_uri, match[1])
        if found is None:
            return match[1]
        return os.path.relpath(_uri(found), str(PurePosixPath(page.file.src_uri).parent))

    return _LINK.sub(link, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The theme's plugin for use without a server fetches one script from elsewhere; ours is a copy of it."""
    here = os.path.relpath("assets/iframe-worker.js", str(PurePosixPath(page.file.dest_uri).parent))
    return output.replace("https://unpkg.com/iframe-worker/shim", here)


def _found(page: str, target: str) -> Path | None:
    """The file of the repository to which a page's link leads."""
    here = ROOT / "docs" / page
    if not here.exists():
        # A page that has come from outside of docs/ itself.
        here = ROOT / page
    found = (here.parent / target).resolve()
    return found if found.is_file() and found.is_relative_to(ROOT) else None


def _uri(file: Path) -> str:
    """Where a file of the repository is on the site."""
    if file.is_relative_to(ROOT / "docs"):
        return file.relative_to(ROOT / "docs").as_posix()
    uri = file.relative_to(ROOT).as_posix()
    if uri == "README.md":
        # To MkDocs a README is the index of its folder, and there is one.
        return "start.md"
    return uri if file.suffix == ".md" else f"{uri}.txt"


# --- the calls of the HTTP API


def http_calls(description: dict[str, Any]) -> str:
    """A page with every call: what it does, who may call it, parameters, body, answers."""
    lines = [
        "# HTTP, call by call",
        "",
        "Made from `openapi/openapi.json`, which a running service also has at `/openapi.json`. What a client should "
        "know beyond it is on the page [HTTP](http.md).",
    ]
    about = {tag["name"]: tag["description"] for tag in description["tags"]}
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag: [] for tag in about}
    for path, methods in description["paths"].items():
        for method, call in methods.items():
            groups.setdefault(call["tags"][0], []).append((path, method.upper(), call))
    for tag, calls in groups.items():
        if calls:
            lines += ["", f"## {tag.capitalize()}", "", about.get(tag, "")]
        for path, method, call in calls:
            lines += _call(path, method, call, description)
    return "\n".join(lines) + "\n"


def _call(path: str, method: str, call: dict[str, Any], description: dict[str, Any]) -> Iterator[str]:
    yield from (
        "",
        f"### {method} {path}",
        "",
        f"**{call['summary']}.** Role: {call['x-zedlog-role']}.".replace("?.**", "?**"),
    )
    if text := call.get("description"):
        yield from ("", text)
    if parameters := call.get("parameters"):
        yield from ("", "| parameter | in | type | what it does |", "|---|---|---|---|")
        for parameter in parameters:
            parameter = _resolved(parameter, description)
            name = f"`{parameter['name']}`" + (" (required)" if parameter.get("required") else "")
            kind = _type(parameter.get("schema", {}), description)
            yield f"| {name} | {parameter['in']} | {kind} | {_cell(parameter.get('description', ''))} |"
    for media, content in call.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(content.get("schema", {}), description)
        yield from ("", f"Body, `{media}`: {_type(content.get('schema', {}), description)}")
        if fields := schema.get("properties"):
            needed = schema.get("required", ())
            yield from ("", "| field | type | what it is |", "|---|---|---|")
            for name, field in fields.items():
                field_name = f"`{name}`" + (" (required)" if name in needed else "")
                yield f"| {field_name} | {_type(field, description)} | {_cell(field.get('description', ''))} |"
        for example in content.get("examples", {}).values():
            value = _resolved(example, description).get("value")
            if isinstance(value, dict | list):
                yield from ("", "```json", json.dumps(value, ensure_ascii=False), "```")
    yield from ("", "| status | answer |", "|---|---|")
    for status, response in call["responses"].items():
        response = _resolved(response, description)
        media = [kind for kind in response.get("content", {}) if kind != "application/problem+json"]
        kinds = f" ({', '.join(f'`{kind}`' for kind in media)})" if media else ""
        yield f"| {status} | {_cell(response['description'])}{kinds} |"


def _resolved(value: dict[str, Any], description: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        found: Any = description
        for step in value["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        value = found
    return value


def _type(schema: dict[str, Any], description: dict[str, Any]) -> str:
    """The type of a schema in a few words."""
    if "$ref" in schema:
        return _type_named(schema["$ref"].rpartition("/")[2], _resolved(schema, description), description)
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(each, description) for each in alternatives))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), description)}"
    return str(schema.get("type", "any value"))


def _type_named(name: str, schema: dict[str, Any], description: dict[str, Any]) -> str:
    return name if schema.get("type") == "object" else _type(schema, description)


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
