# SPDX-License-Identifier: Apache-2.0
"""horovod.runner"""
def run(*args, **kwargs):
    raise NotImplementedError
