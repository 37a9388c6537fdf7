"""The command line of `agent`: parses, wires, renders and exits; it holds no run logic."""
