"""`python -m inferlab.cli`."""

import sys

from inferlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
