"""Settings of the course for nbgrader, which reads this file in the folder that it is started in.

It may be changed: `make course` renews it only as long as it is as it was written.
"""

import os
import sys

c = get_config()  # noqa: F821 (nbgrader puts it there)

c.CourseDirectory.course_id = "twelve"
# What stands in place of a solution, as in the notebooks themselves.
c.ClearSolutions.code_stub = {"python": "# Your answer goes here."}

# nbgrader calls alembic, which lies beside the Python that runs it, for a new gradebook.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]

# `make course` writes here where the code of the course lies.
sys.path.append("CODE")

# At these sizes a second thread only waits, and a class has many notebooks.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TWELVE_DEVICE"] = "cpu"

# What a student may do to a notebook is undone first; then it runs behind walls, and its checks are
# judged in front of them: see classroom/grading.py.
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "classroom.grading.Restore",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "classroom.grading.Grade",
    "nbgrader.preprocessors.IgnorePattern",
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
# What is collected may hold no links, and be no larger than this (kB).
c.ExchangeFactory.collect = "classroom.grading.Collect"
c.CourseDirectory.max_file_size = 5000

# Seconds for one cell, and for one notebook. An answer that never ends is stopped, and the cells
# below still count.
c.Grade.timeout = 120
c.Grade.total = 300
c.Grade.extra_arguments = [
    "--HistoryManager.hist_file=:memory:",
    "--IPKernelApp.log_level=ERROR",
]
