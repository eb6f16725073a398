"""nbgrader configuration for all users of the hub; the course folder has its own."""

import os

c = get_config()  # noqa: F821 (defined by nbgrader)

c.CourseDirectory.course_id = "twelve"
c.Exchange.root = os.environ["TWELVE_EXCHANGE"]
# Set only on the teacher's server.
if course := os.environ.get("TWELVE_COURSE"):
    c.CourseDirectory.root = course
