"""Tools: one small protocol, and one file for each family."""
