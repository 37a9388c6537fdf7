"""Models: one small protocol, and an adapter for each provider."""
