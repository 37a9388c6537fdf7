"""Text for people: the answer on standard output, what became of the run on standard error, records as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.streams import one_line, say_error
from engine.lifecycle import RunState

if TYPE_CHECKING:
    from engine.run import RunComplete, RunRecord, SessionRecord


def answer_bytes(completion: RunComplete) -> bytes:
    """The answer, or what there was of it, ending in one line break; nothing at all if there was nothing."""
    text = completion.text
    if not text:
        return b""
    return (text if text.endswith("\n") else text + "\n").encode("utf-8", "replace")


def say_outcome(completion: RunComplete) -> None:
    """Say in one line what became of a run that has no whole answer; silent about one that has."""
    if completion.exit_code == 0:
        return
    kept = "; what there was of the answer is on standard output" if completion.text else ""
    if completion.error:
        say_error(f"{completion.error}{kept}")
    else:
        state = completion.finish_reason if completion.status is RunState.COMPLETED else completion.status
        say_error(f"run {completion.run_id}: {state}{kept}")


def runs_table(records: Sequence[RunRecord]) -> str:
    """Runs, one a line."""
    rows = [
        (
            record.run_id or "-",
            record.state.value,
            str(record.completion.exit_code) if record.completion else "-",
            record.session_id,
            when(record.created_at),
            _cut(record.prompt.text, 40),
        )
        for record in records
    ]
    return table(("RUN", "STATE", "EXIT", "SESSION", "ACCEPTED", "PROMPT"), rows)


def sessions_table(records: Sequence[SessionRecord]) -> str:
    """Sessions, one a line."""
    rows = [
        (record.session_id, str(record.runs), when(record.updated_at), _cut(record.title, 40), record.cwd)
        for record in records
    ]
    return table(("SESSION", "RUNS", "UPDATED", "TITLE", "DIRECTORY"), rows)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns padded to their widest cell, the last one left ragged."""
    cells = [head, *(tuple(one_line(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in cells
    ]
    return "\n".join(lines) + "\n"


def record_text(record: RunRecord) -> str:
    """All that is on record of a run: fields first, then prompt and answer as they are."""
    done = record.completion
    fields = [
        ("run", record.run_id or "-"),
        ("session", record.session_id),
        ("state", record.state.value),
        ("model", record.model or "-"),
        ("accepted", f"{when(record.created_at)} (sequence {record.accept_seq})"),
        ("started", when(record.started_at)),
        ("ended", when(record.ended_at)),
        ("prompt hash", record.prompt_hash[:12]),
        ("files", ", ".join(part.name for part in record.prompt.files) or "-"),
    ]
    if done is not None:
        fields += _outcome_fields(done)
    lines = [f"{name + ':':<14}{one_line(value)}" for name, value in fields]
    lines += ["", "prompt:", record.prompt.text]
    if done is not None and done.text:
        lines += ["", "answer:", done.text]
    return "\n".join(lines) + "\n"


def when(moment: str | None) -> str:
    """A stored moment without its fraction, `-` for none."""
    return "-" if not moment else moment.partition(".")[0].removesuffix("Z") + "Z"


def _outcome_fields(done: RunComplete) -> list[tuple[str, str]]:
    usage = done.usage
    fields = [
        ("finish", done.finish_reason.value),
        ("exit code", str(done.exit_code)),
        ("error", done.error or "-"),
        ("usage", f"{usage.input_tokens} tokens in ({usage.cached_tokens} cached), {usage.output_tokens} out"),
        ("cost", "unknown" if done.cost is None else f"{done.cost:.4f} US dollars"),
        ("steps", f"{done.steps}, retries {done.retries}"),
    ]
    for name, values in (("changed", done.files_changed), ("denied", done.denials), ("unfinished", done.unfinished)):
        if values:
            fields.append((name, ", ".join(values)))
    return fields


def _cut(text: str, length: int) -> str:
    line = one_line(text[: length * 4])
    return line if len(line) <= length else line[: length - 3] + "..."
