"""The sampler once more in numpy, plainly: every step as its paper or the sampler's header has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

DEFAULTS: dict[str, Any] = {
    "logit_bias": {}, "min_tokens": 0, "eog_ids": (), "repeat_penalty": 1.0, "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "penalty_last_n": -1, "dry_multiplier": 0.0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_breakers": (), "top_n_sigma": -1.0, "top_k": 0,
    "typical_p": 1.0, "top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0, "xtc_threshold": 0.1,
    "temperature": 1.0, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "mirostat_mode": 0,
    "mirostat_tau": 5.0, "mirostat_eta": 0.1, "seed": 0,
    "samplers": (
        "penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature",
    ),
}  # fmt: skip


def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed: int, choice: int, pos: int, purpose: int = 0) -> float:
    low, high, _, _ = philox4x32(
        [pos & 0xFFFFFFFF, pos >> 32, choice, purpose], [seed & 0xFFFFFFFF, seed >> 32]
    )
    return ((high << 32 | low) >> 11) * 2.0**-53


class Reference:
    """ids ascending (n), x their logits (n) float32, t the temperature so far."""

    def __init__(self, n_vocab: int, **params: Any) -> None:
        self.n_vocab = n_vocab
        p: Mapping[str, Any] = {**DEFAULTS, **params}
        # The core keeps floats as float32.
        self.p = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in p.items()}
        self.mu = 2 * self.p["mirostat_tau"]
        self.reach: int | None = None  # tokens since a breaker of several, told by the test
        self.whole: dict[int, float] = {}  # probabilities before mirostat cut

    def distribution(
        self, logits: np.ndarray, history: Sequence[int], pos: int, *, choice: int = 0, n_prompt: int = 0
    ) -> dict[int, float]:
        self.x, self.ids, self.t = logits.astype(np.float32).copy(), np.arange(len(logits)), 1.0
        self.history, self.n_prompt, self.draw = list(history), n_prompt, (choice, pos)
        greedy, mirostat = self.p["temperature"] <= 0, self.p["mirostat_mode"]
        self.bias()
        for name in self.p["samplers"]:
            if greedy and name not in ("penalties", "dry"):
                continue
            if mirostat and name not in ("penalties", "dry", "temperature"):
                continue
            getattr(self, name)()
        if greedy:
            return {int(self.ids[self.rank()[0]]): 1.0}
        if mirostat:
            self.mirostat()
        return self.told()

    def sample(self, *args: Any, **kwargs: Any) -> int:
        likely = self.distribution(*args, **kwargs)
        ids, cumulative = list(likely), np.cumsum(list(likely.values()))
        choice, pos = self.draw
        token = ids[int(np.argmax(cumulative > uniform(self.p["seed"], choice, pos) * cumulative[-1]))]
        if self.p["mirostat_mode"] and self.p["temperature"] > 0:
            self.mu -= self.p["mirostat_eta"] * (-np.log2(self.whole[token]) - self.p["mirostat_tau"])
        return token

    # What the steps see

    def told(self) -> dict[int, float]:
        return {int(i): float(q) for i, q in zip(self.ids, self.q(), strict=True) if q > 0}

    def rank(self) -> np.ndarray:
        return np.lexsort((self.ids, -self.x))

    def q(self) -> np.ndarray:
        exponent = (self.x.astype(np.float64) - float(self.x.max())) / self.t
        with np.errstate(under="ignore"):
            weight = np.exp(exponent)
        weight[np.rint(exponent * np.log2(np.e)) < -1022] = 0  # the core has no subnormal weights
        return weight / weight.sum()

    def entropy(self) -> float:
        q = self.q()
        return float(-(q[q > 0] * np.log(q[q > 0])).sum())

    def keep(self, mask: np.ndarray) -> None:
        mask = mask & np.isfinite(self.x)
        self.x, self.ids = self.x[mask], self.ids[mask]

    def change(self, token: int, value: float) -> None:
        largest = float(np.finfo(np.float32).max)
        self.x[self.ids == token] = np.float32(np.clip(value, -largest, largest))

    def logit(self, token: int) -> float:
        found = self.x[self.ids == token]
        return float(found[0]) if len(found) else -np.inf

    # The steps

    def bias(self) -> None:
        bias = self.p["logit_bias"]
        only = [token for token, b in bias.items() if b == np.inf]
        if only:
            self.x[~np.isin(self.ids, only)] = -np.inf
        for token, b in bias.items():
            if np.isfinite(b) and np.isfinite(self.logit(token)):
                self.change(token, self.logit(token) + float(np.float32(b)))
            elif b == -np.inf:
                self.x[token] = -np.inf
        if len(self.history) - self.n_prompt < self.p["min_tokens"]:
            self.x[list(self.p["eog_ids"])] = -np.inf

    def penalties(self) -> None:
        last_n = self.p["penalty_last_n"]
        first = 0 if last_n < 0 else max(0, len(self.history) - last_n)
        answer = self.history[max(first, self.n_prompt) :]
        for token in set(self.history[first:]):
            value = self.logit(token)
            if value == -np.inf:
                continue
            value = value / self.p["repeat_penalty"] if value > 0 else value * self.p["repeat_penalty"]
            if token in answer:
                count = answer.count(token)
                value -= self.t * (count * self.p["frequency_penalty"] + self.p["presence_penalty"])
            self.change(token, value)

    def dry(self) -> None:
        """By definition: every earlier occurrence of the end, compared token by token."""
        last_n, breakers = self.p["dry_penalty_last_n"], [list(b) for b in self.p["dry_breakers"]]
        history = self.history if last_n < 0 else self.history[max(0, len(self.history) - last_n) :]
        if self.p["dry_multiplier"] == 0:
            return
        n = len(history)
        reach = n if self.reach is None else self.reach
        for breaker in breakers:
            for start in range(n - len(breaker) + 1):
                if history[start : start + len(breaker)] == breaker:
                    reach = min(reach, n - start - len(breaker))
        longest: dict[int, int] = {}
        for end in range(1, n):  # history[end] followed this occurrence
            length = 0
            while length < min(end, reach) and history[end - 1 - length] == history[n - 1 - length]:
                length += 1
            longest[history[end]] = max(longest.get(history[end], 0), length)
        for token, length in longest.items():
            value = self.logit(token)
            if length >= self.p["dry_allowed_length"] and [token] not in breakers and value > -np.inf:
                power = self.p["dry_base"] ** (length - self.p["dry_allowed_length"])
                self.change(token, value - self.p["dry_multiplier"] * power * self.t)

    def top_n_sigma(self) -> None:
        if self.p["top_n_sigma"] > 0:
            x = self.x.astype(np.float64)
            sigma = x[np.isfinite(x)].std()
            self.keep(x >= x.max() - self.p["top_n_sigma"] * sigma)

    def top_k(self) -> None:
        if self.p["top_k"] > 0:
            self.keep(np.isin(np.arange(len(self.x)), self.rank()[: self.p["top_k"]]))

    def first_of(self, order: np.ndarray, share: float) -> None:
        """Keep the first in order that reach the share."""
        q = self.q()
        order = order[q[order] > 0]
        reached = np.cumsum(q[order]) >= share
        n = int(np.argmax(reached)) + 1 if reached.any() else len(order)
        self.keep(np.isin(np.arange(len(self.x)), order[:n]))

    def typical_p(self) -> None:
        if self.p["typical_p"] < 1:
            with np.errstate(divide="ignore"):
                surprise = -np.log(self.q())
            far = np.abs(surprise - self.entropy())
            self.first_of(np.lexsort((self.ids, np.round(far, 9))), self.p["typical_p"])

    def top_p(self) -> None:
        if self.p["top_p"] < 1:
            self.first_of(self.rank(), self.p["top_p"])

    def min_p(self) -> None:
        q = self.q()
        if self.p["min_p"] > 0:
            self.keep((q >= self.p["min_p"] * q.max()) | (q == q.max()))

    def xtc(self) -> None:
        choice, pos = self.draw
        if uniform(self.p["seed"], choice, pos, purpose=1) >= self.p["xtc_probability"]:
            return
        if self.p["xtc_threshold"] > 0.5:
            return
        order, q = self.rank(), self.q()
        n = int((q >= max(self.p["xtc_threshold"], 1e-300)).sum())
        if n >= 2:
            self.keep(~np.isin(np.arange(len(self.x)), order[: n - 1]))

    def temperature(self) -> None:
        t, spread = self.p["temperature"], self.p["dynatemp_range"]
        if spread:
            n = int(np.isfinite(self.x).sum())
            relative = min(1.0, self.entropy() / np.log(n)) if n > 1 else 0.0
            low, high = max(0.0, t - spread), t + spread
            t = low + (high - low) * relative ** self.p["dynatemp_exponent"]
        if t > 0:
            self.t *= t
        else:
            self.keep(np.isin(np.arange(len(self.x)), self.rank()[:1]))

    def mirostat(self) -> None:
        self.whole = self.told()
        order, q = self.rank(), self.q()
        if self.p["mirostat_mode"] == 2:
            with np.errstate(divide="ignore"):
                self.keep((-np.log2(q) <= self.mu) | (np.arange(len(q)) == order[0]))
            return
        top = q[order[:100]]
        i = np.arange(len(top) - 1)
        t = np.log((i + 2) / (i + 1))
        b = np.log(top[:-1] / top[1:])
        if b.sum() <= 0:
            return
        s = (t * b).sum() / (t * t).sum()
        e = s - 1
        k = (e * 2**self.mu / (1 - self.n_vocab**-e)) ** (1 / s)
        self.keep(np.isin(np.arange(len(q)), order[: max(1, round(min(k, len(q))))]))
