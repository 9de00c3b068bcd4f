"""`python -m coordinator`."""

import os
import sys

# Read when the library is loaded. It would write a line to standard error for each bad handshake,
# without the peer and without end: whoever reaches the port could fill the log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from coordinator.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
