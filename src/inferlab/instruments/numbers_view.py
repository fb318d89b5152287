"""What "Your numbers" shows: decode beside the atlas and its bound, two runs compared, and every test that was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferlab.instruments.log_view import cut
from inferlab.instruments.numbers_bars import bars_view
from inferlab.instruments.numbers_pairs import Groups, pairs_view, ratios_text
from inferlab.instruments.numbers_public import (
    FASTER,
    Compared,
    about_public,
    expected_cell,
    first_sentences,
    public_cell,
    reasons,
)
from inferlab.instruments.numbers_text import (
    MOST_LISTED,
    MOST_ROWS,
    folded,
    listing,
    machine_text,
    model_text,
    more,
    varying,
    where,
)
from inferlab.instruments.views import element, paragraph, table
from inferlab.results.against_public import AgainstPublic
from inferlab.results.atlas import Known, prediction_for
from inferlab.results.bound import Bound, layers_on_gpu
from inferlab.results.reading import PASTED, ResultFile
from inferlab.results.result import Result
from inferlab.units import GB, bytes_text, count_text, number_text, rate_text

MOST_NAMED = 4
"""Files that the first line names."""
ABOVE = (
    *FASTER[:2],
    "The bytes of a token are fewer than counted. Where no known model is recognized, all weights of the file are "
    "counted, although a token reads one row of the embedding and, of experts, only those used.",
    "The model is so small that it stays in the card's cache.",
    "Several tokens were made at once, by a draft model or by several sequences.",
)


@dataclass(frozen=True)
class Numbers:
    """All that is shown: files read, files refused as (name, reason), groups of tests, and two of them compared.

    bounds   of the decode tests, in their order: the bound, or why there is none
    public   of all tests: public rows and the model of the card beside it, or why there is nothing
    example  whether the reader has given nothing yet
    """

    files: tuple[ResultFile, ...]
    refused: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]
    groups: Groups
    bounds: tuple[tuple[Result, Bound | str], ...]
    public: tuple[Compared, ...]
    example: bool

    @property
    def judged(self) -> list[tuple[Result, Bound | str | None, Compared]]:
        """The decode tests, then the prompts that stand beside public rows: with the bound, None for a prompt."""
        bounds = iter(self.bounds)
        tests = zip(self.results, self.public, strict=True)
        every = [(test, next(bounds)[1] if test.is_decode else None, public) for test, public in tests]
        kept = (one for one in every if one[0].is_decode or isinstance(one[2], AgainstPublic))
        return sorted(kept, key=lambda one: not one[0].is_decode)

    @property
    def above(self) -> list[Result]:
        """The decode tests whose rate lies above their bound."""
        return [test for test, bound in self.bounds if isinstance(bound, Bound) and test.rate > bound.rate]

    @property
    def not_read(self) -> list[str]:
        """The reasons for each file that was refused, and for each part of the others."""
        parts = (f"{file.name}: {problem}" for file in self.files for problem in file.problems)
        return [*(reason for _, reason in self.refused), *parts]

    @property
    def notes(self) -> list[str]:
        """What the forms of the files lack, each with the first file of that form."""
        told = {note: f"{file.name}: {note}" for file in reversed(self.files) for note in file.notes}
        return [*reversed(told.values())]


def summary(numbers: Numbers) -> str:
    """What was read, how the two that are compared differ, and what could not be read."""
    told = f"{count_text(len(numbers.results), 'test')} of {_sources(numbers.files)}{_rates_text(numbers.results)}."
    told = " ".join(filter(None, (told, _above_text(numbers.above), ratios_text(numbers.groups), _lost_text(numbers))))
    return f"Example: {told}" if numbers.example else told


def _sources(files: Sequence[ResultFile]) -> str:
    """`2 files`; the text that was pasted is none."""
    n_files = sum(file.name != PASTED for file in files)
    pasted = [PASTED] * (n_files < len(files))
    return " and ".join([count_text(n_files, "file")] * bool(n_files) + pasted)


def _above_text(above: Sequence[Result]) -> str:
    """`2 rates lie above their bounds, the first tg128 of a.json: the reasons are below.`, or nothing."""
    if not above:
        return ""
    test = f"{above[0].test} of {cut(above[0].source)}"
    if len(above) == 1:
        return f"The rate of {test} lies above its bound: likely reasons are below."
    return f"{len(above):,} rates lie above their bounds, the first that of {test}: likely reasons are below."


def _lost_text(numbers: Numbers) -> str:
    """`Not read: table.md; 2 parts of half.json.`, or nothing."""
    damaged = (file for file in numbers.files if file.problems)
    lost = [cut(name) for name, _ in numbers.refused]
    lost += [f"{count_text(len(file.problems), 'part')} of {cut(file.name)}" for file in damaged]
    rest = [f"and {len(lost) - MOST_NAMED} more"] * (len(lost) > MOST_NAMED)
    return f"Not read: {'; '.join([*lost[:MOST_NAMED], *rest])}." if lost else ""


def _rates_text(results: Sequence[Result]) -> str:
    rates = sorted(result.rate for result in results if result.is_decode and result.n_sequences == 1)
    if not rates:
        return ""
    both = (number_text(rate) for rate in (rates[0], rates[-1]))
    return ": decode at " + " to ".join(dict.fromkeys(both)) + " tokens/s"


def numbers_view(
    numbers: Numbers,
    known: Sequence[Known],
    names_of_groups: Mapping[str, str],
    can_contribute: bool,
    left_out: Sequence[str],
) -> list[Any]:
    """All of an answer.

    known            the tests of the atlas
    names_of_groups  what may be compared, by the names of `compare.GROUPS`
    can_contribute   whether some rows can become records; `left_out` says of the others why not
    """
    return element(
        "div",
        {"class": "instrument-numbers"},
        _about_the_example() if numbers.example else _files(numbers),
        *([] if numbers.example else first_sentences(numbers.public)),
        listing("What could not be read", numbers.not_read),
        listing("What these forms lack", numbers.notes),
        bars_view(numbers.bounds, known),
        _bounds(numbers, known),
        pairs_view(numbers.groups, names_of_groups),
        _all_tests(numbers.results),
        _saving(numbers, can_contribute, left_out),
    )


def _about_the_example() -> list[Any]:
    return paragraph(
        "This is an example, a record of this book: one, two and three threads decode on a processor with two cores. "
        "The answer to your files takes its place."
    )


def _files(numbers: Numbers) -> list[Any] | None:
    """The files of a reader, each with a button that removes it; None where all is pasted."""
    counted = {file.name: f"{file.kind}, {count_text(len(file.results), 'test')}" for file in numbers.files}
    told = {**counted, **dict.fromkeys((name for name, _ in numbers.refused), "not read")}
    told.pop(PASTED, None)
    entries = [element("li", {}, f"{cut(name)}: {text} ", _removing(name)) for name, text in told.items()]
    listed = element("ul", {}, *entries)
    return element("section", {"class": "instrument-files"}, element("h2", {}, "Your files"), listed) if told else None


def _removing(name: str) -> list[Any]:
    label = {"data-drop": name, "aria-label": f"Remove {cut(name)}"}
    return element("button", {"type": "button", "class": "pst-js-only", **label}, "Remove")


# --- against bound, public results and prediction ----------------------------------------------------------


def _bounds(numbers: Numbers, known: Sequence[Known]) -> list[Any] | None:
    """Each test against the bound of its card, public results, what is expected, and a prediction of the atlas."""
    judged = numbers.judged
    if not judged:
        return None
    settings = varying(test for test, *_ in judged)
    shown = [(*one, prediction_for(known, one[0])) for one in judged[:MOST_ROWS]]
    public = [one for _, _, one, _ in shown]
    heads = [
        "Test",
        "Measured",
        "Bound",
        "Of the bound",
        "Public median",
        "Expected",
        "Predicted",
        "Measured against it",
    ]
    has_public = any(isinstance(one, AgainstPublic) for one in public)
    rows = [_residuals(where(one[0], settings), *one, has_public) for one in shown]
    return element(
        "section",
        {"class": "instrument-residuals"},
        listing("Why a rate may lie above its bound", ABOVE) if numbers.above else None,
        *reasons(public, bool(numbers.above)),
        folded(
            "residuals",
            "Rates beside bounds, public results and predictions"
            if has_public
            else "Rates beside bounds and predictions",
            table(*_without_empty(heads, rows)),
            more(len(judged) - MOST_ROWS, "test"),
            *(_about_bounds(numbers.bounds) if numbers.bounds else []),
            *_about_predictions([predicted for *_, predicted in shown]),
            about_public(public),
        ),
    )


def _without_empty(heads: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A table without the columns in which no row has a text; in the others an empty cell says so."""
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    return [heads[place] for place in kept], [[row[place] or "none" for place in kept] for row in rows]


