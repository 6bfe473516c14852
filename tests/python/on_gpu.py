#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""on_gpu.py PROGRAM ARGUMENT...: runs a program with its tensors on a GPU, as HVD_TEST_GPU chooses (gpu_mode.py)."""
import os
import runpy
import sys

import gpu_mode

gpu_mode.enter()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
