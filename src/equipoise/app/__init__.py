"""App: job files, tables in files, tuning, reports and the command line.

In: what users type and the files they name. Out: model files, tables, reports and sentences on the screen. Its folders
are `job`, `tables`, `tuning`, `report` and, above them, `commands`.

Calls: every room; only `commands` calls `rivals`.
"""
