"""The course in another language: catalogues, the pages built from them, and their rules."""
