"""Application: job files, tables in files, hyperparameter search, reports, and the command line above them.

In: the words of a command line and the files that they name. Out: model files, tables, reports, and what commands
print. The rooms inside are `job`, `tables`, `tuning` and `report`, and the file `bug_report` with the exit codes of
errors; `commands` stands above them and is imported by its own name, `equipoise.app.commands`.

Calls: see the rooms inside; `bug_report` calls no room.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
