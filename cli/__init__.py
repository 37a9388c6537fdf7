"""The command line of `agent`: parses, wires, renders and exits; it holds no run logic."""

VERSION = "0.1.0"
"""The version, here so that `agent --version` imports nothing; a test holds it to `pyproject.toml`."""
