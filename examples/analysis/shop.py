"""A small web shop. It is read by extract.py, and never run."""


def search(request, database):
    term = request.args("q")
    order = column_of(request.args("order"))
    question = build(term, order)
    return database.execute(question)


def build(text, order):
    start = "SELECT * FROM item WHERE name LIKE '"
    middle = start + text
    return middle + order


def column_of(name):
    return allowed(name)


def comment(request, database):
    text = request.args("text")
    safe = quote(text)
    statement = "INSERT INTO comment VALUES (" + safe
    database.execute(statement)


def report(request, database):
    month = request.args("month")
    run("make-report " + month)
    return database.execute("SELECT * FROM report")


# ruff: noqa: F821 (the functions of its framework are known by name only)
