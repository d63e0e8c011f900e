"""How long the tests with random cases go on, which scripts/fuzz makes longer."""

import os

TIMES = int(os.environ.get("PAGEWHEEL_FUZZ", "1"))  # as many cases as in the suite
