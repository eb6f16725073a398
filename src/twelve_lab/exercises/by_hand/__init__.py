"""Exercises of the by-hand pages, one file per page."""
