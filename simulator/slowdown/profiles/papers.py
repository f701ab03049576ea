"""Profiles of the papers' models: figures from their texts, and what follows from these. Measured profiles replace them.

`SCHED2`: figure 1 as described in section II-A: four GPUs in one server are 5.9 (VGG16), 2.7 (Transformer), 1.6 (DeepSpeech) and
1.4 (Inception3) times as fast as on two servers. With a gradient of B bytes over 10 Gb/s that makes a computing time of (B
/ 1.25 GB/s) / (ratio - 1). Across racks communicating takes 1.2 times as long (RL-TAPS, equation 12). The text gives no
figure for two sockets of one node: no loss is assumed. AlexNet and ResNet-50 are in its table II without a figure;
they get the ratio of the most similar model: AlexNet's parameters are in dense layers like VGG16's, ResNet-50 has as many as
Inception3.

`CONTENTION_RL`: its table I gives parameters, mean bandwidth u and the ratio of communicating to computing. A ring over its
four nodes moves 1.5 x 4 bytes x parameters a step, which at u makes the time of a step; the time that its 40 Gb/s InfiniBand
needs for these bytes is communication, the rest is computing: latency does not grow when bandwidth is shared.

`MARL` (and DL2, which has the same eight models): sizes and computing times of a step as in DL2's published simulator; six
cores for every worker (MARL, section II-C).

`DL2_MEASURED`: DL2's models with the coefficients of Optimus' model, fitted here to the 795 speeds that DL2's authors measured with
1 to 16 workers and servers and published (`parameter_server.fit`; a mean error of 8 % on speeds that were held out). They
describe a testbed of 2018 with MXNet, on which 16 workers are often slower than 4. They must be named: the profiles of all
papers leave them out.

`RL_TAPS`: 35 convolutional networks with the size of their parameters and the operations of one example (its reference 12,
convnet-burden); a P100 does 0.9 x 10.6 TFLOPS (equation 10).

`PAIRS`: section III of contention_rl gives the worst contention sensitivity of FSDP beside MoE (1.96) and beside
MobileNetV3 (1.35), and of MoE beside FSDP (3.00) and beside MobileNetV3 (1.43). All four are met within 3 % by 1 +
s(target) x 0.43 (u(other) / 211.25 MB/s)^0.635, where s is the share of time spent communicating and u the mean bandwidth
of table I; the other pairs follow from that law.

`INTERFERENCE`: MARL's text does not give its coefficients. These follow from two facts in it: one neighbour of six cores on
the same socket costs 30 % (section II-C), and CPU and PCIe share this as 23.2 to 14.4 (by so much the error grows without
either, table III). Two assumptions: the exponential grows e-fold over four cores, half of one of its CPUs, and the job's own
use has no effect. They hold for MARL's servers, whose two CPUs have eight cores and two GPUs each (section VI): six cores of the
neighbour in the group, and of the twelve of the other group those beyond its CPU, are `MARL_MOST_CORES`. On nodes with more GPUs
nothing was measured, and the exponential would make a job with seven neighbours 200 times slower; so many cores count there too.

`SPEED_SENSITIVITY`: PAL (Jain et al., SC 24) measured how much classes of models feel slow GPUs of one kind: on the slowest
node of its testbed, the class of image models takes 11.4 % longer than on the median, that of language models 5.7 % (on another
node), and that of PointNet hardly anything. As shares of the first that is 1, 0.5 and 0. The class of a model here is an
assumption: language, speech and mixtures of experts are in the second; embeddings and graphs, which wait for memory, in the third;
all others in the first, as are unknown ones in PAL.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

from simulator.slowdown.profiles.model_profiles import (
    Curve,
    MeasuredInterference,
    ModelProfile,
    ModelProfiles,
    Pair,
    key_of,
)

_PCIE_BYTES_S = 16e9
_SLOW_NETWORK = 1.25e9
_INFINIBAND = 5e9
_MORE_RACKS = 1.2


def _pcie(size: float, compute_s: float) -> float:
    """Return the share of PCIe that pushing and pulling the gradients of every step takes."""
    return min(1.0, 2 * size / compute_s / _PCIE_BYTES_S)


def _sched2(parameters: float, ratio: float) -> ModelProfile:
    size = 4 * parameters
    curve: Curve = (1.0, 1.0, 1 / ratio, 1 / (1 + _MORE_RACKS * (ratio - 1)))
    compute_s = size / _SLOW_NETWORK / (ratio - 1)
    return ModelProfile(compute_s, size, pcie=_pcie(size, compute_s), locality=curve)


def _contention_rl(parameters: float, bandwidth: float) -> ModelProfile:
    size = 4 * parameters
    step_s = 1.5 * size / bandwidth
    compute_s = step_s * (1 - bandwidth / _INFINIBAND)
    return ModelProfile(compute_s, size, pcie=_pcie(size, compute_s))


def _marl(size: float, compute_s: float) -> ModelProfile:
    return ModelProfile(compute_s, size, cpu=6.0, pcie=_pcie(size, compute_s))


def _rl_taps(size: float, operations: float) -> ModelProfile:
    batch = 128
    compute_s = operations * batch / (0.9 * 10.6e12)
    return ModelProfile(compute_s, size, batch=batch, pcie=_pcie(size, compute_s))


SCHED2 = {
    "alexnet": _sched2(61.1e6, 5.9),
    "inception3": _sched2(23.8e6, 1.4),
    "resnet50": _sched2(25.6e6, 1.4),
    "vgg16": _sched2(138.4e6, 5.9),
    "transformer": _sched2(65e6, 2.7),
    "deepspeech": _sched2(38e6, 1.6),
}

_TABLE_1 = {
    "GraphSage": (0.33e6, 24.63e6, 0.57),
    "MobileNetV3": (2.04e6, 211.25e6, 2.43),
    "DLRM": (333.32e6, 170.28e6, 13.36),
    "Transformer-XL": (202.44e6, 854.82e6, 1.87),
    "FSDP": (184.89e6, 2672.40e6, 7.32),
    "MoE": (268.92e6, 929.48e6, 13.79),
}
"""Parameters, mean bandwidth in bytes/s, ratio of communication to computing (contention_rl, table I)."""

CONTENTION_RL = {name: _contention_rl(size, bandwidth) for name, (size, bandwidth, _) in _TABLE_1.items()}

MARL = {
    "resnet-50": _marl(102.2e6, 0.449),
    "vgg-16": _marl(553.4e6, 0.535),
    "resnext-110": _marl(6.92e6, 0.226),
    "inception-bn": _marl(42.1e6, 0.815),
    "seq2seq": _marl(36.5e6, 0.075),
    "cnn-text-classification": _marl(24.0e6, 0.585),
    "ctc": _marl(24.0e6, 0.585),
    "dssm": _marl(6.0e6, 0.567),
    "wlm": _marl(19.2e6, 0.154),
}

_MEASURED = {
    "resnet-50": (0.00423, 0.4061, 0.4421, 0.007035, 0.0),
    "vgg-16": (0.01689, 0.5862, 0.8115, 0.1359, 0.0),
    "resnext-110": (0.0005249, 0.1611, 0.1063, 0.02017, 0.0007929),
    "inception-bn": (0.002996, 0.1533, 0.1748, 0.01802, 0.003643),
    "seq2seq": (0.001009, 0.05143, 0.02229, 0.01395, 0.0),
    "cnn-text-classification": (0.00743, 0.3456, 0.02363, 0.01697, 0.0),
    "dssm": (0.001587, 0.1165, 0.0, 0.007633, 0.0001353),
    "wlm": (0.0004509, 0.2399, 0.1766, 0.02727, 0.001266),
}
"""a to e of each model: seconds per example, a step, a unit of transfer, a worker and a server."""

DL2_MEASURED = {name: replace(MARL[name], servers=servers) for name, servers in _MEASURED.items()}

_NETWORKS = """
alexnet 233 0.727; caffenet 233 0.724; squeezenet1-0 5 0.837; squeezenet1-1 5 0.36; vgg-f 232 0.727; vgg-m 393 2; vgg-s 393 3;
vgg-m-2048 353 2; vgg-m-1024 333 2; vgg-m-128 315 2; vgg-vd-16-atrous 82 16; vgg-vd-16 528 16; vgg-vd-19 548 20; googlenet 51 2;
resnet18 45 2; resnet34 83 4; resnet-50 98 4; resnet-101 170 8; resnet-152 230 11; resnext-50-32x4d 96 4; resnext-101-32x4d 169 8;
resnext-101-64x4d 319 16; inception-v3 91 6; SE-ResNet-50 107 4; SE-ResNet-101 189 8; SE-ResNet-152 255 11;
SE-ResNeXt-50-32x4d 105 4; SE-ResNeXt-101-32x4d 187 8; SENet 440 21; SE-BN-Inception 46 2; densenet121 31 3; densenet161 110 8;
densenet169 55 3; densenet201 77 4; mcn-mobilenet 16 0.579
"""
"""Name, MB of parameters, 10^9 operations for one example."""

RL_TAPS = {
    name: _rl_taps(float(size) * 1e6, float(operations) * 1e9)
    for name, size, operations in (row.split() for row in _NETWORKS.split(";"))
}

PAPERS = {"rl-taps": RL_TAPS, "marl": MARL, "dl2": MARL, "sched2": SCHED2, "contention-rl": CONTENTION_RL}
_BY_NAME = {**PAPERS, "dl2-measured": DL2_MEASURED}


def _ratio(target: str, other: str) -> float:
    """Return the throughput of the target beside the other, by the law above."""
    communicating, bandwidth = _TABLE_1[target][2], _TABLE_1[other][1]
    loss = communicating / (1 + communicating) * 0.43 * exp(0.635 * log(bandwidth / 211.25e6))
    return 1.0 / (1.0 + loss)


PAIRS: dict[Pair, float] = {
    (key_of(target), key_of(other)): _ratio(target, other) for target in _TABLE_1 for other in _TABLE_1
}

_CPU_PART = 0.30 * 23.2 / (23.2 + 14.4)
_PCIE_PART = 0.30 - _CPU_PART
_MARL_MODELS = {name: profile for name, profile in MARL.items() if name != "ctc"}
"""Without the second name of cnn-text-classification, which would count twice in a mean."""
_MARL_PCIE = sum(profile.pcie for profile in _MARL_MODELS.values()) / len(_MARL_MODELS)

MARL_MOST_CORES = 10.0
"""Most cores of others that count beside a worker on a server of MARL."""
INTERFERENCE = MeasuredInterference(
    alpha=(_CPU_PART / (exp(6 / 4) - 1), 1 / 4, 0.0),
    beta=(_PCIE_PART / _MARL_PCIE, 0.0),
    constant=-_CPU_PART / (exp(6 / 4) - 1),
    most_cores=MARL_MOST_CORES,
)
"""Chosen so that the slowdown is 0 without neighbours. The terms of the job's own cores and PCIe have the coefficient 0."""


_LESS_SENSITIVE = {
    0.5: (
        "transformer",
        "deepspeech",
        "transformer-xl",
        "fsdp",
        "moe",
        "seq2seq",
        "wlm",
        "ctc",
        "cnn-text-classification",
    ),
    0.0: ("dlrm", "graphsage", "dssm"),
}
SPEED_SENSITIVITY = {key_of(name): share for share, names in _LESS_SENSITIVE.items() for name in names}
"""Sensitivity by model; 1 for all others."""


def paper_profiles(*papers: str) -> ModelProfiles:
    """Return the profiles of those papers' models, or of all papers; a later paper's profile replaces an earlier one's."""
    models: dict[str, ModelProfile] = {}
    for paper in papers or PAPERS:
        models.update({key_of(name): profile for name, profile in _BY_NAME[paper].items()})
    models = {
        key: replace(profile, speed_sensitivity=SPEED_SENSITIVITY.get(key, 1.0)) for key, profile in models.items()
    }
    return ModelProfiles(models, PAIRS, INTERFERENCE)
