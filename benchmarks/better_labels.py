"""RAPW and its controls on CIFAR with a fast ResNet-18: averaged weights, strong augmentation, one view or two.

    python benchmarks/better_labels.py run --data DIR --out FILE.json set=c10n method=rapw seed=0
    python benchmarks/better_labels.py pack JOBS.json --data DIR --out DIR --workers 6 [--watch]
    python benchmarks/better_labels.py table DIR

DIR holds `cifar-10-batches-bin`, `cifar-100-binary` and the CIFAR-N files `CIFAR-10_human.pt`, `CIFAR-100_human.pt`.
Only the training files are read, unless `test=1`. 5,000 rows of the training set, drawn by the run's seed, keep their
clean labels and are the validation split; the clean labels of the other 45,000 are used for reporting only. Decision 5
is the protocol; `docs/results/better-labels.md` has the figures. RAPW is the library's: it plans each epoch, gives the
targets and takes the epoch's predictions in, and only the step on these targets is captured here. Needs torch and
NumPy, and a GPU; on a CPU, try `limit=512 net=simple epochs=2 batch=64`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from better_labels_data import Config, draw_views, load, mix_rows, normal
from better_labels_scores import Margins, Watched, auroc, dump, scores, temperature
from torch import Tensor, nn
from torch.nn import functional as F

from torchcurriculum import Batch, Epoch, Step, methods
from torchcurriculum.functional.elr import early_learning_penalty, early_learning_target
from torchcurriculum.functional.rapw import plausible
from torchcurriculum.functional.superloss import confidence
from torchcurriculum.functional.views import answer
from torchcurriculum.lab.models.resnet import resnet18
from torchcurriculum.lab.models.small import simple_cnn

CHECKED = 500  # validation rows to which a temperature is fitted; their labels are right


def targets_of(cfg: Config, method: methods.RAPW, y: Tensor, epoch: int) -> Tensor:
    """Weighted targets (N, C): the sum of a row is what it counts."""
    given = F.one_hot(y, method.predictions.shape[1]).float() if method.predictions.numel() else None
    if cfg.method == "rapw" or given is None:
        return method._targets(torch.arange(method.n, device=y.device), y)
    if cfg.method == "argmax" and epoch > cfg.plain * cfg.epochs:
        return given * (method.predictions.argmax(1) == y)[:, None]
    return given


# ------------------------------------------------------------------------------------------------------------ training


class Trainer:
    """One step of SGD on fixed buffers, captured as a CUDA graph where there is one."""

    def __init__(self, cfg: Config, classes: int, dev: str) -> None:
        self.cfg, self.dev, self.graph = cfg, dev, None
        self.dtype = torch.bfloat16 if dev == "cuda" else torch.float32

        def build() -> nn.Module:
            return simple_cnn(classes) if cfg.net == "simple" else resnet18(classes)

        self.net = build().to(dev, memory_format=torch.channels_last)
        self.avg = build().to(dev, memory_format=torch.channels_last).requires_grad_(False)
        self.avg.load_state_dict(self.net.state_dict())
        self.call = torch.compile(self.net, dynamic=False) if cfg.compile and dev == "cuda" else self.net
        self.params = list(self.net.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.params]
        self.mean = list(self.avg.parameters())
        n = cfg.batch * (2 if cfg.views == "ws" else 1)
        self.x = torch.zeros(n, 3, 32, 32, device=dev, dtype=self.dtype).to(memory_format=torch.channels_last)
        self.target = torch.full((n, classes), 1 / classes, device=dev)
        self.lr = torch.tensor(0.0, device=dev)
        self.out = torch.zeros(n, classes, device=dev)
        self.usual = torch.full((classes,), 1 / classes, device=dev)
        self.ramp = torch.tensor(0.0, device=dev)
        self.typical = torch.full((classes,), torch.inf, device=dev)  # RAPW's usual losses in the plain epochs
        self.doubt = torch.tensor(0.0, device=dev)
        self.earlier = torch.zeros(cfg.batch, classes, device=dev)  # ELR's targets of the batch

    @torch.no_grad()
    def guess(self, z: Tensor) -> Tensor:
        """Targets of both views: the strong one's are, in part, the network's answer to the weak one."""
        size, cfg = self.cfg.batch, self.cfg
        self.usual += 0.01 * (z[:size].softmax(1).mean(0) - self.usual)
        own = answer(z[:size], self.usual, cfg.temper)
        share = cfg.consist * self.ramp
        strong = share * own + (1 - share) * self.target[size:]
        return torch.cat([self.target[:size], strong])

    def early(self, target: Tensor, log: Tensor) -> Tensor:
        """What rows count in the plain epochs beside their targets, and 1 later."""
        given = target.argmax(1)
        counts = plausible(-log.gather(1, given[:, None]).squeeze(1), self.typical[given], self.doubt)
        return counts / (counts * target.sum(1)).mean().clamp_min(1e-6)

    def step(self) -> None:
        with torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            z = self.call(self.x)
        z = z.float()
        target = self.guess(z.detach()) if self.cfg.consist else self.target
        log = z.log_softmax(1)
        loss = -(target * log).sum(1)
        if self.cfg.method == "rapw":
            loss[: self.cfg.batch] *= self.early(target[: self.cfg.batch], log[: self.cfg.batch].detach())
        if self.cfg.loss == "superloss":
            loss = loss * confidence(loss, math.log(z.shape[1]), self.cfg.lam).float()
        if self.cfg.loss == "elr":
            self.earlier.lerp_(early_learning_target(z.detach()), 1 - self.cfg.beta)
            loss = loss + self.cfg.lam * early_learning_penalty(z, self.earlier)
        loss = loss.mean()
        for p in self.params:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            self.out.copy_(z)
            grads = [p.grad for p in self.params]
            knobs = {"weight_decay": self.cfg.wd, "momentum": 0.9, "lr": self.lr, "dampening": 0.0}
            flags = {"nesterov": True, "maximize": False, "is_first_step": False}
            torch._fused_sgd_(self.params, grads, self.velocity, **knobs, **flags)
            torch._foreach_lerp_(self.mean, self.params, 1 - self.cfg.average)

    def capture(self) -> None:
        """Compiles and captures the step, then restores weights and statistics."""
        if self.dev != "cuda":
            return
        state = {k: v.clone() for k, v in self.net.state_dict().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph
        self.net.load_state_dict(state)
        self.avg.load_state_dict(state)
        for v in self.velocity:
            v.zero_()
        self.usual.fill_(1 / len(self.usual))

    def go(self, x: list[Tensor], target: list[Tensor], lr: float) -> Tensor:
        size = self.cfg.batch
        for k, (image, wanted) in enumerate(zip(x, target, strict=True)):
            self.x[k * size : (k + 1) * size].copy_(image)
            self.target[k * size : (k + 1) * size].copy_(wanted)
        self.lr.fill_(lr)
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()
        return self.out[:size]

    def settle(self, x: Tensor) -> None:
        """Re-estimates the averaged network's batch statistics: those of the raw network do not fit its weights."""
        for part in self.avg.modules():
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                part.reset_running_stats()
                part.momentum = None
        self.avg.train()
        with torch.no_grad(), torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            for part in x.split(500):
                self.avg(part)

    def predict(self, net: nn.Module, x: Tensor) -> Tensor:
        """Logits of uint8 images in evaluation mode."""
        net.eval()
        out = []
        with torch.no_grad(), torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            for part in x.split(1000):
                out.append(net(normal(part.permute(0, 3, 1, 2).float() / 255, self.dtype)).float())
        net.train()
        return torch.cat(out)


