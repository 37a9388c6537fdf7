"""The console entry: the fewest imports, one wall, and a direct exit after the last write.

Collecting garbage while importing, and taking the interpreter apart at the end, would be a third of a short run.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line of this process and end it."""
    gc.disable()
    if sys.argv[1:] == ["--version"]:
        _leave(_print_version())
    from cli.interrupt import exit_on_signals
    from cli.streams import fill_missing

    exit_on_signals()
    fill_missing()
    from cli.app import build_root

    _leave(build_root().main(prog_name="agent", standalone_mode=False))


def _print_version() -> int:
    from cli import VERSION

    try:
        os.write(1, f"agent {VERSION}\n".encode())
    except BrokenPipeError:
        return 141
    except OSError as error:
        from cli.streams import say_error

        say_error(f"cannot write to standard output: {error.strerror}")
        return 1
    return 0


def _leave(code: int) -> None:
    """End the process at once: everything is written and saved by now. `AGENT_PLAIN_EXIT=1` is for coverage."""
    for stream in (sys.stdout, sys.stderr):
        # Only argument parsing (help, completion scripts) goes through these buffers.
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = code or (1 if stream is sys.stdout else 0)
    if os.environ.get("AGENT_PLAIN_EXIT") == "1":
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    main()
