#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 9 s, waiting
"""The picture and output of examples/demo.py: labels do not overlap, and slow ranks get a reason."""
import contextlib
import importlib.util
import io
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "examples"))


def run_of(ranks, rate):
    import torch

    curves = [{"loss": 2 / epoch, "accuracy": 0.9, "images_per_second": rate} for epoch in range(1, 16)]
    return {"ranks": ranks, "curves": curves, "weights": {"w": torch.zeros(10)}}


class Picture(unittest.TestCase):
    def labels(self, changes):
        """Draws. Returns the boxes of the left plot's labels, that plot, and the figure."""
        import demo
        from matplotlib import pyplot

        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"hvd-demo-{os.getpid()}.png")
        try:
            demo.draw((run_of(4, 100), run_of(1, 100)), run_of(6, 100), changes, path)
        finally:
            if os.path.exists(path):
                os.unlink(path)
        figure = pyplot.gcf()
        self.addCleanup(pyplot.close, figure)
        axis = figure.axes[0]
        return [text.get_window_extent() for text in axis.texts], axis, figure

    def test_changes_of_one_epoch(self):
        changes = [(4, 3, 10.8, "killed"), (9, 4, 216.1, "scaled")]
        changes += [(9, 5, 9.8, "joined"), (9, 6, 1234.5, "joined")]
        boxes, axis, figure = self.labels(changes + [(10, 7, 1.0, "joined"), (14, 8, 1.0, "joined")])
        self.assertEqual(len(boxes), 6)
        legend = figure.legends[0].get_window_extent()
        for i, box in enumerate(boxes):
            self.assertFalse(box.overlaps(legend))
            self.assertLess(box.x1, axis.get_window_extent().x1)
            for other in boxes[:i]:
                self.assertFalse(box.overlaps(other), f"label {i} lies over another")


class Speed(unittest.TestCase):
    def said(self, ranks, single):
        import demo

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            demo.tell_speed(run_of(4, ranks), run_of(1, single))
        return out.getvalue()

    def test_slower(self):
        speeds = "4 ranks trained 50 images/s, 1 process 100 images/s.\n"
        self.assertIn(speeds + "More ranks are not faster", self.said(50, 100))

    def test_faster(self):
        self.assertEqual(self.said(300, 100), "4 ranks trained 300 images/s, 1 process 100 images/s.\n")


if __name__ == "__main__":
    for module in ("torch", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            print(f"SKIP: python/test_demo: python3-{module}: {sys.executable} cannot import it")
            sys.exit(77)
    unittest.main()
