"""Writes digits.csv from the copy of the data set that comes with scikit-learn.

    python make.py > digits.csv
"""

from sklearn.datasets import load_digits

LEVELS = "0123456789abcdefg"  # 0..16

digits = load_digits()
print("digit,pixels")
for pixels, digit in zip(digits.data.astype(int), digits.target, strict=True):
    print(f"{digit},{''.join(LEVELS[level] for level in pixels)}")
