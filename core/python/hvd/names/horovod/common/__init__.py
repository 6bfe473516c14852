# SPDX-License-Identifier: Apache-2.0
"""horovod.common: what is the same for all frameworks."""
