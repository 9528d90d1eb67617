"""Cases: synthetic tables to compare methods on, each made by seeded code and described by a job file.

In: the name of a case, a seed and a size, or a job file with its table. Out: a `Case` with its tables and splits, or
the files of one; `battery` is the paper's cell.

Calls: `app/job`, `training`, `data`, `balances`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
