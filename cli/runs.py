"""`agent wait`, `agent show`, `agent runs`: what is known of runs, wherever they go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli import wiring
from cli.options import DataDir, Limit, OutputList, OutputTextJson, Quiet, Verbose
from cli.parse import parse_choice, parse_count, parse_seconds

if TYPE_CHECKING:
    from engine.client import Client

RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.", show_default=False)]
LIMIT = 50


def wait(
    run_id: RunId,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="SECONDS", help="Wait no longer; exit code 124 (default: wait).")
    ] = None,
    output: OutputTextJson = None,
    data_dir: DataDir = None,
    is_quiet: Quiet = False,
    is_verbose: Verbose = False,
) -> int:
    """Wait for a run, whichever process it is in, print its result and exit as it did.

    A signal ends the waiting, not the run.

    \b
    Examples:
      agent wait nightly-42
      agent wait nightly-42 --timeout 60 --output json
    """
    seconds = None if timeout is None else parse_seconds("--timeout", timeout, 0.0)
    is_json = parse_choice("--output", output, ("text", "json")) == "json"
    check_run_id(run_id)
    wiring.set_up_logging(is_verbose=is_verbose)
    return wiring.with_client(data_dir, lambda client: _wait(client, run_id, seconds, is_json=is_json))


async def _wait(client: Client, run_id: str, seconds: float | None, *, is_json: bool) -> int:
    import anyio

    from cli import exit_code, output_json, output_text, streams

    completion = None
    with anyio.move_on_after(seconds):
        completion = await client.wait(run_id)
    if completion is None:
        streams.say_error(f"run {run_id} has not ended in {seconds:g} s: it goes on; `agent cancel {run_id}` stops it")
        return exit_code.TIMED_OUT
    await streams.write(output_json.json_line(completion) if is_json else output_text.answer_bytes(completion))
    output_text.say_outcome(completion)
    return completion.exit_code


def show(run_id: RunId, output: OutputTextJson = None, data_dir: DataDir = None, is_verbose: Verbose = False) -> int:
    """Show what is on record of a run: prompt, state, answer, error, usage.

    \b
    Examples:
      agent show nightly-42
      agent show nightly-42 --output json | jq .completion.usage
    """
    is_json = parse_choice("--output", output, ("text", "json")) == "json"
    check_run_id(run_id)
    wiring.set_up_logging(is_verbose=is_verbose)
    return wiring.with_client(data_dir, lambda client: _show(client, run_id, is_json=is_json))


async def _show(client: Client, run_id: str, *, is_json: bool) -> int:
    from cli import output_json, output_text, streams
    from engine.errors import UnknownRunError

    record = await client.find_run(run_id)
    if record is None:
        raise UnknownRunError(run_id)
    if is_json:
        await streams.write(output_json.json_line(output_json.record_fields(record)))
    else:
        await streams.write(output_text.record_text(record).encode("utf-8", "replace"))
    return 0


def runs(
    session: Annotated[str | None, typer.Option("--session", "-s", metavar="ID", help="Of this session only.")] = None,
    limit: Limit = None,
    output: OutputList = None,
    data_dir: DataDir = None,
    is_verbose: Verbose = False,
) -> int:
    """List runs, newest first.

    \b
    Examples:
      agent runs --limit 5
      agent runs --output jsonl | jq -r 'select(.state == "failed") | .run_id'
    """
    count = parse_count("--limit", limit, LIMIT)
    form = parse_choice("--output", output, ("text", "json", "jsonl"))
    wiring.set_up_logging(is_verbose=is_verbose)
    return wiring.with_client(data_dir, lambda client: _runs(client, session, count, form))


async def _runs(client: Client, session_id: str | None, limit: int, form: str) -> int:
    from cli import output_json, output_text, streams
    from engine.errors import UnknownSessionError

    if session_id is not None and await client.find_session(session_id) is None:
        raise UnknownSessionError(session_id)
    records = await client.list_runs(session_id=session_id, limit=limit)
    if form == "text":
        await streams.write(output_text.runs_table(records).encode("utf-8", "replace"))
    else:
        await streams.write(output_json.listing([output_json.record_fields(each) for each in records], form))
    return 0


def check_run_id(run_id: str) -> None:
    """Refuse what cannot be a run's id.

    Raises:
        IllegalIdError: it cannot.
    """
    from cli.parse import clean_argument
    from engine.errors import IllegalIdError
    from engine.ids import is_legal_id

    if not is_legal_id(run_id):
        raise IllegalIdError("run", clean_argument(run_id))
