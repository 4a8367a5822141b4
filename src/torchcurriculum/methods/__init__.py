"""One file per method; each knows nothing of the shell that runs it."""

from .apw import APW  # isort: skip  the paper's order is the order in which methods are listed
from .adaptive_cl import AdaptiveCL
from .baby_step import BabyStep
from .both import Both
from .c2f import C2F
from .cbm import CBM
from .cbs import CBS
from .dcl import DCL
from .dds import DDS
from .dihcl import DIHCL
from .efficient_train import EfficientTrain
from .infobatch import InfoBatch
from .lambda_step import LambdaStep
from .lgl import LGL
from .lre import LRE
from .mcl import MCL
from .mixed import Mixed
from .mixup import Mixup
from .mw_net import MWNet
from .rapw import RAPW
from .registry import GROUP, build, entry, names, register
from .rl_teacher import RLTeacher
from .sampled import Sampled
from .screenernet import ScreenerNet
from .spcl import SPCL
from .spl import SPL
from .spld import SPLD
from .superloss import SuperLoss
from .then import Then
from .ttcl import TTCL
from .vanilla import Vanilla

__all__ = [
    "APW",
    "C2F",
    "CBM",
    "CBS",
    "DCL",
    "DDS",
    "DIHCL",
    "GROUP",
    "LGL",
    "LRE",
    "MCL",
    "RAPW",
    "SPCL",
    "SPL",
    "SPLD",
    "TTCL",
    "AdaptiveCL",
    "BabyStep",
    "Both",
    "EfficientTrain",
    "InfoBatch",
    "LambdaStep",
    "MWNet",
    "Mixed",
    "Mixup",
    "RLTeacher",
    "Sampled",
    "ScreenerNet",
    "SuperLoss",
    "Then",
    "Vanilla",
    "build",
    "entry",
    "names",
    "register",
]
