"""Exercises, one file per lesson: tasks, questions, right answers and mistakes."""
