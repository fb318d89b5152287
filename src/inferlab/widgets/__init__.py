"""Widgets for JupyterLab: controls that run a measurement, and questions to answer before its result is shown.

A built page has no kernel, so the same calls return what was measured at build:
`pipeline_lab` and `cache_lab` a plain figure, `explore` and `split_lab` one with a slider,
`ask` a question with its outcome folded away.
"""

from inferlab.widgets.explorer import Explorer, explore
from inferlab.widgets.kv_cache import CacheLab, cache_lab
from inferlab.widgets.offload import SplitLab, split_lab
from inferlab.widgets.pipeline import PipelineLab, pipeline_lab
from inferlab.widgets.question import Question, ask

__all__ = [
    "CacheLab",
    "Explorer",
    "PipelineLab",
    "Question",
    "SplitLab",
    "ask",
    "cache_lab",
    "explore",
    "pipeline_lab",
    "split_lab",
]
