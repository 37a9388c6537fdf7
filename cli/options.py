"""Options that several commands share, as typer annotations."""

from __future__ import annotations

from typing import Annotated

import typer

OutputTextJson = Annotated[
    str | None, typer.Option("--output", "-o", metavar="text|json", help="Form of the output (default: text).")
]
OutputList = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="text|json|jsonl", help="A table, one array, or one object a line."),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="PATH", help="Where sessions are kept (default: ~/.local/share/agent)."),
]
Limit = Annotated[str | None, typer.Option("--limit", metavar="N", help="How many, at most (default: 50).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More on standard error; tracebacks of errors.")]
