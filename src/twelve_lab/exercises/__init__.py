"""The exercises, one file for each step: tasks, questions, right answers, mistakes."""
