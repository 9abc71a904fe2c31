"""Every error that a user of Zedlog can meet, in one tree.

Each class has a stable `code` (snake case; clients may switch on it) and a `detail` of JSON-ready values that a program
needs in order to react. Errors about program text also carry a `Span` and print the offending line with a caret. The
service maps each class to one HTTP status; a test walks this tree and fails when a class is not mapped. Bugs of Zedlog
itself are assertions, never one of these classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

_SHOWN = 200
"""Characters of a value that a message shows."""


def shown(value: object, limit: int = _SHOWN) -> str:
    """A value as messages show it: its JSON text, which for values of the language is also their program text.

    For example `"ann"`, `true`, `null`, `[1, "a"]`; a long value is cut off. An invisible character, such as a control
    character, is written as an escape. A value that JSON cannot express (an object that a user of the library passed)
    is shown as Python shows it.
    """
    if isinstance(value, str):
        cut, text = len(value) > limit, json.dumps(value[:limit], ensure_ascii=False)
    else:
        text = _text(value)
        cut, text = len(text) > limit, text[:limit]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return f"{text}..." if cut else text


def _text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return repr(value)
    except (ValueError, RecursionError):
        # Python refuses to write an integer of more than 4,300 digits.
        return f"a value of the type {type(value).__name__} that is too large to show"


def did_you_mean(names: list[str]) -> str:
    """A sentence that suggests the names, to be appended to a message; empty when there are no names."""
    return f" Did you mean {' or '.join(map(shown, names))}?" if names else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A region of program text. Lines and columns count from 1, in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class ZedlogError(Exception):
    """An error that has no code of its own."""

    code: ClassVar[str] = "zedlog_error"

    def __init__(self, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail: dict[str, Any] = detail

    def problem(self) -> dict[str, Any]:
        """The error as JSON-ready data: `code`, `message` and the detail's fields."""
        return {"code": self.code, "message": str(self), **self.detail}


class ProgramError(ZedlogError):
    """Something is wrong with program text; `rendered` shows the line with a caret under the fault."""

    code = "program_error"

    def __init__(
        self, message: str, *, text: str | None = None, span: Span | None = None, **detail: Any
    ) -> None:
        super().__init__(message, **detail)
        self.span = span
        if span is not None:
            self.detail["line"], self.detail["column"] = span.line, span.column
            if text is not None:
                # Spans count line feeds only; str.splitlines would also break at form feeds and the like.
                lines = text.split("\n")
                self.detail["source"] = lines[min(span.line, len(lines)) - 1].removesuffix("\r")

    def __str__(self) -> str:
        if self.span is None:
            return self.message
        where = f"line {self.span.line}, column {self.span.column}: {self.message}"
        source = self.detail.get("source")
        if source is None:
            return where
        width = self.span.end_column - self.span.column if self.span.end_line == self.span.line else 1
        # Tabs stay tabs, so that the caret stands under the fault whatever their width.
        pad = "".join("\t" if c == "\t" else " " for c in source[: self.span.column - 1])
        return f"{where}\n  {source}\n  {pad}{'^' * max(1, width)}"

    def problem(self) -> dict[str, Any]:
        # The message alone; line, column and source are fields of their own.
        return {"code": self.code, "message": self.message, "rendered": str(self), **self.detail}


class ProgramSyntaxError(ProgramError):
    """The text is not a program; the message says what was expected."""

    code = "syntax_error"


class ArityError(ProgramError):
    """An atom or a tuple has a different number of columns than its relation."""

    code = "arity_mismatch"


class TypeMismatchError(ProgramError):
    """A value has a different type than the column that it stands in, or than what it is compared with."""

    code = "type_mismatch"


class UnsafeRuleError(ProgramError):
    """A variable of the head is not bound by any atom of the body, or a fact holds something other than constants."""

    code = "unsafe_rule"


class DeclarationError(ProgramError):
    """A declaration contradicts an earlier one, or itself."""

    code = "declaration_conflict"


class UnknownPrefixError(ProgramError):
    """A prefixed name has a prefix that neither the text nor the database declares."""

    code = "unknown_prefix"


class StratificationError(ProgramError):
    """A relation depends on its own negation or aggregate; `detail` names the cycle, relation by relation."""

    code = "not_stratified"


class UnsupportedFeatureError(ProgramError):
    """The text is understood, but this version cannot evaluate it."""

    code = "unsupported_feature"


class InvalidRequestError(ZedlogError):
    """The request is not of the documented form."""

    code = "invalid_request"


class InvalidValueError(InvalidRequestError):
    """A value is not one that a column can have: null, a nested list, a number outside of 64 bits, NaN, infinity."""

    code = "invalid_value"


