# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.elastic"""