def _residuals(
    name: str, result: Result, bound: Bound | str | None, public: Compared, predicted: float | None, has_public: bool
) -> list[str]:
    return [
        name,
        rate_text(result.rate),
        rate_text(bound.rate) if isinstance(bound, Bound) else f"none: {bound}" if bound else "",
        _share(result, bound) if isinstance(bound, Bound) else "",
        public_cell(public) if has_public else "",
        expected_cell(public),
        rate_text(predicted) if predicted else "",
        _signed(result.rate / predicted - 1) if predicted else "",
    ]


def _share(result: Result, bound: Bound) -> str:
    """`45 %`, and how many layers lie on the GPU where those are not all: the card alone does not bound that run."""
    layers = None if bound.card.unified else layers_on_gpu(result)
    remark = " ({} of {} layers on the GPU)".format(*layers) if layers else ""
    return f"{100 * result.rate / bound.rate:,.0f}\u00a0%{remark}"


def _signed(share: float) -> str:
    """`+3 %`; a share that rounds to 0 has no sign."""
    percent = round(100 * share)
    return f"{percent:+d}\u00a0%" if percent else "0\u00a0%"


def _about_bounds(bounds: Iterable[tuple[Result, Bound | str]]) -> list[Any]:
    """What each bound is made of, and of which tests it is; and what it takes to have one."""
    made_of: dict[str, list[Result]] = {}
    for test, bound in bounds:
        if isinstance(bound, Bound):
            made_of.setdefault(_made_of(bound), []).append(test)
    if not made_of:
        return [paragraph("There is no bound without a card of the list. Choose yours above if the weights lie on it.")]
    tests = [test for several in made_of.values() for test in several]
    return [
        paragraph(
            "A bound is no prediction: rates below it are usual. Several cards that share the layers work one "
            "after another, at the bandwidth of one."
        ),
        paragraph(
            "A run with some of its layers on the GPU also reads RAM: the bound of the card alone lies too high for it."
        )
        if any(map(layers_on_gpu, tests))
        else None,
        *(
            paragraph(f"{bound_text} It is the bound of {_tests_text(several)}.")
            for bound_text, several in [*made_of.items()][:MOST_LISTED]
        ),
        more(len(made_of) - MOST_LISTED, "bound"),
    ]


