"""`agent cancel`: stop a run or all of a session, and say what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli import wiring
from cli.options import DataDir, Verbose
from cli.parse import parse_seconds

if TYPE_CHECKING:
    from engine.client import Client

WAIT_SECONDS = 10.0
"""How long a stopped run may take to wind up before the command says that it is still at it."""


def cancel(
    run_id: Annotated[str | None, typer.Argument(metavar="RUN_ID", help="The run to stop.", show_default=False)] = None,
    session: Annotated[
        str | None, typer.Option("--session", "-s", metavar="ID", help="Stop all of this session instead.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the end (default: 10)."),
    ] = None,
    data_dir: DataDir = None,
    is_verbose: Verbose = False,
) -> int:
    """Stop a run and wait until it has wound up; runs that wait behind it keep their place.

    \b
    Examples:
      agent cancel nightly-42
      agent cancel --session ses-01jds8q6k3

    \b
    Exit codes: 0 stopped, or it had ended already; 2 no such run; 124 still stopping after --timeout.
    """
    from cli.runs import check_run_id
    from engine.errors import UsageError

    if (run_id is None) == (session is None):
        raise UsageError("name a run, or a session with --session ID: one of the two")
    seconds = parse_seconds("--timeout", timeout, WAIT_SECONDS)
    wiring.set_up_logging(is_verbose=is_verbose)
    if run_id is not None:
        target = run_id
        check_run_id(target)
        return wiring.with_client(data_dir, lambda client: _cancel_run(client, target, seconds))
    return wiring.with_client(data_dir, lambda client: _cancel_session(client, session or "", seconds))


async def _cancel_run(client: Client, run_id: str, seconds: float) -> int:
    from engine.client import CancelResult

    result = await client.cancel_run(run_id)
    if result is CancelResult.ALREADY_ENDED:
        record = await client.find_run(run_id)
        state = f" ({record.state})" if record is not None else ""
        return await _report(f"run {run_id}: already ended{state}")
    return await _report_end(client, (run_id,), seconds)


async def _cancel_session(client: Client, session_id: str, seconds: float) -> int:
    hit = await client.cancel(session_id)
    stopped = (*hit.active, *hit.accepted, *hit.dropped)
    if not stopped:
        return await _report(f"session {session_id}: nothing to cancel")
    return await _report_end(client, stopped, seconds)


async def _report_end(client: Client, run_ids: tuple[str, ...], seconds: float) -> int:
    """Say of each run how it ended, once it has."""
    import anyio

    from cli import exit_code, streams

    lines = []
    with anyio.move_on_after(seconds):
        for run_id in run_ids:
            completion = await client.wait(run_id)
            late = "" if completion.cancelled else " before the cancel reached it"
            lines.append(f"run {run_id}: {completion.status}{late}")
    if lines:
        await _report("\n".join(lines))
    if len(lines) == len(run_ids):
        return exit_code.OK
    waiting = run_ids[len(lines)]
    streams.say_error(
        f"run {waiting} is still stopping after {seconds:g} s: `agent wait {waiting}` tells when it ended"
    )
    return exit_code.TIMED_OUT


async def _report(text: str) -> int:
    from cli import exit_code, streams

    await streams.write(f"{text}\n".encode())
    return exit_code.OK
