"""Every command against a running system, as a user types it; what it prints and its exit status."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from service.cli.main import run
from tests.commands import Zedlog, zedlog
from tests.live import LiveSystem

__all__ = ["zedlog"]


def test_rules_facts_and_a_query(zedlog: Zedlog) -> None:
    rules = ("a_tc(x, y) :- a_edge(x, y).", "a_tc(x, z) :- a_tc(x, y), a_edge(y, z).")
    assert zedlog("rules", "add", *rules).status == 0
    added = zedlog("facts", "add", 'a_edge("a", "b"). a_edge("b", "c").', "--delta")
    assert added.status == 0
    assert "a_edge +2" in added.out
    assert "a_tc +3" in added.out
    assert '+ a_tc("a", "c")' in added.out
    assert zedlog("query", 'a_tc("a", x)').out == "x\nb\nc\n"
    assert zedlog("query", "a_tc(x, y)", "--limit", "1", "--format", "ndjson").out.count("\n") == 1
    gone = zedlog("facts", "retract", 'a_edge("b", "c").', "--delta")
    assert "a_tc -2" in gone.out
    assert zedlog("query", 'a_tc("a", x)').out == "x\nb\n"


def test_a_goal_without_variables_holds_or_not(zedlog: Zedlog) -> None:
    zedlog("facts", "add", "b_n(1).")
    assert zedlog("query", "b_n(1)").out == "holds\ntrue\n"
    assert zedlog("query", "b_n(2)", "--format", "json").out == '[\n {"holds":false}\n]\n'
    assert "yes, at epoch" in zedlog("query", "b_n(1)", "--format", "table").out


def test_rules_are_listed_and_removed_by_text_or_id(zedlog: Zedlog) -> None:
    zedlog("rules", "add", "c_p(x) :- c_q(x).", "c_r(x) :- c_q(x).")
    listed = json.loads(zedlog("rules", "list", "--format", "json").out)
    ids = {rule["rule"]: rule["id"] for rule in listed}
    assert ids.keys() >= {"c_p(x) :- c_q(x).", "c_r(x) :- c_q(x)."}
    # Another name of the variable is the same rule.
    assert zedlog("rules", "remove", "c_p(other) :- c_q(other).").status == 0
    assert zedlog("rules", "remove", ids["c_r(x) :- c_q(x)."]).status == 0
    left = {rule["rule"] for rule in json.loads(zedlog("rules", "list", "--format", "json").out)}
    assert not left & ids.keys() & {"c_p(x) :- c_q(x).", "c_r(x) :- c_q(x)."}
    unknown = zedlog("rules", "remove", "r000000000000")
    assert (unknown.status, 'there is no rule with the id "r000000000000"' in unknown.err) == (1, True)


def rule_ids(zedlog: Zedlog) -> dict[str, str]:
    return {rule["rule"]: rule["id"] for rule in json.loads(zedlog("rules", "list", "--format", "json").out)}


def test_rules_are_removed_by_the_beginning_of_their_id(zedlog: Zedlog) -> None:
    texts = [f"m_p{i}(x) :- m_q(x)." for i in range(3)]
    zedlog("rules", "add", *texts)
    ids = rule_ids(zedlog)
    first, second, third = (ids[text] for text in texts)
    # One letter of an id is wrong.
    mistyped = first[:-1] + ("0" if first[-1] != "0" else "1")
    wrong = zedlog("rules", "remove", mistyped)
    assert (wrong.status, f'Did you mean "{first}"' in wrong.err) == (1, True)
    short = zedlog("rules", "remove", "r")
    assert (short.status, "does not identify one rule" in short.err) == (1, True)
    relation = zedlog("rules", "remove", "m_p1")
    assert (relation.status, f"the rules that derive m_p1 are {second}" in relation.err) == (1, True)
    assert rule_ids(zedlog) == ids
    # Ids and texts may stand beside one another.
    assert zedlog("rules", "remove", first[:8], second, "m_p2(other) :- m_q(other).").status == 0
    assert not {first, second, third} & set(rule_ids(zedlog).values())


def test_a_change_says_what_else_it_did(zedlog: Zedlog) -> None:
    added = zedlog("facts", "add", 'n_e("a"). n_p(x) :- n_e(x).')
    assert "the text also holds 1 rule, which was added, too" in added.err
    assert "there before" not in added.err
    tried = zedlog("facts", "add", 'n_e("a"). n_p(x) :- n_e(x). n_q(x) :- n_e(x).', "--dry-run")
    assert "2 rules, which would be added, too" in tried.err
    assert "this rule was there before; its weight would be 2" in tried.err
    assert "the fact of n_e was there before, so this would raise its weight" in tried.err
    # Facts may be written as expressions of constants.
    assert zedlog("facts", "add", "n_n(2 ^ 3). n_n(2 ^ 4).").err == ""
    computed = zedlog("facts", "add", "n_n(8). n_n(4 ^ 2). n_n(2 ^ 5).")
    assert "2 of the 3 facts of n_n were there before" in computed.err
    again = zedlog("rules", "add", "n_p(y) :- n_e(y).", "n_r(x) :- n_e(x).", "n_e(1.5).")
    assert again.status == 1
    again = zedlog("rules", "add", "n_p(y) :- n_e(y).", "n_r(x) :- n_e(x).", 'n_e("b").')
    assert "the text also holds 1 fact, which was added, too" in again.err
    assert "its weight is now 2, so it disappears only when it is removed 2 times: r" in again.err
    assert ", n_p(x) :- n_e(x)." in again.err
    assert "n_r" not in again.err
    zedlog("facts", "add", 'n_e("a").')
    retracted = zedlog("facts", "retract", 'n_e("a"). n_e("b").')
    assert "1 of the 2 facts of n_e is still there: added more often than retracted" in retracted.err
    removed = zedlog("rules", "remove", rule_ids(zedlog)["n_p(x) :- n_e(x)."])
    assert (removed.status, "this rule stays, because it was added more often" in removed.err) == (0, True)
    assert "its weight is now 1" in removed.err
    last = zedlog("rules", "remove", "n_p(x) :- n_e(x).")
    assert (last.status, last.err) == (0, "")


def test_program_text_comes_from_files_and_standard_input(
    zedlog: Zedlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.dl"
    program.write_text(".decl d_q(name: symbol)\nd_p(x) :- d_q(x).\n")
    assert zedlog("rules", "add", f"@{program}").status == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO('d_q("from stdin").'))
    assert zedlog("facts", "add", "-f", "-").status == 0
    assert zedlog("query", "d_p(x)").out == "x\nfrom stdin\n"
    missing = zedlog("rules", "add", "-f", str(tmp_path / "none"))
    assert (missing.status, "No such file" in missing.err) == (1, True)
    assert zedlog("rules", "add").status == 2


def test_a_dry_run_changes_nothing(zedlog: Zedlog) -> None:
    tried = zedlog("facts", "add", "e_n(1).", "--dry-run")
    assert tried.out.startswith("dry run: this would be epoch")
    assert "e_n: +1" in tried.out
    assert zedlog("query", "e_n(x)").status == 1


def test_errors_show_line_and_caret(zedlog: Zedlog) -> None:
    wrong = zedlog("rules", "add", "f_p(x) :- f_q(x).\nf_p(x, y :- f_q(x).")
    assert wrong.status == 1
    message, line, caret = wrong.err.splitlines()
    assert message.startswith("error: expected")
    assert message.endswith("(syntax_error)")
    assert line == "  2 | f_p(x, y :- f_q(x)."
    assert caret.index("^^") == line.index(":-")
    assert wrong.out == ""
    near = zedlog("query", "f_quarry(x)")
    assert (near.status, 'there is no relation "f_quarry"' in near.err) == (1, True)


def test_load_detects_types_and_counts(zedlog: Zedlog, tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("from,to,cost\n" + "".join(f"n{i},n{i + 1},{i}\n" for i in range(250)))
    loaded = zedlog("load", "g_edge", str(file), "--header", "--batch", "100")
    assert loaded.status == 0
    assert loaded.out.startswith("loaded 250 tuples into g_edge")
    relations = zedlog("relations").out
    assert 'g_edge,"from: symbol, to: symbol, cost: number",250,0,250' in relations
    assert zedlog("query", 'g_edge("n7", x, c)').out == "x,c\nn8,7\n"


def test_loading_twice_adds_once(zedlog: Zedlog, tmp_path: Path) -> None:
    file = tmp_path / "edges.tsv"
    file.write_text("".join(f"{i}\t{i + 1}\n" for i in range(25)))
    arguments = ("load", "h_edge", str(file), "--header", "--batch", "10")
    assert zedlog(*arguments).out.startswith("loaded 24 tuples")
    second = zedlog(*arguments)
    assert (second.status, second.out) == (0, "")
    assert "had been loaded before and changed nothing now" in second.err
    # Weights of 1 everywhere: all go at once, and then there is nothing to retract.
    assert zedlog(*arguments, "--weight", "-1").out.startswith("retracted 24 tuples")
    assert zedlog("query", "h_edge(x, y)").out.count("\n") == 1
    assert zedlog(*arguments, "--weight", "-1", "--again").status == 1


def test_a_load_that_was_refused_goes_on_where_it_stopped(zedlog: Zedlog, tmp_path: Path) -> None:
    """Retracting what is there only in part: the second batch is refused, until its facts are there."""
    file = tmp_path / "numbers.csv"
    file.write_text("".join(f"{i}\n" for i in range(20)))
    zedlog("facts", "add", " ".join(f"i_n({i})." for i in range(10)))
    arguments = ("load", "i_n", str(file), "--batch", "10", "--weight", "-1")
    refused = zedlog(*arguments)
    assert (refused.status, "(negative_weight)" in refused.err) == (1, True)
    assert "the failure came after 1 batch of 10 tuples" in refused.err
    again = zedlog(*arguments)
    assert (again.status, "(negative_weight)" in again.err) == (1, True)
    zedlog("facts", "add", " ".join(f"i_n({i})." for i in range(10, 20)))
    assert zedlog(*arguments).out.startswith("retracted 10 tuples")
    # Nothing mentions the relation any more, so it is gone.
    assert "i_n," not in zedlog("relations").out


def last_transactions(live: LiveSystem, **wanted: str) -> list[tuple[str | None, str | None]]:
    """(message, source) of the transactions of a relation or a source, the newest first."""
    with live.client() as http:
        answer = http.get("/v1/transactions", params=wanted).json()
    return [(one.get("message"), one.get("source")) for one in answer["transactions"]]


def test_changes_say_why_and_for_which_source(zedlog: Zedlog, live: LiveSystem) -> None:
    rule = "s_over(x, y) :- s_boss(x, y)."
    assert zedlog("rules", "add", rule, "--message", "who is above whom").status == 0
    fact = 's_boss("ann", "bob").'
    assert zedlog("facts", "add", fact, "--source", "s hr", "-m", "hired").status == 0
    assert zedlog("facts", "add", fact).status == 0
    assert "s hr,s_boss,1" in zedlog("sources", "list", "--format", "csv").out
    assert zedlog("facts", "retract", fact, "-m", "ours was wrong").status == 0
    # What is left is what the source asserts.
    refused = zedlog("facts", "retract", fact)
    assert (refused.status, "(asserted_by_source)" in refused.err) == (1, True)
    assert zedlog("facts", "retract", fact, "--source", "s hr", "-m", "left").status == 0
    assert "s hr" not in zedlog("sources", "list", "--format", "csv").out
    assert zedlog("rules", "remove", rule, "-m", "not needed").status == 0
    assert last_transactions(live, relation="s_boss", status="committed") == [
        ("left", "s hr"),
        ("ours was wrong", None),
        (None, None),
        ("hired", "s hr"),
    ]
    with live.client() as http:
        newest = http.get("/v1/transactions").json()["transactions"]
    messages = [one.get("message") for one in newest]
    assert messages.index("not needed") < messages.index("left") < messages.index("who is above whom")
    # A source without facts has nothing to count for it, and the service says so.
    nothing = zedlog("facts", "add", rule, "--source", "s hr")
    assert (nothing.status, "without facts" in nothing.err) == (1, True)


def test_a_load_says_why_and_for_which_source(zedlog: Zedlog, live: LiveSystem, tmp_path: Path) -> None:
    file = tmp_path / "boss.csv"
    file.write_text("who,of\n" + "".join(f"p{i},q{i}\n" for i in range(25)))
    arguments = ("load", "t_boss", str(file), "--header", "--batch", "10")
    told = (*arguments, "--source", "t hr", "-m", "of January")
    assert zedlog(*told).out.startswith("loaded 25 tuples")
    assert "t hr,t_boss,25" in zedlog("sources", "list", "--format", "csv").out
    assert last_transactions(live, source="t hr") == [("of January", "t hr")] * 3
    # The declaration that the header makes is sent before, and has no facts to count for a source.
    assert last_transactions(live, relation="t_boss")[-1] == ("of January", "t hr")
    again = zedlog(*told)
    assert (again.status, again.out) == (0, "")
    assert "had been loaded before" in again.err
    # The same rows for another source, or for none, are another load.
    assert zedlog(*arguments, "--source", "t it").out.startswith("loaded 25 tuples")
    assert zedlog(*arguments).out.startswith("loaded 25 tuples")
    assert zedlog("query", "t_boss(x, y)").out.count("\n") == 26
    # With another message it is the same load: nothing is added twice, unless that is asked for.
    other = zedlog(*arguments, "--source", "t hr", "-m", "of February")
    assert (other.status, "--again" in other.err, "(idempotency_conflict)" in other.err) == (1, True, True)
    with live.client() as http:
        page = http.get("/v1/relations/t_boss/facts", params={"limit": 1, "domain": "asserted"}).json()
    assert page["weights"] == [3]
    assert zedlog(*arguments, "--source", "t hr", "-m", "of February", "--again").status == 0


def test_a_bad_file_sends_nothing(zedlog: Zedlog, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("1,2\n" * 50 + "3\n")
    bad = zedlog("load", "j_edge", str(file), "--batch", "10")
    assert bad.status == 1
    assert "line 51: the number of fields is 1, but it is 2 in the first line" in bad.err
    assert zedlog("query", "j_edge(x, y)").status == 1
    assert zedlog("load", "j_edge", str(tmp_path / "none.csv")).status == 1


def test_numbers_that_do_not_fit_are_not_sent(zedlog: Zedlog, tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    file.write_text("a,18446744073709551615\nb,18446744073709551614\n")
    bad = zedlog("load", "m_large", str(file))
    assert bad.status == 1
    assert "line 1, column 2: the number 18446744073709551615 does not fit into 64 bits" in bad.err
    assert "Nothing was sent" in bad.err
    assert zedlog("load", "m_large", str(file), "--types", "symbol,symbol").status == 0
    assert zedlog("query", 'm_large("a", n)').out == "n\n18446744073709551615\n"


def test_what_a_query_writes_with_types_is_loaded_as_it_was(zedlog: Zedlog, tmp_path: Path) -> None:
    file = tmp_path / "typed.csv"
    texts = ["", '""', "1", "a\tb", "a\nb", "a\r\nb", "a,b", "null", "true", "x:symbol", "\\n", "é\U0001f600"]
    with file.open("w", newline="") as out:
        writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["t:symbol", "n:number", "f:float", "b:bool"])
        writer.writerows(
            (text, number, value, "true")
            for text, number, value in zip(
                texts, [-(2**63), 2**63 - 1, 0] * 4, [5e-324, 1e300, 2.0, -0.5] * 3, strict=True
            )
        )
    assert zedlog("load", "n_typed", str(file), "--header").status == 0
    relations = zedlog("relations").out
    assert 'n_typed,"t: symbol, n: number, f: float, b: bool",12,0,12' in relations
    written = tmp_path / "again.csv"
    answer = zedlog("query", "n_typed(t, n, f, b)", "--types").out
    written.write_text(answer, newline="")
    assert answer.startswith("t:symbol,n:number,f:float,b:bool\n")
    assert zedlog("load", "n_again", str(written), "--header").status == 0
    assert zedlog("query", "n_again(t, n, f, b)", "--types").out == answer
    with written.open(newline="") as again:
        assert sorted(row[0] for row in csv.reader(again)) == sorted([*texts, "t:symbol"])
    assert "add --header" in zedlog("load", "n_other", str(file)).err
    zedlog("rules", "add", ".decl n_held(n: symbol, t: symbol)")
    refused = zedlog("load", "n_held", str(file), "--header", "--columns", "2,1")
    assert "the header says that column 1 is a number, but n_held holds a symbol" in refused.err
    assert zedlog("query", "n_typed(t, n, f, b)", "--types", "--format", "json").status == 2


def test_load_options(zedlog: Zedlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 2 a\n3 4 b\n3 4 b\n")))
    taken = ("--delimiter", "space", "--columns", "3,1", "--types", "symbol,float")
    assert zedlog("load", "k_edge", "-", *taken).status == 0
    assert zedlog("query", "k_edge(x, y)").out == "x,y\na,1.0\nb,3.0\n"
    for wrong in (("--weight", "0"), ("--columns", "0"), ("--types", "text"), ("--delimiter", "ab")):
        assert zedlog("load", "k_edge", "-", *wrong).status == 2
    file = tmp_path / "set.csv"
    file.write_text("b,3.0\nc,5.5\n")
    assert zedlog("load", "k_edge", str(file), "--set").status == 0
    # (b, 3.0) has had weight 2 before; as a set it has 1 and goes with one retraction.
    assert zedlog("facts", "retract", 'k_edge("c", 5.5).').status == 0
    assert zedlog("query", "k_edge(x, y)").out == "x,y\na,1.0\nb,3.0\n"


def test_relations_epochs_and_status(zedlog: Zedlog) -> None:
    zedlog("facts", "add", "l_n(1). l_n(2).")
    newest = json.loads(zedlog("epochs", "--limit", "1", "--format", "json").out)[0]
    assert newest["changes"] == {"l_n": {"inserted": 2, "deleted": 0}}
    assert "l_n +2" in zedlog("epochs", "--format", "table").out
    status = zedlog("status")
    assert (status.status, status.out.startswith("ready: ")) == (0, True)
    assert f"running, epoch {newest['epoch']}" in status.out


def test_a_transaction_is_shown_and_cannot_be_cancelled_when_it_is_done(
    zedlog: Zedlog, live: LiveSystem
) -> None:
    with live.client() as client:
        body = {"facts": [{"relation": "shown", "tuples": [["a"]]}]}
        name = client.post("/v1/transactions", json=body).json()["transaction"]
    shown = zedlog("transactions", "show", name)
    assert shown.status == 0
    assert f"{name}: committed" in shown.out
    assert "shown: +1" in shown.out
    late = zedlog("transactions", "cancel", name)
    assert late.status == 1
    assert "already has its outcome: committed" in late.err
    assert "(transaction_not_cancellable)" in late.err


def test_a_change_says_how_it_is_to_be_evaluated_and_epochs_how_it_was(zedlog: Zedlog) -> None:
    zedlog("facts", "add", "b_e(1, 2). b_e(2, 3). b_p(x, y) :- b_e(x, y).")
    told = zedlog("facts", "retract", "b_e(1, 2).", "--strategy", "bootstrap")
    assert "bootstrapped {b_p}, as asked" in told.out
    newest = json.loads(zedlog("epochs", "--limit", "1", "--format", "json").out)[0]
    assert (newest["strategy"], newest["placement"]) == ("bootstrap", "resident")
    assert newest["reason"] == "bootstrapped {b_p}, as asked"
    # Two derivations held; one is left to enumerate.
    assert (newest["derivations"], newest["abandoned"], newest["bootstrap"]) == (1, 0, 2)
    # The width of the console decides where a cell is wrapped.
    shown = zedlog("epochs", "--limit", "1", "--format", "table").out
    assert {"bootstrap,", "resident:", "{b_p},"} <= set(shown.split())
    zedlog("facts", "add", "b_e(3, 4).")
    told = zedlog("facts", "retract", "b_e(2, 3).", "--strategy", "dred")
    assert "over-deleted 1 tuple, re-derived 0" in told.out
    newest = json.loads(zedlog("epochs", "--limit", "1", "--format", "json").out)[0]
    assert (newest["strategy"], newest["placement"]) == ("dred", "resident")
    wrong = zedlog("rules", "add", "b_q(x) :- b_e(x, _).", "--placement", "cloud")
    assert wrong.status != 0
    assert '"auto", "resident" or "spark"' in wrong.err


def test_plan_needs_no_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEDLOG_URL", "http://127.0.0.1:1")
    program = tmp_path / "tc.dl"
    program.write_text("tc(x, y) :- edge(x, y).\ntc(x, z) :- tc(x, y), edge(y, z).\n")
    assert run(("plan", str(program), "--format", "json")) == 0
    circuit = json.loads(capsys.readouterr().out)
    assert [s["relations"] for s in circuit["strata"]] == [["edge"], ["tc"]]
    indexes = {(i["relation"], tuple(i["columns"])) for i in circuit["indexes"]}
    assert indexes == {("edge", (0,)), ("tc", (1,))}
    assert run(("plan", str(program))) == 0
    assert "stratum 1: tc (recursive)" in capsys.readouterr().out
    assert run(("plan", str(program), "--format", "mermaid")) == 0
    assert capsys.readouterr().out.startswith("flowchart")
    program.write_text("p(x) :- !q(x).")
    assert run(("plan", str(program))) == 1
    assert "  p(x) :- !q(x)." in capsys.readouterr().err


def test_no_service_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEDLOG_URL", "http://127.0.0.1:1")
    for command in (["query", "p(x)"], ["status"], ["rules", "list"], ["load", "r", __file__]):
        assert run(command) == 1
        assert "Start one with 'zedlog serve'" in capsys.readouterr().err


def test_every_command_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [["demo"], ["serve"], ["engine"], ["status"], ["load"], ["query"], ["relations"], ["epochs"]]
    commands += [["plan"], ["facts", "add"], ["facts", "retract"]]
    commands += [["rules", "add"], ["rules", "remove"], ["rules", "list"]]
    for command in commands:
        assert run([*command, "--help"]) == 0
        # Not only in the usage line, but as a line of its own.
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert any(line.startswith(f"• zedlog {' '.join(command)}") for line in lines)


def test_wrong_usage_is_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query"]) == 2
    assert run(["no-such-command"]) == 2
    assert run(["query", "p(x)", "--format", "xml"]) == 2
    assert "no-such-command" in capsys.readouterr().err


def test_tokens_are_made_used_and_revoked(zedlog: Zedlog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last test here: while there is a token, the service asks for one."""
    monkeypatch.setenv("ZEDLOG_TOKEN", "")
    zedlog("facts", "add", 't_edge("a", "b").')
    made = zedlog("token", "create", "root", "--role", "admin")
    assert "the database's first token" in made.err
    root = made.out.strip()
    try:
        refused = zedlog("query", "t_edge(x, y)")
        assert refused.status == 1
        assert "asks for a token" in refused.err
        assert "ZEDLOG_TOKEN or --token" in refused.err
        assert zedlog("status").status == 1
        wrong = zedlog("query", "t_edge(x, y)", "--token", root + "x")
        assert "it is wrong, was revoked, or has expired" in wrong.err
        narrow = zedlog("token", "create", "narrow", "--read", "t_other", "--expires", "1h", "--token", root)
        assert "first token" not in narrow.err
        denied = zedlog("query", "t_edge(x, y)", "--token", narrow.out.strip())
        assert denied.status == 1
        assert '"narrow" may not read "t_edge"' in denied.err
        assert "zedlog token list" in denied.err
        assert zedlog("query", "t_edge(x, y)", "--token", root).out == "x,y\na,b\n"
        shown = zedlog("token", "list", "--token", root).out
        assert "t_other" in shown
        assert zedlog("token", "revoke", "narrow", "--token", root).out == "narrow: revoked\n"
        assert "narrow" not in zedlog("token", "list", "--token", root).out
        assert zedlog("token", "revoke", "narrow", "--token", root).status == 1
    finally:
        assert zedlog("token", "revoke", "root", "--token", root).status == 0
    monkeypatch.setenv("ZEDLOG_TOKEN", "")
    assert zedlog("query", "t_edge(x, y)").out == "x,y\na,b\n"
