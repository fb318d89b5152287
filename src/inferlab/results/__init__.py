"""Results that a reader has: rates of llama-bench or of this library, read, bounded, compared and made shareable.

`log_memory` plans the load of a log again, and compares the plan with what the log prints.

All of it stands on bare Python, so that a page can read them in the browser.
"""

from __future__ import annotations

from inferlab.results.compare import ResultPairs, compare
from inferlab.results.reading import ResultFile, read_results
from inferlab.results.result import Result

__all__ = ["Result", "ResultFile", "ResultPairs", "compare", "read_results"]
