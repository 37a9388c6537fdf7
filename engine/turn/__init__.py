"""The turn: one run's loop of model calls and tools (design, 6)."""
