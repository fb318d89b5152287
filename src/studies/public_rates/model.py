"""Writes the model of a card: `python -m studies.public_rates.model`, with the bands of the judge's record."""

from __future__ import annotations

from inferlab.results.public_rates import public_rates
from studies.public_rates.fit import model_table, write
from studies.public_rates.judge import bands, held

if __name__ == "__main__":
    write(model_table(public_rates(), bands(), held()))
