"""The tasks and questions of all steps, in the order of the course."""

from importlib import import_module

from twelve_lab import course
from twelve_lab.check.declare import Question, Target

STEPS = tuple(
    import_module(f"twelve_lab.exercises.{step.stem}") for step in course.STEPS if step.exercises
)

TARGETS: dict[str, Target] = {target.name: target for step in STEPS for target in step.TARGETS}


def _exercises() -> dict[str, Target | Question]:
    """Put each exercise under the number of the notebook whose stem its file has."""
    found: dict[str, Target | Question] = {}
    for module in STEPS:
        number = course.step_of(module.__name__.rpartition(".")[2])
        for one in (*module.QUESTIONS, *module.TARGETS):
            found[f"{number}-{one.name.replace('_', '-')}"] = one
    return found


EXERCISES = _exercises()
