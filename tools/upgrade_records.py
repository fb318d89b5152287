"""Write records of an older schema anew in today's: python tools/upgrade_records.py [FILE OR FOLDER ...]

Without arguments the repository's own records. What a file holds stays as it is, digit by digit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from inferlab.records import load, save, shipped


def main(places: list[Path]) -> None:
    for place in places:
        for path in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
            save(load(path), path)
            print(path)


if __name__ == "__main__":
    main([Path(place) for place in sys.argv[1:]] or list(shipped().values()))
