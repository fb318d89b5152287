"""llama_cpp cannot be found, and who looked for it is written down.

Every Python that a test without the marker `engine` starts imports this module at its start, because conftest.py puts
the folder on PYTHONPATH. In a subset of the tests that needs no engine, a worker process thus ends at once.
"""

from __future__ import annotations

import os
import sys

TEST, LOOKED_FOR = "INFERLAB_TEST_WITHOUT_ENGINE", "INFERLAB_TEST_LOOKED_FOR_ENGINE"


class NoLlamaCpp:
    """A finder that fails for llama_cpp and leaves every other module to the finders after it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for llama_cpp, after a line in the file that LOOKED_FOR names."""
        if name != "llama_cpp":
            return
        process = " ".join(sys.orig_argv).replace("\n", " ")
        with open(os.environ[LOOKED_FOR], "a", encoding="utf-8") as file:
            file.write(f"{process[:200]}\n")
        raise ModuleNotFoundError(f"{os.environ[TEST]} needs llama_cpp: mark it with `engine` (CONTRIBUTING.md)")


if TEST in os.environ:
    sys.meta_path.insert(0, NoLlamaCpp)
