"""App: job files, tables in files, tuning, reports and the command line.

In: what users type and the files they name. Out: model files, tables, reports and sentences on the screen. Its folders
are `job`, `tables`, `tuning`, `report` and, above them, `commands`.

Calls: every room; only `commands` calls `rivals`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
