#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes scikit-learn's handwritten digits as CSV for digits.c: one line per image, with 64 pixels (0..16)
and the label.

    digits_export.py FILE
"""
import os
import sys

from sklearn.datasets import load_digits


def main():
    path = sys.argv[1]
    digits = load_digits()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".part", "w") as file:
        for pixels, label in zip(digits.data.astype(int).tolist(), digits.target.tolist()):
            file.write(",".join(map(str, pixels + [label])) + "\n")
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
