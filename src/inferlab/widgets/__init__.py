"""Front door of JupyterLab: controls that measure for real, and questions that wait for a prediction.

On a built page, where no kernel answers, the same calls give what was measured at build:
`pipeline_lab`, `cache_lab` and `quantization_lab` a plain figure, `explore` and `split_lab` one with a slider,
`predict` a question whose outcome is folded away.
No widget is made there, because a page has nothing that could show one.
"""

from inferlab.widgets.explorer import Explorer, explore
from inferlab.widgets.kvcache import CacheLab, cache_lab
from inferlab.widgets.offload import SplitLab, split_lab
from inferlab.widgets.pipeline import PipelineLab, pipeline_lab
from inferlab.widgets.predictions import Prediction, predict
from inferlab.widgets.quantization import QuantizationLab, quantization_lab

__all__ = [
    "CacheLab",
    "Explorer",
    "PipelineLab",
    "Prediction",
    "QuantizationLab",
    "SplitLab",
    "cache_lab",
    "explore",
    "pipeline_lab",
    "predict",
    "quantization_lab",
    "split_lab",
]
