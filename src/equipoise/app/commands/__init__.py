"""The command line: `equipoise COMMAND`, one file per command. Nothing heavy is imported before a command runs.

Exit codes: 0 done; 1 done, and a balance does not hold (`check`); 2 something is wrong with what was given; 70 a bug in
equipoise; 130 Ctrl-C; 141 nobody reads what is said (`… | head`); 143 SIGTERM.
"""

from equipoise.app.commands.app import main

__all__ = ["main"]
