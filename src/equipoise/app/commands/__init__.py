"""The command line: `equipoise COMMAND`, one file per command. Slow packages are imported only when a command runs.

In: the words of a command line. Out: an exit code, which `main` returns: 0 done; 1 done, and a balance does not hold
(`check`); 2 wrong input; 70 a bug in equipoise; 130 interrupted by Ctrl-C; 141 the reader of standard output is gone
(`… | head`); 143 terminated by SIGTERM.

Files without a command of their name hold what several commands share.

Calls: `rivals`, `app/bug_report`, `app/job`, `app/report`, `app/tables`, `app/tuning`, `artifact`, `export`,
`diagnosis`, `estimator`, `reconciliation`, `prediction`, `training`, `data`, `balances`.
"""

from equipoise.app.commands.command_line import main

__all__ = ["main"]
