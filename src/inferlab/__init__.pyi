"""The names of `__init__.py`, for editors and type checkers, which do not follow its imports on first use."""

from inferlab.doctor import check_machine as check_machine
from inferlab.engine.limit_vram import limit_vram as limit_vram
from inferlab.engine.loopback import loopback_device as loopback_device
from inferlab.engine.quantize import quantize as quantize
from inferlab.engine.session import this_machine as this_machine
from inferlab.engine.tokenizer import detokenize as detokenize
from inferlab.engine.tokenizer import tokenize as tokenize
from inferlab.errors import InferlabError as InferlabError
from inferlab.log_reader import explain as explain
from inferlab.measurement.cold_start import cold_start as cold_start
from inferlab.measurement.fidelity import fidelity as fidelity
from inferlab.measurement.fidelity import perplexity as perplexity
from inferlab.measurement.run import measure as measure
from inferlab.measurement.run import measure_each as measure_each
from inferlab.measurement.sweep import sweep as sweep
from inferlab.measurement.tune import tune as tune
from inferlab.model.catalog import known_model as known_model
from inferlab.model.find import chosen_model as chosen_model
from inferlab.model.find import find_model as find_model
from inferlab.model.find import tiny_model as tiny_model
from inferlab.model.gguf import read_gguf as read_gguf
from inferlab.model.synthetic_model import make_shape as make_shape
from inferlab.model.synthetic_model import shape as shape
from inferlab.prediction.calibrate import calibrate as calibrate
from inferlab.prediction.compare import compare as compare
from inferlab.prediction.diagnosis import diagnose as diagnose
from inferlab.prediction.fit import fit as fit
from inferlab.prediction.predict import predict_memory as predict_memory
from inferlab.prediction.predict import predict_speed as predict_speed
from inferlab.records import load as load
from inferlab.records import save as save
from inferlab.results.log_memory import derive_memory as derive_memory
from inferlab.settings import Settings as Settings

__version__: str
