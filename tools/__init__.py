"""Programs that build the course from its sources."""

import sys

# nbformat imports jsonschema, which would spend two seconds building a grammar for IRIs.
sys.modules.setdefault("rfc3987_syntax", None)