def report(cfg: Config, t: Trainer, method: methods.RAPW, aum: Tensor, d: dict[str, Tensor], target: Tensor) -> dict:
    """Validation figures, and how good memory and targets are against the clean labels."""
    out: dict = {}
    for kind, net in (("raw", t.net), ("avg", t.avg)):
        z, y = t.predict(net, d["valid_x"]), d["valid_y"]
        out[f"valid_{kind}"], warm = scores(z, y), temperature(z[:CHECKED], y[:CHECKED])
        if cfg.test:
            z, y = t.predict(net, d["test_x"]), d["test_y"]
            out[f"test_{kind}"] = scores(z, y) | {"ece_tempered": scores(z / warm, y)["ece"]}
    y, right = d["y"], d["y"] == d["clean"]
    memory = method.predictions
    memory = memory / memory.sum(1, keepdim=True).clamp_min(1e-30)
    mine = memory.gather(1, y[:, None]).squeeze(1)
    kinds = {"q": mine, "gap": mine - memory.scatter(1, y[:, None], -1).amax(1), "aum": aum, "post": method.weights}
    out["auroc"] = {k: auroc(v, right) for k, v in kinds.items()}
    share = {"true": (~right).float(), "argmax": (memory.argmax(1) != y).float(), "rho": method.rho}
    out["share"] = {k: round(v.mean().item(), 4) for k, v in share.items()}
    weight = target.sum(1)
    good = (target.argmax(1) == d["clean"]).float()
    out["target_right"] = round((weight * good).sum().item() / max(weight.sum().item(), 1e-9), 4)
    out["weight"] = round(weight.mean().item(), 4)
    out |= {k: round(float(v), 3) for k, v in method.report().items()}
    out["memory_right"] = round((memory.argmax(1) == d["clean"]).float().mean().item(), 4)
    return out


