"""Programs that build the course from its sources."""

import sys

# nbformat imports jsonschema, which would build a grammar for addresses in two seconds.
sys.modules.setdefault("rfc3987_syntax", None)
