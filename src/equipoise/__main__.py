"""`python -m equipoise`: the command line, for when its script is not on the path."""

import sys

from equipoise.app.commands import main

if __name__ == "__main__":
    sys.exit(main())
