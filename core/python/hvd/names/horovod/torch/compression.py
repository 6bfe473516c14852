# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.compression"""
from hvd.torch.compression import Compression, Compressor  # noqa: F401

NoneCompressor, FP16Compressor = Compression.none, Compression.fp16
