# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/run.py: a test (job), the order of starts (schedule), a running test (process), and the output
(report)."""
