"""The broker: announces events to whoever listens in this process (design, 5)."""
