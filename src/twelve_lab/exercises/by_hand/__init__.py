"""The exercises of the pages to write by hand: one file for each page."""
