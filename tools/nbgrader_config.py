"""nbgrader configuration of the course; nbgrader reads this file from its working directory.

You may edit this file: `make course` replaces it only if you have not.
"""

import os
import sys

c = get_config()  # noqa: F821 (defined by nbgrader)

c.CourseDirectory.course_id = "twelve"
# Text that replaces each solution, as in the notebooks.
c.ClearSolutions.code_stub = {"python": "# Your answer goes here."}

# To create a gradebook, nbgrader runs alembic, which is installed beside its Python.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]

# `make course` fills in the folder of the course's code.
sys.path.append("CODE")

# Tensors this small do not benefit from a second thread.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TWELVE_DEVICE"] = "cpu"

# First, undo the student's changes to the grading cells. Then run the notebook in a sandbox, and
# judge its checks outside the sandbox: see classroom/grading.py.
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
# A submission must not contain links or files larger than this (kB).
c.ExchangeFactory.collect = "classroom.grading.Collect"
c.CourseDirectory.max_file_size = 5000

# Timeouts in seconds per cell and per notebook. An answer with an infinite loop is interrupted, and
# the cells below it still count.
c.Grade.timeout = 120
c.Grade.total = 300
c.Grade.extra_arguments = [
    "--HistoryManager.hist_file=:memory:",
    "--IPKernelApp.log_level=ERROR",
]
