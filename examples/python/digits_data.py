"""The handwritten digits for the examples with frameworks, from the file in this repository: nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).resolve().parents[1] / "data" / "digits" / "digits.csv"


def load(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Images of 8 x 8 with values from 0 to 1, and labels: four fifths to learn from, the rest to test."""
    lines = [line.split(",") for line in FILE.read_text().split()[1:]]
    images = np.array([[int(pixel, 17) for pixel in pixels] for _, pixels in lines], np.float32) / 16
    labels = np.array([int(digit) for digit, _ in lines])
    order = np.random.default_rng(seed).permutation(len(lines))
    learn, test = np.split(order, [len(order) * 4 // 5])
    return images[learn], labels[learn], images[test], labels[test]
