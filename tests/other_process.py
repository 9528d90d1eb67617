"""The same expression in another process, where sets and dictionaries of text have another order."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import hashlib, importlib.util, os, sys
sys.path[:0] = [{root!r}, {tests!r}]
spec = importlib.util.spec_from_file_location("tests_of_other_process", {path!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(hashlib.sha256(str(eval({expression!r}, vars(module))).encode()).hexdigest())
"""


def digest(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def digest_elsewhere(path: str, expression: str) -> str:
    """The digest of an expression over a test module's names, from a process with another hash seed."""
    tests = Path(__file__).parent
    program = PROGRAM.format(root=str(tests.parent), tests=str(tests), path=path, expression=expression)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONHASHSEED": seed}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()
