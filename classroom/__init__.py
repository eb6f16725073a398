"""The course for a class: a server, accounts, and grading."""
