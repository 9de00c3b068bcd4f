"""`python -m coordinator`."""

import sys

from coordinator.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
