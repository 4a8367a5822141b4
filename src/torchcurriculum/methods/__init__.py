"""One file per method; each knows nothing of the shell that runs it."""

from .apw import APW  # isort: skip  the paper's order is the order in which methods are listed
from ._base.side_net import scorer_like
from .adaptive_cl import AdaptiveCL
from .argmax import Argmax
from .baby_step import BabyStep
from .both import Both
from .c2f import C2F
from .cbm import CBM
from .cbs import CBS
from .cutmix import CutMix
from .co_teaching import CoTeaching
from .dcl import DCL
from .dds import DDS
from .dihcl import DIHCL
from .drw import DRW
from .efficient_train import EfficientTrain
from .efficient_train_plus import EfficientTrainPlus
from .elr import ELR
from .ema import EMA
from .infobatch import InfoBatch
from .jocor import JoCoR
from .lambda_step import LambdaStep
from .lgl import LGL
from .lre import LRE
from .mcl import MCL
from .mixed import Mixed
from .mixup import Mixup
from .mw_net import MWNet
from .rapw import RAPW
from .registry import build, entry, names, register
from .rl_teacher import RLTeacher
from .sampled import Sampled
from .screenernet import ScreenerNet
from .small_loss import SmallLoss
from .sop import SOP
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
    "DRW",
    "ELR",
    "EMA",
    "LGL",
    "LRE",
    "MCL",
    "RAPW",
    "SOP",
    "SPCL",
    "SPL",
    "SPLD",
    "TTCL",
    "AdaptiveCL",
    "Argmax",
    "BabyStep",
    "Both",
    "CutMix",
    "CoTeaching",
    "EfficientTrain",
    "EfficientTrainPlus",
    "InfoBatch",
    "JoCoR",
    "LambdaStep",
    "MWNet",
    "Mixed",
    "Mixup",
    "RLTeacher",
    "Sampled",
    "ScreenerNet",
    "SmallLoss",
    "SuperLoss",
    "Then",
    "Vanilla",
    "build",
    "entry",
    "names",
    "register",
    "scorer_like",
]
