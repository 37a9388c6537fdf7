"""`python -m tests.loopback --text "..."`: prints the provider's URL and serves until its standard input ends."""

from __future__ import annotations

import argparse
import sys

from tests.loopback import LoopbackProvider, answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.loopback")
    parser.add_argument("--text", default="Hello from the loopback provider.", help="what every request is answered")
    options = parser.parse_args()
    with LoopbackProvider(default=answer(*options.text.splitlines(keepends=True))) as provider:
        sys.stdout.write(f"{provider.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
