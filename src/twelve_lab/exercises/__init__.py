"""The exercises, one file a step: tasks, questions, right answers, mistakes."""
