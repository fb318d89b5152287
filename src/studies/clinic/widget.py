"""The error clinic's findings: a block for each case, with llama.cpp's message, its cause and fix, and who knew."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from inferlab.log_reader import LogFinding
from studies.clinic.clinic import Specimen
from studies.clinic.study import first_finding

CODE = re.compile(r"`([^`]*)`")
NOTHING, UNKNOWN = "nothing", "not in the log reader's rules"
ENDS = {
    "error": "an error; the process lives on",
    "exit": "the end of the process",
    "no error": "no error; the work went on",
}
HEAD = "text-align:left;vertical-align:top;width:9.5rem;padding:0.15rem 0.8rem 0.15rem 0;font-weight:400;opacity:0.8"
BREAKS = "overflow-wrap:anywhere;white-space:normal"
CELL = f"text-align:left;vertical-align:top;padding:0.15rem 0;{BREAKS}"
NAME = "text-align:left;caption-side:top;padding:0.9rem 0 0.2rem"


class ClinicCases:
    """Provoked faults, a small table for each: (name, cause, [(what is told, text), …])."""

    def __init__(self, cases: list[tuple[str, str, list[tuple[str, str]]]]) -> None:
        self.cases = cases

    def __repr__(self) -> str:
        return "\n\n".join(
            "\n".join([f"{name}: {cause}", *(f"  {told}: {text}" for told, text in rows)])
            for name, cause, rows in self.cases
        )

    def _repr_html_(self) -> str:
        return "".join(_block(*case) for case in self.cases)


def clinic_cases(specimens: Mapping[str, Specimen], *names: str) -> ClinicCases:
    """The named cases, all without a name; a case that `specimens` lacks is left out."""
    return ClinicCases([(specimen.name, specimen.cause, _rows(specimen)) for specimen in _chosen(specimens, names)])


def _chosen(specimens: Mapping[str, Specimen], names: tuple[str, ...]) -> list[Specimen]:
    return [specimens[name] for name in names or specimens if name in specimens]


def _rows(specimen: Specimen) -> list[tuple[str, str]]:
    cause = first_finding(specimen)
    return [
        ("llama.cpp says", f"`{specimen.own_words}`" if specimen.own_words else NOTHING),
        ("and it ends with", ENDS[specimen.ended]),
        ("inferlab explain", cause.what if cause else NOTHING),
        ("the fix", _fix(specimen, cause)),
        ("before the load", specimen.before or NOTHING),
    ]


def _fix(specimen: Specimen, cause: LogFinding | None) -> str:
    """The log reader's, where it names a cause; a run that met no fault needs none."""
    if cause and cause.fix:
        return " ".join(cause.fix)
    return UNKNOWN if specimen.own_words and not cause else "none is needed"


def _block(name: str, cause: str, rows: list[tuple[str, str]]) -> str:
    """A table whose caption is the case, so that it can be read on a phone too."""
    body = "".join(f"<tr><th scope='row' style='{HEAD}'>{told}</th>{_cell(text)}</tr>" for told, text in rows)
    caption = f"<strong>{html.escape(name)}</strong>: {html.escape(cause, quote=False)}"
    return f"<table style='width:100%'><caption style='{NAME}'>{caption}</caption><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    shown = CODE.sub(rf"<code style='{BREAKS}'>\1</code>", html.escape(text, quote=False))
    return f"<td style='{CELL}'>{shown}</td>"
