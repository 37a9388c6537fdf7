"""`agent sessions`: the conversations there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import wiring
from cli.options import DataDir, Limit, OutputList, Verbose
from cli.parse import parse_choice, parse_count

if TYPE_CHECKING:
    from engine.client import Client

LIMIT = 50


def sessions(
    limit: Limit = None, output: OutputList = None, data_dir: DataDir = None, is_verbose: Verbose = False
) -> int:
    """List sessions, latest activity first.

    \b
    Examples:
      agent sessions
      agent run --session "$(agent sessions --limit 1 --output jsonl | jq -r .session_id)" "Go on."
    """
    count = parse_count("--limit", limit, LIMIT)
    form = parse_choice("--output", output, ("text", "json", "jsonl"))
    wiring.set_up_logging(is_verbose=is_verbose)
    return wiring.with_client(data_dir, lambda client: _sessions(client, count, form))


async def _sessions(client: Client, limit: int, form: str) -> int:
    from cli import output_json, output_text, streams

    records = await client.list_sessions(limit=limit)
    if form == "text":
        await streams.write(output_text.sessions_table(records).encode("utf-8", "replace"))
    else:
        await streams.write(output_json.listing(records, form))
    return 0