class InvalidWeightError(InvalidRequestError):
    """A weight is zero, not an integer, or not between -(2^63 - 1) and 2^63 - 1."""

    code = "invalid_weight"


class InvalidCursorError(InvalidRequestError):
    """A page cursor is damaged, or belongs to another query."""

    code = "invalid_cursor"


class InvalidTokenError(InvalidRequestError):
    """An epoch token is damaged, or belongs to another database."""

    code = "invalid_token"


class BodyTooLargeError(ZedlogError):
    """The request's body is over the size limit."""

    code = "body_too_large"


class UnknownRelationError(ZedlogError):
    """No declaration, fact or rule mentions the relation."""

    code = "unknown_relation"


class UnknownColumnError(ZedlogError):
    """The relation has no column of that name."""

    code = "unknown_column"


class UnknownRuleError(ZedlogError):
    """There is no rule with that id."""

    code = "unknown_rule"


class UnknownTransactionError(ZedlogError):
    """There is no transaction with that id, or its result is no longer kept."""

    code = "unknown_transaction"


class EpochNotRetainedError(ZedlogError):
    """The epoch is in the future, or so old that its snapshot is no longer kept."""

    code = "epoch_not_retained"


class NotDeclaredError(ZedlogError):
    """The relation whose declaration is to be withdrawn is not declared."""

    code = "not_declared"


class NegativeWeightError(ZedlogError):
    """The transaction would take the weight of a fact or a rule below zero. `detail` names them."""

    code = "negative_weight"


class UnknownSourceError(ZedlogError):
    """No facts of this source exist in the epoch. `detail` has the nearest names."""

    code = "unknown_source"


class SourcedFactError(ZedlogError):
    """The transaction would take away facts that a source asserts, without that source. `detail` names them."""

    code = "asserted_by_source"


class IdempotencyConflictError(ZedlogError):
    """The same Idempotency-Key was used before with a different body."""

    code = "idempotency_conflict"


class WeightOverflowError(ZedlogError):
    """A weight, or the number of derivations of a tuple, would no longer fit into 64 bits."""

    code = "weight_overflow"


class EvaluationError(ZedlogError):
    """A computation in a rule has no value: overflow, a division by zero, a bad conversion or pattern.

    `detail` has the operation, its operands, the term, the reason, and the binding: the values of the variables.
    """

    code = "evaluation_error"


class BudgetExceededError(ZedlogError):
    """The evaluation outgrew its budget. `detail` names the stratum, its rules and the relation that grew."""

    code = "budget_exceeded"


class FixpointNotReachedError(ZedlogError):
    """A recursive count, sum or mean still changes at its `max_height`, or a recursive min or max never settles.

    `detail` has the relation, the group, its values and the height. For a count, sum or mean, the values are the last
    two, and the limits are there as well; for a min or max, they are all the values between which it alternates.
    """

    code = "fixpoint_not_reached"


class EvaluationCancelledError(ZedlogError):
    """The caller no longer wants the evaluation; over HTTP, the client has disconnected."""

    code = "evaluation_cancelled"


class TransactionCancelledError(ZedlogError):
    """The transaction was cancelled before its epoch was committed; it changed nothing."""

    code = "cancelled"


class TransactionNotCancellableError(ZedlogError):
    """The transaction already has its outcome. The opposite transaction undoes what it committed."""

    code = "transaction_not_cancellable"


class InternalError(ZedlogError):
    """A fault of Zedlog itself. Nothing was changed; the log of the process that failed has the details."""

    code = "internal_error"


class ConstraintViolationError(ZedlogError):
    """After the transaction, a relation that is declared a `constraint` would hold tuples. `detail` has the first of
    them.
    """

    code = "constraint_violated"


class StorageUnavailableError(ZedlogError):
    """The Redis server cannot be reached. A write may be sent again with the same Idempotency-Key."""

    code = "storage_unavailable"


class EngineUnavailableError(ZedlogError):
    """No engine process serves this database now; the log keeps every acknowledged transaction."""

    code = "engine_unavailable"


class SparkUnavailableError(ZedlogError):
    """Spark cannot be started or reached, or could not run a query; nothing changed. The message says what to do."""

    code = "spark_unavailable"


class SparkStateLostError(SparkUnavailableError):
    """Executors, or the whole Spark session, took state with them that nothing else holds; nothing was applied.

    The engine process then derives the state again from the snapshot, without help, and continues.
    """

    code = "spark_state_lost"


class CheckpointUnavailableError(SparkUnavailableError):
    """The checkpoint directory cannot be written, or is not shared by driver and executors; nothing was applied."""

    code = "checkpoint_unavailable"


class PathNotAllowedError(ZedlogError):
    """A path of an import or an export lies outside of the allowed root, or its scheme is not allowed."""

    code = "path_not_allowed"


