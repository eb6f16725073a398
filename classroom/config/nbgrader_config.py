"""Settings of nbgrader for everybody on the server; the folder of the course has its own."""

import os

c = get_config()  # noqa: F821 (nbgrader puts it there)

c.CourseDirectory.course_id = "twelve"
c.Exchange.root = os.environ["TWELVE_EXCHANGE"]
# Only the teacher's server has it.
if course := os.environ.get("TWELVE_COURSE"):
    c.CourseDirectory.root = course
