"""Runs every optimizer and code of MXNet on the inputs of `inputs.py` and writes what came out as JSON, numbers as the hex of their bits."""

import json
import math
import pathlib
import sys

import mxnet as mx
import numpy

import inputs
from two_bit import TwoBit, one_bit

TARGET = pathlib.Path(__file__).resolve().parents[2] / "crates/optimizer/tests/golden"
KEEP = (1, 2, 10, inputs.STEPS)


class AdamW:
    """The operator `adamw_update`, given the rates that a decoupled decay with bias correction has."""

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, wd=0.0, rescale_grad=1.0, clip_gradient=None, correct_bias=True):
        self.__dict__.update(locals())
        self.t = 0

    def create_state_multi_precision(self, index, weight):
        return (mx.nd.zeros(weight.shape, dtype=weight.dtype), mx.nd.zeros(weight.shape, dtype=weight.dtype))

    def update_multi_precision(self, index, weight, grad, state):
        self.t += 1
        rate = self.learning_rate
        if self.correct_bias:
            rate *= math.sqrt(1.0 - self.beta2**self.t) / (1.0 - self.beta1**self.t)
        more = {} if self.clip_gradient is None else {"clip_gradient": self.clip_gradient}
        mx.nd.contrib.adamw_update(
            weight, grad, state[0], state[1], mx.nd.array([self.rescale_grad]), lr=rate, wd=self.learning_rate * self.wd,
            eta=1.0, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, out=weight, **more)  # fmt: skip


def create(name, options):
    options = dict(options)
    schedule = options.pop("lr_scheduler", None)
    if schedule:
        kind, settings = schedule
        options["lr_scheduler"] = getattr(mx.lr_scheduler, kind + "Scheduler")(**settings)
    return AdamW(**options) if name == "adamw" else mx.optimizer.create(name, **options)


def bits(array):
    width = {"float16": "<u2", "float32": "<u4", "float64": "<u8"}[str(array.dtype)]
    return [format(number, "x") for number in array.reshape(-1).view(width).tolist()]


def run(name, options, sparse=False, dtype="float32"):
    optimizer = create(name, options)
    weight = mx.nd.array(inputs.weights(dtype), dtype=dtype).reshape((inputs.ROWS, inputs.COLUMNS))
    if sparse:
        weight = weight.tostype("row_sparse")
    state = optimizer.create_state_multi_precision(0, weight)
    after = {}
    for step in range(1, inputs.STEPS + 1):
        dense = inputs.gradient(step, dtype).reshape(inputs.ROWS, inputs.COLUMNS)
        if sparse:
            rows = inputs.rows(step)
            grad = mx.nd.sparse.row_sparse_array((dense[rows], rows), shape=dense.shape, dtype=dtype)
        else:
            grad = mx.nd.array(dense, dtype=dtype)
        optimizer.update_multi_precision(0, weight, grad, state)
        if step in KEEP:
            after[step] = bits(weight.tostype("default").asnumpy() if sparse else weight.asnumpy())
    return {"name": name, "options": options, "sparse": sparse, "dtype": dtype, "after": after}