def plan_rows(cfg: Config, target: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of this epoch in their order, whole batches only, and their targets, normalised over each batch."""
    order = torch.randperm(len(target), device=target.device)
    order = order[: len(order) // cfg.batch * cfg.batch]
    wanted = target[order]
    mean = wanted.sum(1).view(-1, cfg.batch).mean(1).clamp_min(1e-6)
    return order, wanted / mean.repeat_interleave(cfg.batch)[:, None]


def padded_images(x: Tensor) -> Tensor:
    """(N, H + 8, W + 8, 3) bytes, mirrored at the edges."""
    padded = F.pad(x.permute(0, 3, 1, 2).float(), (4, 4, 4, 4), mode="reflect").to(torch.uint8)
    return padded.permute(0, 2, 3, 1).contiguous()


def rate(cfg: Config, done: float) -> float:
    """The learning rate after this share of the run: two epochs of warm-up, then half a cosine."""
    return cfg.lr * min(1.0, done * cfg.epochs / 2 + 1e-3) * 0.5 * (1 + math.cos(math.pi * done))


def train(cfg: Config, root: Path, out: Path) -> None:
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = bool(cfg.benchmark)
    start = time.time()
    data, classes = load(cfg, root)
    d = {k: v.to(dev) for k, v in data.items()}
    n, size, padded = len(d["y"]), cfg.batch, padded_images(d["x"])
    trainer = Trainer(cfg, classes, dev)
    trainer.capture()
    method, margins = methods.RAPW(n, round(cfg.plain * cfg.epochs), caution=cfg.caution).to(dev), Margins(n, dev)
    watched = Watched(d["y"], d["clean"], classes) if cfg.audit else None
    result = {"config": dataclasses.asdict(cfg), "device": "cpu", "torch": torch.__version__, "curve": []}
    if dev == "cuda":
        result["device"] = torch.cuda.get_device_name()
    recent = torch.full((n,), torch.inf, device=dev)
    earlier = torch.zeros(n, classes, device=dev)
    result["ready_s"], passes, plain, begun = round(time.time() - start, 1), 0.0, 0, time.time()
    for e in range(cfg.epochs):
        method.plan(Epoch(e + 1, n, recent, lambda: None))
        trainer.typical.fill_(torch.inf)
        if method.usual.numel() and not method.late:
            trainer.typical.copy_(method.usual)
            trainer.doubt.copy_(method.doubt)
        target = targets_of(cfg, method, d["y"], e + 1)
        if target.shape[1] == 1:  # nothing is remembered yet
            target = target * F.one_hot(d["y"], classes)
        order, wanted = plan_rows(cfg, target)
        views = draw_views(cfg, padded, order, trainer.dtype)
        sample = torch.cat([v[:6000:2] if len(views) == 2 else v[:6000] for v in views])
        targets = [wanted] * len(views)
        if cfg.mix:
            views[-1], targets[-1] = mix_rows(views[-1], wanted)
        trainer.ramp.fill_(min(1.0, e / max(cfg.ramp * cfg.epochs, 1)))
        seen, steps = torch.empty(len(order), classes, device=dev), len(order) // size
        for s in range(steps):
            at = slice(s * size, (s + 1) * size)
            lr = rate(cfg, (e + s / steps) / cfg.epochs)
            if cfg.loss == "elr":
                trainer.earlier.copy_(earlier[order[at]])
            seen[at] = trainer.go([v[at] for v in views], [t[at] for t in targets], lr)
            if cfg.loss == "elr":
                earlier[order[at]] = trainer.earlier
        plain += int(not method.late)
        passes += len(views) * len(order) / n
        if e < 2:
            torch._foreach_copy_(trainer.mean, [v.detach() for v in trainer.params])
        y = d["y"][order]
        if cfg.mix:  # a mixed row's output says nothing about the row
            seen = F.one_hot(y, classes).float()
        recent[order] = F.cross_entropy(seen, y, reduction="none")
        method.weigh(Step(None, Batch(None, y, order), seen, recent[order]))
        margins.update(order, seen, y)
        if watched is not None:
            watched.update(order, seen, y)
        last = e + 1 == cfg.epochs
        if last or (e + 1) % cfg.every == 0:
            trainer.settle(sample)
            row = {"epoch": e + 1, "s": round(time.time() - begun, 1), "passes": round(passes, 2)}
            row |= report(cfg, trainer, method, margins.aum, d, target)
            row["plain"] = plain
            result["curve"].append(row)
            out.write_text(json.dumps(result))
        if str(e + 1) in cfg.dump.split("+"):
            dump(out.with_name(f"{out.stem}-e{e + 1}.npz"), method.predictions, d, aum=margins.aum)
    if cfg.fold >= 0:
        dump(out.with_name(f"{out.stem}-fold.npz"), trainer.predict(trainer.avg, d["fold_x"]).softmax(1), d, "fold_")
    if watched is not None:
        result["audit"] = watched.judge()
        write_audited(watched, d, out)
        out.write_text(json.dumps(result))
    print(line(result), flush=True)


def write_audited(watched: Watched, d: dict[str, Tensor], out: Path) -> None:
    """What the audit has seen, beside the results."""
    mean = torch.from_numpy(watched.record.arrays["mean_probabilities"])
    losses = torch.from_numpy(np.stack(list(watched.record.rows("losses")))).half()
    mean = mean.where(mean > 1e-4, 0)  # small ones take space
    dump(out.with_name(f"{out.stem}-audit.npz"), mean, d, losses=losses)


# ------------------------------------------------------------------------------------------------------------- running


def line(result: dict) -> str:
    c, r = result["config"], result["curve"][-1]
    a, v, w, u = r["valid_raw"], r["valid_avg"], r["auroc"], r["share"]
    text = f"{c['name'][:28]:28} {c['set']:8} s{c['seed']} e{r['epoch']:3} raw {a['acc']:5.2f}/{a['eprop']:5.2f}"
    text += f" avg {v['acc']:5.2f}/{v['eprop']:5.2f} ece {v['ece']:4.1f} |"
    if "test_avg" in r:
        text += f" test {r['test_avg']['acc']:5.2f}/{r['test_avg']['eprop']:5.2f} ece {r['test_avg']['ece']:4.1f} |"
    text += f" q {w['q']} aum {w['aum']} post {w['post']} | share am {u['argmax']:.3f} rho {u['rho']:.3f} |"
    text += f" tr {r['target_right']:.3f} w {r['weight']:.2f} power {r['power']} f {r['learned']} v {r['uneven']} |"
    if found := result.get("audit"):
        text += f" audit {found['share']:.3f} [{found['low']:.3f}, {found['high']:.3f}] called {found['called']}"
        text += f" ({found['falsely']}) {found['auroc'] and round(found['auroc'], 4)} {' '.join(found['health'])} |"
    return text + f" plain {r['plain']} {r['passes']:.0f}p {r['s']:.0f}s"


def pack(jobs: Path, root: Path, out: Path, workers: int, watch: bool) -> None:
    """Runs the jobs of a JSON list, several at once; with `watch`, reads the list again until `stop` lies beside it."""
    out.mkdir(parents=True, exist_ok=True)
    begun: set[str] = set()
    running: list[subprocess.Popen] = []
    while True:
        todo = [job for job in (json.loads(jobs.read_text()) if jobs.exists() else []) if job["id"] not in begun]
        running = [p for p in running if p.poll() is None]
        while todo and len(running) < workers:
            job = todo.pop(0)
            begun.add(job["id"])
            words = [f"{k}={v}" for k, v in job.items() if k != "id"]
            command = [sys.executable, __file__, "run", "--data", str(root), "--out", str(out / f"{job['id']}.json")]
            with (out / f"{job['id']}.log").open("w") as log:
                running.append(subprocess.Popen(command + words, stdout=log, stderr=log))
        if not running and not todo and (not watch or (jobs.parent / "stop").exists()):
            return
        time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "pack", "table"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs/better_labels"))
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--watch", action="store_true")
    args = parser.parse_intermixed_args()
    if args.what == "run":
        types = {f.name: type(f.default) for f in dataclasses.fields(Config)}
        pairs = dict(word.split("=", 1) for word in args.words)
        cfg = Config(**{k: types[k](v) for k, v in pairs.items()})
        train(cfg, args.data, args.out)
    elif args.what == "pack":
        pack(Path(args.words[0]), args.data, args.out, args.workers, args.watch)
    else:
        for path in sorted(Path(args.words[0]).glob("*.json")):
            print(line(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
