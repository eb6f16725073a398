"""Command line: `python -m twelve trace` walks the twelve numbers from ids to logits."""

import sys

try:
    from twelve_lab.cli import main
except KeyboardInterrupt:
    sys.exit(130)

sys.exit(main())
