"""`python -m epp_worker`."""

import sys

from epp_worker.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
