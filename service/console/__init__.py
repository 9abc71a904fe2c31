"""The console: where a person works with the service in a browser, under `/console`.

It is a client of the HTTP API like any other: it holds no state of the database, and no rights but those of the person
who uses it. It is loaded when somebody opens it for the first time; until then it costs nothing.

- `mount.py`: who may see a page; login and logout; loading. The only module that the app imports before the first use.
- `inside.py`, `client.py`: the way to the API. `here.py`: what a page is given. `frame.py`: what surrounds every page.
- `site.py`: the list of pages, and their registration with NiceGUI. `pages/`: the pages, one module each.

**How a page is made.** A module of `pages/` has a function that builds the page, and says what it is:

    from nicegui import ui
    from service.console.here import Here, Page

    async def build(here: Here) -> None:
        box = ui.column().classes("w-full")

        async def load() -> None:
            with here.telling():                        # an error of the API is shown with its code and text
                document = await here.client.request("GET", "/v1/relations")
                with box:
                    ui.label(f"{len(document['relations'])} relations")

        here.after_connect(load)                        # the page is there at once, and what it shows comes then

    PAGE = Page("/console/relations", "Relations", "table_view", build, key="t")

and is one line more in `PAGES` of `site.py`. The fields of `Page`: address, name, icon (Material Icons), function;
`key`: pressed after `g` it leads to the page; `role`: who sees it in the navigation ("reader" unless it is said).
`here.person` says who it is (`here.person.has("writer")`), `here.parameters` is the query string, and
`here.remember(q="...")` puts parameters into the address without loading the page again, so that it can be bookmarked.
Tables go to the browser page by page: a relation may have millions of tuples.

A page is an address of its own; links between pages are plain links, with `address("/console/explain", tuple=...)` of
`here.py` for the quoting. Pages ask the API only, never the database.
"""
