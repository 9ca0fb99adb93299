"""``python -m matmill``: the same as the ``matmill`` console command."""

import sys

from matmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
