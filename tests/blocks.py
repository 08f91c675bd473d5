"""Blocks of every GGUF tensor format, made up: random ones, and ones with everything at its limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

# weights and bytes of a block, where its f16 scales lie
_LAYOUT: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "F32": (1, 4, ()),
    "F16": (1, 2, ()),
    "BF16": (1, 2, ()),
    "Q4_0": (32, 18, (0,)),
    "Q4_1": (32, 20, (0, 2)),
    "Q5_0": (32, 22, (0,)),
    "Q5_1": (32, 24, (0, 2)),
    "Q8_0": (32, 34, (0,)),
    "Q2_K": (256, 84, (80, 82)),
    "Q3_K": (256, 110, (108,)),
    "Q4_K": (256, 144, (0, 2)),
    "Q5_K": (256, 176, (0, 2)),
    "Q6_K": (256, 210, (208,)),
    "IQ4_NL": (32, 18, (0,)),
    "IQ4_XS": (256, 136, (0,)),
    "MXFP4": (32, 17, ()),
}
FORMATS = list(_LAYOUT)


def block_weights(name: str) -> int:
    return _LAYOUT[name][0]


def bits(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(x).view(np.uint32)


def _floats(name: str, x: npt.NDArray[np.float32]) -> Bytes:
    if name == "BF16":
        return (x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return x.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)


def _set_scales(name: str, blocks: Bytes, scales: npt.NDArray[np.float32]) -> Bytes:
    rows, n = blocks.shape[:2]
    for i, at in enumerate(_LAYOUT[name][2]):
        blocks[:, :, at : at + 2] = scales[i].astype(np.float16).view(np.uint8).reshape(rows, n, 2)
    return blocks.reshape(rows, -1)


def random_blocks(name: str, rows: int, cols: int, rng: np.random.Generator) -> Bytes:
    """(rows, row bytes): random codes, finite scales of either sign and many sizes, zeros and denormals among them."""
    weights, n_bytes, halves = _LAYOUT[name]
    if weights == 1:
        return _floats(name, rng.standard_normal((rows, cols), dtype=np.float32))
    shape = (rows, cols // weights)
    blocks = rng.integers(0, 256, (*shape, n_bytes), dtype=np.uint8)
    if name == "MXFP4":
        blocks[:, :, 0] = rng.integers(90, 150, shape)
    scales = rng.standard_normal((len(halves), *shape), dtype=np.float32)
    scales *= np.float32(2) ** rng.integers(-26, 1, scales.shape)
    return _set_scales(name, blocks, scales)


def extreme_blocks(name: str, rows: int, cols: int, rng: np.random.Generator) -> Bytes:
    """The same with every byte 0x00, 0xff, 0x7f or 0x80, block by block, and scales up to the largest half."""
    weights, n_bytes, halves = _LAYOUT[name]
    if weights == 1:
        return _floats(name, rng.choice(np.array([0, -0.0, 1e-7, -65504, 3e4], np.float32), (rows, cols)))
    shape = (rows, cols // weights)
    blocks = np.repeat(rng.choice(np.array([0, 255, 127, 128], np.uint8), (*shape, 1)), n_bytes, axis=2)
    if name == "MXFP4":
        blocks[:, :, 0] = rng.choice(np.array([0, 1, 2, 100, 200], np.uint8), shape)
    scales = rng.choice(np.array([65504, -65504, 6e-8, 1, 0], np.float32), (len(halves), *shape))
    return _set_scales(name, blocks, scales)
