"""The login page, and the page that says why there is no other: plain HTML that needs no script."""

from __future__ import annotations

from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5 }
body { margin: 0; display: grid; place-items: center; min-height: 100vh }
main { width: min(26rem, 90vw) }
label { display: block; margin: 1rem 0 .25rem; font-weight: 600 }
input { width: 100%; box-sizing: border-box; padding: .6rem; font: inherit; font-family: monospace }
button { margin-top: 1rem; padding: .6rem 1.2rem; font: inherit; cursor: pointer }
.error { border-left: 4px solid #d33; padding: .25rem .75rem }
code { font-size: .95em }
"""


def login_page(error: str, where: str, *, again: bool = False) -> str:
    """Asks for a token. error: why the last one was refused. where: the address to go to then. again: the browser goes
    there at once, because a step from this site takes the cookie with it."""
    told = f'<p class="error" role="alert">{escape(error)}</p>' if error else ""
    return _page(
        "Zedlog: log in",
        f"""<h1>Zedlog</h1>{told}
<form method="post" action="/console/login">
<input type="hidden" name="next" value="{escape(where)}">
<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus spellcheck="false">
<button type="submit">Log in</button>
</form>
<p>This service asks for a token. An administrator makes one with <code>zedlog token create NAME</code>. It stays in the
service's memory; your browser gets a cookie instead, which ends with the browser, with the service, or when you log
out.</p>""",
        f'<meta http-equiv="refresh" content="0; url={escape(where)}">' if again else "",
    )


def trouble_page(code: str, message: str) -> str:
    """Says why the console cannot even ask who it is, and tries again."""
    return _page(
        "Zedlog: not available",
        f'<h1>Zedlog</h1><p class="error" role="alert"><code>{escape(code)}</code>: {escape(message)}</p>'
        "<p>This page tries again every five seconds.</p>",
        '<meta http-equiv="refresh" content="5">',
    )


def _page(title: str, body: str, head: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}'
        # Without it a browser asks for an icon, and is refused without a token.
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
    )
