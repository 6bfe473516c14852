# SPDX-License-Identifier: Apache-2.0
"""Fewer bytes on the wire: gradients travel in a 16-bit type. They are summed in float32 all the same."""
import torch


class Compressor:
    """compress(tensor) -> (what travels, context); decompress(it, context) -> a tensor as before."""

    @staticmethod
    def compress(tensor):
        """Nothing to do."""
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        """Nothing to do."""
        return tensor


class _Narrow(Compressor):
    dtype = None
    beside = True  # compress() keeps nothing: on a GPU it may work on a stream of its own

    @classmethod
    def compress(cls, tensor):
        """Wider floating point becomes the narrow type; all else stays."""
        if tensor.dtype.is_floating_point and tensor.element_size() > 2:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        """Back to the type it had."""
        return tensor if context is None else tensor.to(context)


class _Float16(_Narrow):
    dtype = torch.float16


class _BFloat16(_Narrow):
    dtype = torch.bfloat16


class Compression:
    """The compressors there are."""

    none = Compressor
    fp16 = _Float16
    bf16 = _BFloat16
