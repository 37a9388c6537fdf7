"""Dispatch: which run may go, and taking each to its one completion (design, 3)."""
