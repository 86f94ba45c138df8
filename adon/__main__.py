"""``python -m adon`` is ``adon``: for whoever knows the interpreter and not where commands are."""

import sys

from adon.cli.main import main

sys.exit(main())
