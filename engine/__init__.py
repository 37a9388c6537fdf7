"""The engine behind `agent`: `engine.app` opens it, `engine.client` says what front ends may do with it."""
