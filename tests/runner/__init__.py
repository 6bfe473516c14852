# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/run.py: what a test is (job), which one starts next (schedule), running it (process), and what
is said of it (report)."""
