"""A run: every annotated tensor by name, axes and value."""
