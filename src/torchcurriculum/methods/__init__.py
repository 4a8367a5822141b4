"""One file per method; none depends on the shell that runs it. Written by ``docs/cards.py``."""

from .apw import APW  # isort: skip  the paper's order is the order in which methods are listed
from ._base.side_net import scorer_like
from .adaptive_cl import AdaptiveCL
from .argmax import Argmax
from .baby_step import BabyStep
from .balanced import Balanced
from .both import Both
from .c2f import C2F
from .cbm import CBM
from .cbs import CBS
from .co_teaching import CoTeaching
from .competence import Competence
from .cutmix import CutMix
from .dcl import DCL
from .dds import DDS
from .dihcl import DIHCL
from .drw import DRW
from .efficient_train import EfficientTrain
from .efficient_train_plus import EfficientTrainPlus
from .elr import ELR
from .ema import EMA
from .given_weights import GivenWeights
from .group_dro import GroupDRO
from .importance_sampling import ImportanceSampling
from .infobatch import InfoBatch
from .jocor import JoCoR
from .jtt import JTT
from .lambda_step import LambdaStep
from .length_warmup import LengthWarmup
from .lgl import LGL
from .lre import LRE
from .mcl import MCL
from .mixed import Mixed
from .mixup import Mixup
from .mw_net import MWNet
from .rapw import RAPW
from .registry import GROUP, build, entry, names, register
from .rho_loss import RHOLoss
from .rl_teacher import RLTeacher
from .sampled import Sampled
from .scored import Scored
from .screenernet import ScreenerNet
from .selective_backprop import SelectiveBackprop
from .small_loss import SmallLoss
from .sop import SOP
from .spcl import SPCL
from .spl import SPL
from .spld import SPLD
from .superloss import SuperLoss
from .then import Then
from .ttcl import TTCL
from .two_views import TwoViews
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
    "GROUP",
    "JTT",
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
    "Balanced",
    "Both",
    "CoTeaching",
    "Competence",
    "CutMix",
    "EfficientTrain",
    "EfficientTrainPlus",
    "GivenWeights",
    "GroupDRO",
    "ImportanceSampling",
    "InfoBatch",
    "JoCoR",
    "LambdaStep",
    "LengthWarmup",
    "MWNet",
    "Mixed",
    "Mixup",
    "RHOLoss",
    "RLTeacher",
    "Sampled",
    "Scored",
    "ScreenerNet",
    "SelectiveBackprop",
    "SmallLoss",
    "SuperLoss",
    "Then",
    "TwoViews",
    "Vanilla",
    "build",
    "entry",
    "names",
    "register",
    "scorer_like",
]
