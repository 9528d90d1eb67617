"""Every method on the same rows: trials that are kept, their summary, and the page and figures that tell of it."""

from equipoise.rivals.comparison.comparison import Comparison, compare, write_results
from equipoise.rivals.comparison.document import page

__all__ = ["Comparison", "compare", "page", "write_results"]
