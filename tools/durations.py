"""How long each part of `make test` took, in one line: python tools/durations.py FOLDER.

FOLDER holds a junit file of pytest for each part. What ran between them, such as `make book`, is the rest.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree


def by_part(folder: Path) -> dict[str, float]:
    """Seconds of each part in the order of their starts, then of the rest."""
    suites = {path.stem: ElementTree.parse(path).find("testsuite") for path in folder.glob("*.xml")}
    began = {name: datetime.fromisoformat(suite.get("timestamp")) for name, suite in suites.items()}
    parts = {name: float(suites[name].get("time")) for name in sorted(began, key=began.get)}
    last = max(began[name] + timedelta(seconds=parts[name]) for name in parts)
    rest = (last - min(began.values())).total_seconds() - sum(parts.values())
    return {**parts, "the rest": rest}


if __name__ == "__main__":
    parts_and_rest = by_part(Path(sys.argv[1]))
    print("Seconds:", ", ".join(f"{name} {seconds:.0f}" for name, seconds in parts_and_rest.items()))