class SourceUnreadableError(ZedlogError):
    """A file of an import is missing, damaged, or not of the format that was asked for. Nothing was imported."""

    code = "source_unreadable"


class SourceUnreachableError(ZedlogError):
    """No broker, or no database, answered in time. Nothing was imported."""

    code = "source_unreachable"


class SourceRefusedError(ZedlogError):
    """A broker or a database refuses the credentials. Nothing was imported."""

    code = "source_refused"


class PackageMissingError(ZedlogError):
    """Spark was started without the package that a format or a database needs. `detail` names it."""

    code = "package_missing"


class StreamGapError(ZedlogError):
    """Messages after a stream's position are no longer there, or its topic was made anew. Nothing was imported."""

    code = "stream_gap"


class HeaderMismatchError(ZedlogError):
    """The columns that a file names are not the expected ones. `detail` has both."""

    code = "header_mismatch"


class BadRowsError(ZedlogError):
    """Rows of an import cannot be read or do not fit the relation; nothing was imported. `detail` shows some."""

    code = "bad_rows"


class BatchUnreadableError(ZedlogError):
    """A batch file that the log names is missing or is not the one that was written; its transaction is refused."""

    code = "batch_unreadable"


class BulkStorageError(ZedlogError):
    """The files of an import or an export cannot be written: no space, no permission. Nothing was changed."""

    code = "bulk_storage"


class TargetExistsError(ZedlogError):
    """An export would write over something that exists; `overwrite` allows it."""

    code = "target_exists"


class UnknownAuditError(ZedlogError):
    """There is no audit with that id, or it is no longer kept."""

    code = "unknown_audit"


class UnknownJobError(ZedlogError):
    """There is no job with that id, or it is no longer kept."""

    code = "unknown_job"


class JobNotCancellableError(ZedlogError):
    """The job has ended, or its transaction is already in the log and stays there."""

    code = "job_not_cancellable"


class JobCancelledError(ZedlogError):
    """The job was cancelled; it left nothing behind."""

    code = "job_cancelled"


class JobAbandonedError(ZedlogError):
    """The engine ended several times while it ran the job, so the job is not tried again. It left nothing behind."""

    code = "job_abandoned"


class GapError(ZedlogError):
    """Changes after the asked-for epoch are no longer kept. `detail` says what still is there."""

    code = "gap"


class ChangeTooLargeError(ZedlogError):
    """An epoch changed more tuples than one event may have; read the state of that epoch instead."""

    code = "change_too_large"


class MeaningChangedError(ZedlogError):
    """The columns of a relation changed so that the feed would be about something else from that epoch on."""

    code = "meaning_changed"


class ListenerTooSlowError(ZedlogError):
    """The listener did not take what it was sent for too long; it can come back with its last position."""

    code = "listener_too_slow"


class LimitReachedError(ZedlogError):
    """There are as many listeners, maintained queries or subscriptions as are allowed."""

    code = "limit_reached"


class UnknownSubscriptionError(ZedlogError):
    """There is no subscription of that name."""

    code = "unknown_subscription"


class SubscriptionConflictError(ZedlogError):
    """There is a subscription of that name that is about something else."""

    code = "subscription_conflict"


class SparqlSyntaxError(ProgramError):
    """The text is not a query or an update of SPARQL 1.1; line and column say where it ceases to be one."""

    code = "sparql_syntax"


class SparqlUnsupportedError(ProgramError):
    """SPARQL has this, but it has no meaning here: other graphs than the relation, other services, or a relation whose
    tuples are not triples.
    """

    code = "sparql_unsupported"


class SparqlUnavailableError(ZedlogError):
    """The store that answers SPARQL is not there: it is being filled, it may not be made, or its process has ended."""

    code = "sparql_unavailable"


class InvalidBackupError(ZedlogError):
    """The file is not a backup, or it is damaged; `detail` has the member that is. Nothing was restored."""

    code = "backup_invalid"


class NewerBackupError(ZedlogError):
    """The backup has a format that only a newer version of Zedlog can read. Nothing was restored."""

    code = "backup_newer"


class NotEmptyError(ZedlogError):
    """A backup is restored only into a database without facts, rules and declarations."""

    code = "database_not_empty"


class EngineLeaseError(ZedlogError):
    """Another engine process is the single writer of this database."""

    code = "engine_lease_held"


class CorruptLogError(ZedlogError):
    """An entry of the epoch log cannot be read. The engine stops; it never skips."""

    code = "corrupt_log"


class CorruptSnapshotError(ZedlogError):
    """A part of the snapshot is missing or damaged."""

    code = "corrupt_snapshot"


class ServerStartError(ZedlogError):
    """The embedded Redis-compatible server did not start."""

    code = "server_start"
