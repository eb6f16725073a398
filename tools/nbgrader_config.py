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

# The kernels that grade inherit these. An answer that is not started is told softly to a learner,
# and is worth nothing here.
os.environ["TWELVE_STRICT"] = "1"
# At these sizes a second thread only waits, and a class has many notebooks.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TWELVE_DEVICE"] = "cpu"

# Seconds for one cell. An answer that never ends is stopped, and the cells below still count.
c.Execute.timeout = 120
# The kernel would log that its loopback connection is not encrypted.
c.Execute.extra_arguments = [
    "--HistoryManager.hist_file=:memory:",
    "--IPKernelApp.log_level=ERROR",
]
