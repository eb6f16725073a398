"""Command line: `python -m twelve trace` walks the twelve numbers from ids to logits."""

import sys

from twelve_lab.cli import main

sys.exit(main())