def optimizers():
    plain, full = {}, {"wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.3}
    schedule = {"lr_scheduler": ["Factor", {"step": 7, "factor": 0.5, "base_lr": 0.05}]}
    cosine = {"lr_scheduler": ["Cosine", {"max_update": 40, "base_lr": 0.05, "final_lr": 0.001, "warmup_steps": 5, "warmup_begin_lr": 0.01}]}
    rate = {"learning_rate": 0.05}
    kinds = [
        ("sgd", {}), ("sgd", {"momentum": 0.9}), ("nag", {}), ("nag", {"momentum": 0.9}), ("signum", {}), ("signum", {"momentum": 0.0}),
        ("signum", {"wd_lh": 0.1}), ("ftml", {}), ("dcasgd", {}), ("adam", {}), ("adam", {"epsilon": 1e-3, "beta1": 0.8}),
        ("adamw", {}), ("adamw", {"correct_bias": False}), ("adagrad", {}), ("rmsprop", {}), ("rmsprop", {"centered": True}), ("rmsprop", {"clip_weights": 0.5}),
        ("rmsprop", {"centered": True, "clip_weights": 0.5}), ("adadelta", {}), ("ftrl", {}), ("ftrl", {"lamda1": 0.1, "beta": 0.5}), ("adamax", {}), ("nadam", {}), ("lamb", {}),
        ("lamb", {"lower_bound": 0.1, "upper_bound": 0.2}), ("lamb", {"bias_correction": False}), ("lars", {}), ("lars", {"momentum": 0.9, "eta": 0.1}), ("test", {}),
    ]  # fmt: skip
    cases = [run(name, {**own, **common}) for name, own in kinds for common in (plain, full, {**full, **rate}, {"wd": 0.1, **rate})]
    cases += [run(name, {**own, **schedule}) for name, own in (("sgd", {"momentum": 0.9}), ("ftml", {}), ("lars", {"momentum": 0.9, "eta": 0.1}))]
    cases += [run("sgd", {**cosine, "begin_num_update": 3})]
    sparse_kinds = [
        ("sgd", {}), ("sgd", {"momentum": 0.9}), ("sgd", {"lazy_update": False}), ("sgd", {"momentum": 0.9, "lazy_update": False}), ("adam", {}),
        ("adam", {"lazy_update": False}), ("adagrad", {}), ("ftrl", {}), ("nag", {}), ("nag", {"momentum": 0.9}), ("signum", {}), ("signum", {"momentum": 0.0}),
        ("ftml", {}), ("dcasgd", {}), ("adamw", {}), ("rmsprop", {}), ("rmsprop", {"centered": True}), ("adadelta", {}), ("adamax", {}), ("nadam", {}), ("lamb", {}),
        ("lars", {}), ("lars", {"momentum": 0.9, "eta": 0.1}),
    ]  # fmt: skip
    for name, own in sparse_kinds:
        for common in (rate, {**full, **rate}):
            if name == "adagrad":
                common = {key: value for key, value in common.items() if key != "wd"}
            if name == "adamax" and "wd" not in common:
                continue  # rows that never had a gradient become 0/0 there
            cases.append(run(name, {**own, **common}, sparse=True))
    half = [("sgd", {}), ("sgd", {"momentum": 0.9}), ("nag", {"momentum": 0.9}), ("adam", {})]
    cases += [run(name, {**own, **full, "multi_precision": True}, dtype="float16") for name, own in half]
    return cases


def rates(scheduler):
    return [float(scheduler(update)) for update in range(41)]


def schedules():
    kinds = [
        ("Factor", {"step": 3, "factor": 0.9, "base_lr": 0.1}), ("Factor", {"step": 1, "factor": 0.1, "stop_factor_lr": 1e-4, "base_lr": 1.0, "warmup_steps": 4}),
        ("MultiFactor", {"step": [3, 8, 20], "factor": 0.3, "base_lr": 0.1, "warmup_steps": 5, "warmup_begin_lr": 0.02, "warmup_mode": "constant"}),
        ("Poly", {"max_update": 30, "base_lr": 0.1, "pwr": 2, "final_lr": 0.001, "warmup_steps": 5}), ("Poly", {"max_update": 30, "base_lr": 0.1, "pwr": 0.9}),
        ("Cosine", {"max_update": 30, "base_lr": 0.1, "final_lr": 0.001, "warmup_steps": 5, "warmup_begin_lr": 0.01}),
    ]  # fmt: skip
    return [
        {"kind": kind, "settings": settings, "rates": [rates(getattr(mx.lr_scheduler, kind + "Scheduler")(**settings))]} for kind, settings in kinds
    ]


def codes():
    special = numpy.array([0.5, -0.5, 0.49999997, -0.49999997, 0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1e30, -1e30, 1e-45, 1.0, -1.0], dtype="float32")
    cases = []
    for count in list(range(1, 35)) + [100]:
        numbers = numpy.arange(count * 3, dtype=numpy.int64)
        rounds = ((numbers * 7919 + count * 31) % 2003 / 1001.5 - 1.0).astype("float32").reshape(3, count)
        if count % 2 == 0:
            rounds[1, :] = special[numpy.arange(count) % len(special)]
        for kind, threshold in (("2bit", 0.5), ("2bit", 0.123), ("1bit", 0.0), ("1bit", -0.25)):
            code, residual, found = TwoBit(threshold), numpy.zeros(count, dtype="float32"), []
            for gradient in rounds:
                words, residual = code.quantize(gradient, residual) if kind == "2bit" else one_bit(gradient, residual, threshold)
                # Residuals of some lengths are enough: all of them would be most of the file.
                found.append({"words": words.hex(), "residual": bits(residual) if count < 35 and count % 8 < 2 else None})
            cases.append({"kind": kind, "threshold": threshold, "count": count, "rounds": found})
    return cases


def write(name, content):
    (TARGET / name).write_text("[\n" + ",\n".join(json.dumps(line, separators=(",", ":")) for line in content) + "\n]\n")


def main():
    if mx.__version__ != "1.9.1":
        sys.exit(f"this is MXNet {mx.__version__}; the files are those of 1.9.1")
    TARGET.mkdir(parents=True, exist_ok=True)
    write("optimizers.json", optimizers())
    write("schedules.json", schedules())
    write("codes.json", codes())


main()
