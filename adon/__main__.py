"""``python -m adon`` is ``adon``: for systems where the command is not on PATH."""

import sys

from adon.cli.main import main

sys.exit(main())
