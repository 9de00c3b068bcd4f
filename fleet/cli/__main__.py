"""`python -m fleet.cli` is `epp-fleet`."""

import sys

from fleet.cli.main import main

sys.exit(main())
