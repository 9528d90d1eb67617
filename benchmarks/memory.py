"""How much memory a benchmark took."""

import resource
import sys


def peak_mb() -> float:
    """The most memory this process ever held, in megabytes; it never falls."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
