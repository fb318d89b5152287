"""Asks llama.cpp's --fit and `lab.fit` the same questions.

llama-fit-params prints the settings that --fit chooses where a user has not set them. It is given a loopback device
that reports the free memory of the question (`reported_memory`), and the header of a model; nothing is loaded.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

from inferlab.engine.dry_run import STAND_IN, header_file
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.programs import built_program
from inferlab.engine.session import this_machine
from inferlab.errors import EngineRefused, EngineUnavailable
from inferlab.machine import Device
from inferlab.options.lines.llama_server import flag
from inferlab.prediction.fit import DEFAULT_N_CTX, Fit, fit
from inferlab.settings import Settings
from inferlab.units import MIB
from studies import recipes
from studies.fit_params.reported_memory import reporting_memory
from studies.fit_params.study import BASE, BothAnswers, FitAnswers, Placement, Question, recorded
from studies.recipes import Recipe

PROGRAM = "llama-fit-params"
SECONDS = 120.0


def questions_again() -> FitAnswers:
    """The recorded questions, asked again."""
    return compare_fits(both.question for both in recorded().answers)


def compare_fits(questions: Iterable[Question]) -> FitAnswers:
    """Ask both every question; each has a device of its own, because a device serves one client.

    Raises EngineUnavailable without llama-fit-params, EngineRefused where it fails.
    """
    with loopback_device(n_threads=1) as for_tool, loopback_device(n_threads=1) as for_lab:
        answers = tuple(both_answers(question, for_tool, for_lab) for question in questions)
    return FitAnswers(machine=this_machine(), date=date.today().isoformat(), answers=answers)


def both_answers(question: Question, for_tool: LoopbackDevice, for_lab: LoopbackDevice) -> BothAnswers:
    """Ask both one question."""
    file = header_file(question.model)
    with reporting_memory(for_tool, question.free_bytes) as endpoint:
        line = printed_line(_run(file, endpoint, flags(question.settings)))
        by_lab = lab_settings(question, for_lab.endpoint)
        asked = fitted_settings(line, question.settings), by_lab
        return BothAnswers(question, line, *(estimated(file, endpoint, settings) for settings in asked))


# --- llama.cpp's answer -------------------------------------------------------------------------


def flags(settings: Settings) -> Iterator[str]:
    """The arguments that make llama-fit-params take these settings as the user's; what is not set is left to it."""
    moved = [name for name in ("n_cpu_moe", "cpu_moe") if getattr(settings, name)]
    for name in ("type_k", "type_v", "devices", *moved):
        yield from flag(name, getattr(settings, name)).split()
    if settings.n_ctx is not None:
        yield from ("-c", str(settings.n_ctx))
    if settings.n_gpu_layers >= 0:
        yield from ("-ngl", str(settings.n_gpu_layers))
    if settings.override_tensor:
        yield from ("-ot", ",".join(settings.override_tensor))


def printed_line(output: str) -> str:
    """The line of settings in what llama-fit-params printed."""
    return next(line for line in reversed(output.splitlines()) if line.startswith("-c "))


def fitted_settings(line: str, base: Settings = BASE) -> Settings:
    """`base` with what a printed line sets: `-c 4096 -ngl 49 -ot "pattern=CPU,pattern=CPU"`."""
    words = shlex.split(line)
    values = dict(zip(words[::2], words[1::2], strict=True))
    overrides = values.get("-ot")
    return base.but(
        n_ctx=int(values["-c"]),
        n_gpu_layers=int(values["-ngl"]),
        override_tensor=tuple(overrides.split(",")) if overrides else (),
    )


def estimated(file: Path, endpoint: str, settings: Settings) -> Placement:
    """The tool's own estimate of settings, from its line for the card: `RPC0 weights cache compute`, in MiB."""
    output = _run(file, endpoint, flags(settings), "--fit-print", "on")
    line = next(line for line in output.splitlines() if line.startswith(f"{STAND_IN} "))
    return Placement(settings, *(MIB * int(n) for n in line.split()[1:]))


def _run(file: Path, endpoint: str, arguments: Iterator[str], *others: str) -> str:
    """What llama-fit-params prints."""
    program = built_program(PROGRAM)
    if program is None:
        raise EngineUnavailable(f"{PROGRAM} is not compiled. Compile it with `make tools`.")
    command = [str(program), "-m", str(file), "--rpc", endpoint, *arguments, *others]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    if done.returncode:
        raise EngineRefused(f"{PROGRAM} has no answer. Read its last lines.", done.stderr[-1000:])
    return done.stdout


# --- the answer of lab.fit ----------------------------------------------------------------------


def lab_settings(question: Question, endpoint: str) -> Settings:
    """What `lab.fit` answers for a loopback device with the question's free bytes, in the order of --fit."""
    asked = question.settings.but(rpc_servers=(endpoint,))
    n_bytes, model = question.free_bytes, question.model
    card = Device(STAND_IN, "a loopback device", "gpu", n_bytes, n_bytes, "RPC")
    machine = replace(this_machine(), ram_bytes=None, devices=(card,))
    fitting = fit(model, asked, machine, within_trained=True)
    least = min(DEFAULT_N_CTX, model.n_ctx_train or DEFAULT_N_CTX)
    longest = fitting.largest_n_ctx.settings
    if question.n_ctx is None and longest and longest.n_ctx >= least:
        return longest.but(rpc_servers=())
    return _with_less_on_the_card(fitting, asked.but(n_ctx=question.n_ctx or least)).but(rpc_servers=())


def _with_less_on_the_card(fitting: Fit, asked: Settings) -> Settings:
    """The settings with as little in RAM as fits: nothing, experts, or layers; everything where nothing else fits."""
    if fitting.fits == "yes":
        return asked
    answer = fitting.expert_layers or fitting.most_layers
    return answer.settings or asked.but(n_gpu_layers=0)


RECIPES: Mapping[str, Recipe] = dict.fromkeys(("fit-params", "fit-params-again"), partial(questions_again))

if __name__ == "__main__":
    recipes.main(RECIPES)