def _made_of(bound: Bound) -> str:
    """`GeForce RTX 4090: 1,008 GB/s over 4.61 GiB, the bytes of this model …`."""
    made_of = f"{bound.card.title}: {bound.card.bandwidth_bytes_per_second / GB:,.0f} GB/s over "
    if bound.known:
        return f"{made_of}{bytes_text(bound.n_bytes)}, the bytes of this model and of its cache that a token needs."
    return (
        f"{made_of}{bytes_text(bound.n_bytes)}, all weights of the file, without the cache: the model is not one of "
        "the book's. A token may need fewer bytes, and its rate may then lie above this bound."
    )


def _tests_text(several: Sequence[Result]) -> str:
    """`tg128 of a.json, tg128 of b.json and 3 more tests`."""
    names = [*dict.fromkeys(f"{test.test} of {cut(test.source)}" for test in several)]
    rest = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {count_text(rest, 'more test')}" if rest > 0 else shown


def _about_predictions(predicted: Sequence[float | None]) -> list[Any]:
    missing = sum(rate is None for rate in predicted)
    which = "any of these tests" if missing == len(predicted) else f"{missing} of these tests"
    return [paragraph(f"The atlas has no prediction for {which}.")] if missing else []


# --- all tests, and saving ---------------------------------------------------------------------------------


def _all_tests(results: Sequence[Result]) -> list[Any]:
    heads = ["Test", "Model", "Machine, backend", "Settings", "Tokens/s", "Spread", "Repetitions"]
    rows = [_test(result) for result in results[:MOST_ROWS]]
    return folded(
        "tests",
        f"All {count_text(len(results), 'test')}",
        table(heads, rows),
        more(len(results) - MOST_ROWS, "test"),
        paragraph("Tokens/s is the median of the repetitions; the mean where a file has no more."),
    )


def _test(result: Result) -> list[str]:
    names = {"n_threads": "threads", "n_gpu_layers": "layers on GPU", "type_k": "K", "type_v": "V"}
    settings = [f"{text} {cut(result.settings[name])}" for name, text in names.items() if name in result.settings]
    return [
        f"{result.test}, {cut(result.source)}",
        model_text(result),
        ", ".join(filter(None, (machine_text(result.machine), cut(result.backend)))),
        ", ".join(settings) or "not named",
        number_text(result.rate),
        _spread_text(result),
        str(len(result.samples)) if result.samples else "not listed",
    ]


def _spread_text(result: Result) -> str:
    if result.samples:
        return " to ".join(number_text(rate) for rate in (min(result.samples), max(result.samples)))
    return f"±\u00a0{number_text(result.deviation)}" if result.deviation is not None else "not known"


def _saving(numbers: Numbers, can_contribute: bool, left_out: Sequence[str]) -> list[Any]:
    everything: list[Any] = [_button("Save the answer for other programs", "your-numbers.json", "read")]
    if any(isinstance(one, AgainstPublic) for one in numbers.public):
        everything += [" ", _button("Save as a public row", "public-rows.json", "public_rows")]
    atlas = element("a", {"href": "./appendix/hardware-atlas.html#sec-atlas-add"}, "Add your machine")
    if not can_contribute:
        return element(
            "section",
            {},
            element("h2", {}, "Save and contribute"),
            paragraph(*everything),
            paragraph(
                "Every test of a known model on a card of the list can become a public row, with its source. Only "
                "llama-bench's JSON of one machine, with the times of all repetitions, can become a record here. "
                "Records of this book are records already: ",
                atlas,
                " says what to do with them.",
            ),
            listing("Not in a contribution", left_out),
        )
    return element(
        "section",
        {},
        element("h2", {}, "Save and contribute"),
        paragraph(*everything, " ", _button("Save llama-bench's tests as a record", "record.json", "contribution")),
        paragraph(
            "The record has no paths. It lacks what llama-bench does not write, such as times of tokens and buffers; ",
            atlas,
            " measures them. Look into the file before you send it to anybody.",
        ),
        listing("Not in the record", left_out),
    )


def _button(text: str, file: str, part: str) -> list[Any]:
    return element("button", {"type": "button", "class": "pst-js-only", "data-save": file, "data-part": part}, text)
