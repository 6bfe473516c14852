# SPDX-License-Identifier: Apache-2.0
"""Compression of gradients: they are sent as 16-bit floats and summed in float32."""
import torch


class Compressor:
    """Interface: compress(tensor) returns (the tensor to send, a context); decompress(tensor, context)
    restores the type.
    """

    @staticmethod
    def compress(tensor):
        """Returns the tensor unchanged."""
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        """Returns the tensor unchanged."""
        return tensor


class _Narrow(Compressor):
    dtype = None
    side_stream = True  # compress() has no state: on a GPU it may run on a stream of its own

    @classmethod
    def compress(cls, tensor):
        """Converts floating point wider than 16 bits; leaves other tensors."""
        if tensor.dtype.is_floating_point and tensor.element_size() > 2:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        """Converts back to the original type."""
        return tensor if context is None else tensor.to(context)


class _Float16(_Narrow):
    dtype = torch.float16


class _BFloat16(_Narrow):
    dtype = torch.bfloat16


class Compression:
    """The available compressors: none, fp16, bf16."""

    none = Compressor
    fp16 = _Float16
    bf16 = _BFloat16
