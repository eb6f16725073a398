"""Command line: `python -m twelve trace` walks the twelve numbers from ids to logits."""

import sys

try:
    from twelve_lab.cli import main
except KeyboardInterrupt:
    sys.exit(130)
except ValueError as error:  # TWELVE_LANG names an unknown language
    sys.exit(f"error: {error}")

sys.exit(main())
