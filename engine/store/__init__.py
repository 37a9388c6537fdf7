"""The store: the truth about sessions, messages and runs (design, 7)."""
