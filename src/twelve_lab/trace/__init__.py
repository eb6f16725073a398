"""Runs, watched: every annotated tensor by name, axes and value."""
